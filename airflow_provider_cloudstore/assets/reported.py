"""Remembers across restarts of the triggerer which files a watcher has reported (Airflow 3.3 and later)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import pendulum

log = logging.getLogger(__name__)

_KEY = "cloudstore_reported_"


class ReportedFiles:
    """The record of reported files, kept with the watched assets: one key for a file, so that others can join the watch.

    :param stores: the state stores of the watched assets; none before Airflow 3.3.
    :param cloudstore_conn_id: the Airflow connection: another one may lead to another service.
    """

    def __init__(self, stores: Sequence[Any], cloudstore_conn_id: str) -> None:
        self._stores = stores
        self._conn_id = cloudstore_conn_id
        self._unrecorded: list[str] = []

    @property
    def pending(self) -> bool:
        """Whether a file is reported and could not be recorded."""
        return bool(self._unrecorded)

    async def knows(self, file_id: str) -> bool:
        """Whether a file was reported to every asset.

        :param file_id: the file.
        """
        for store in self._stores:
            if await store.aget(self._key(file_id)) is None:
                return False
        return bool(self._stores)

    async def record(self, file_ids: Iterable[str]) -> None:
        """Record that files were reported. What cannot be recorded is tried again with the next ones.

        :param file_ids: the files.
        """
        self._unrecorded += file_ids
        now = pendulum.now("UTC").to_iso8601_string()
        try:
            while self._unrecorded:
                for store in self._stores:
                    await store.aset(self._key(self._unrecorded[0]), now)
                del self._unrecorded[0]
        except Exception as error:  # noqa: BLE001  (Airflow's, or any of a custom state store backend; the watch must not end)
            log.warning("Could not record reported files (%s); trying again with the next poll", type(error).__name__)

    def _key(self, file_id: str) -> str:
        return _KEY + hashlib.sha256(f"{self._conn_id}\0{file_id}".encode()).hexdigest()[:32]
