"""Records which files a watcher has reported, across restarts of the triggerer (Airflow 3.3 and later)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import pendulum

log = logging.getLogger(__name__)

_KEY = "cloudstore_reported_"


class ReportedFiles:
    """The reported files, in the state stores of the watched assets: one key per file, so that files can be added to the watch.

    :param stores: the state stores; none before Airflow 3.3.
    :param cloudstore_conn_id: the Airflow connection, part of the key: another one may lead to another service.
    """

    def __init__(self, stores: Sequence[Any], cloudstore_conn_id: str) -> None:
        self._stores = stores
        self._conn_id = cloudstore_conn_id
        self._unrecorded: list[str] = []

    @property
    def pending(self) -> bool:
        """Whether a reported file is not recorded yet."""
        return bool(self._unrecorded)

    async def knows(self, file_id: str) -> bool:
        """Whether a file was reported to every asset."""
        for store in self._stores:
            if await store.aget(self._key(file_id)) is None:
                return False
        return bool(self._stores)

    async def record(self, file_ids: Iterable[str]) -> None:
        """Record that files were reported; what cannot be recorded is retried with the next call."""
        self._unrecorded += file_ids
        now = pendulum.now("UTC").to_iso8601_string()
        try:
            while self._unrecorded:
                for store in self._stores:
                    await store.aset(self._key(self._unrecorded[0]), now)
                del self._unrecorded[0]
        except Exception as error:  # noqa: BLE001  (Airflow's, or any of a custom state store backend; the watch must not end)
            log.warning("Could not record reported files (%s); retrying with the next poll", type(error).__name__)

    def _key(self, file_id: str) -> str:
        return _KEY + hashlib.sha256(f"{self._conn_id}\0{file_id}".encode()).hexdigest()[:32]
