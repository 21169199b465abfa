"""A folder for receipts in memory, and receipts in a few words."""

from __future__ import annotations

import json
from collections.abc import Callable

from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Status, Try, read_part

SCOPE = ("dag", "run")


def digest_of(url: str) -> bytes:
    """The digest of a URL."""
    return Entry(1, url).digest


def line(url: str, status: str = "queued", padding: int = 0) -> str:
    """A receipt."""
    return json.dumps({"digest": digest_of(url).hex(), "status": status, "response": "x" * padding})


def begun(folder: Folder, number: int = 1, process: str = "aa") -> Receipts:
    """The receipts of a try that owns them."""
    receipts = Receipts(folder, Try(SCOPE, number, process))
    receipts.begin()
    return receipts


def read(folder: Folder, number: int) -> list[tuple[bytes, Status]]:
    """What a try reads of earlier ones."""
    parts = Receipts(folder, Try(SCOPE, number)).begin()
    return [(digest, status) for part in parts for digest, status, _ in read_part(folder, part)]


class MemoryFolder(Folder):
    """A folder in memory, which fails as it is told to."""

    location = "s3://b/r"

    def __init__(self, files: dict[str, bytes] | None = None, *, is_local: bool = False) -> None:
        self.files = files or {}
        self.is_local = is_local
        self.fails: Callable[[], object] = lambda: None

    def read(self, name: str) -> bytes | None:
        self.fails()
        return self.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        self.fails()
        self.files[name] = content

    def names(self) -> list[str]:
        self.fails()
        return list(self.files)
