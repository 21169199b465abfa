"""A store whose reads and writes fail at random, for tasks on a whole Airflow, and which is away for seconds now and then.

A write that fails may have been stored all the same, as it can be when the response of a store is lost.
"""

from __future__ import annotations

import os
import random
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tests.real_airflow import AIRFLOW_2

PROTOCOL = "unreliable"
_FAILING = 0.2
_BEGINS_ABSENCE = 0.02
_MAX_ABSENCE_LENGTH = 4.0


class StoreError(Exception):
    """A store fails; each library has an exception of its own for this."""


class UnreliableFileSystem(LocalFileSystem):
    """A filesystem that is not local, as the provider sees it. Each call that failed is a line in ``UNRELIABLE_LOG``."""

    protocol = PROTOCOL
    _away_until = 0.0

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://")))

    def cat_file(self, path: str, *args: Any, **options: Any) -> Any:
        if self._fails("read"):
            raise StoreError("read")
        return super().cat_file(path, *args, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        fails = self._fails("write")
        if not fails or random.random() < 0.5:
            super().mv(path1, path2, **options)
        if fails:
            raise StoreError("write")

    def _fails(self, what: str) -> bool:
        now = time.monotonic()
        if now >= self._away_until and random.random() < _BEGINS_ABSENCE:
            self._away_until = now + random.uniform(1.0, _MAX_ABSENCE_LENGTH)
        fails = now < self._away_until or random.random() < _FAILING
        if fails:
            with Path(os.environ["UNRELIABLE_LOG"]).open("a") as sink:
                sink.write(f"{what}\n")
        return fails


def attach() -> None:
    """Make the filesystem known to fsspec and to ``ObjectStoragePath``."""
    fsspec.register_implementation(PROTOCOL, UnreliableFileSystem, clobber=True)
    import_module("airflow.io.store" if AIRFLOW_2 else "airflow.sdk.io").attach(PROTOCOL, fs=UnreliableFileSystem())
