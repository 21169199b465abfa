"""Stores whose reads and writes fail at random, for tasks on a whole Airflow: from a seed, in a way of their own in each try.

A write that fails may have been stored all the same, as it can be when the response of an object store is lost; now and then a
store is away for seconds.
"""

from __future__ import annotations

import io
import os
import random
import time
import uuid
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tests.real_airflow import AIRFLOW_2

PROTOCOL = "unreliable"
_FAILING = 0.2
_AWAY = 0.1
_MAX_ABSENCE_LENGTH = 4.0


class StoreError(Exception):
    """A store fails; each library has an exception of its own for this."""


class Luck:
    """Says which calls fail.

    :param failures: a file with a line for each call that failed, for the test.
    """

    def __init__(self, failures: Path) -> None:
        self._failures = failures
        self._dice = random.Random()
        self._away_until = 0.0

    def begin(self, seed: str) -> None:
        """Begin a try.

        :param seed: says how its luck is.
        """
        self._dice.seed(seed)

    def lose(self, what: str) -> bool:
        """Whether this call fails.

        :param what: what is called.
        """
        now = time.monotonic()
        if now >= self._away_until and self._dice.random() < _FAILING * _AWAY:
            self._away_until = now + self._dice.uniform(1.0, _MAX_ABSENCE_LENGTH)
        lost = now < self._away_until or self._dice.random() < _FAILING
        if lost:
            with self._failures.open("a") as sink:
                sink.write(f"{what}\n")
        return lost

    def after_all(self) -> bool:
        """Whether a write that fails is stored all the same."""
        return self._dice.random() < 0.5


LUCK = Luck(Path(os.environ.get("UNRELIABLE_LOG", os.devnull)))


class UnreliableFileSystem(LocalFileSystem):
    """An object store on disk: an object appears as a whole when it is closed, if it does."""

    protocol = PROTOCOL

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://")))

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Any:
        if "r" in mode:
            if LUCK.lose("read"):
                raise StoreError("read")
            return super()._open(path, mode, block_size, **options)
        return _Object(Path(self._strip_protocol(path)))


class _Object(io.BytesIO):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        lost = LUCK.lose("write")
        if not lost or LUCK.after_all():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_name(f".{uuid.uuid4().hex}")
            unfinished.write_bytes(content)
            unfinished.replace(self._path)
        if lost:
            raise StoreError("write")


def attach() -> None:
    """Make the filesystem known to fsspec and to ``ObjectStoragePath``."""
    fsspec.register_implementation(PROTOCOL, UnreliableFileSystem, clobber=True)
    import_module("airflow.io.store" if AIRFLOW_2 else "airflow.sdk.io").attach(PROTOCOL, fs=UnreliableFileSystem())
