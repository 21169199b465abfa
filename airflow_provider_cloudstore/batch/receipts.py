"""A record of what became of every URL: JSON Lines in parts, each of which is whole or absent.

Object stores have no append, so each part is a file of its own. The parts are also what a later try goes on from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any, Protocol

_PART = re.compile(r"part-\d{8}\.jsonl")


class Folder(Protocol):
    """What is needed of a folder; Airflow's ``ObjectStoragePath`` and ``pathlib.Path`` both are one."""

    def __truediv__(self, name: str) -> Any:
        """The path of a file in it."""

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        """Make it."""

    def iterdir(self) -> Iterator[Any]:
        """The paths in it."""


class Receipts:
    """The parts in a folder.

    :param folder: where they are, or will be.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lines: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        names = (PurePosixPath(str(path)).name for path in folder.iterdir())
        self._parts = sorted(name for name in names if _PART.fullmatch(name))  # other programs write parts, too

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for name in self._parts:
            with (self._folder / name).open("rb") as part:
                yield from map(json.loads, part.read().splitlines())

    def add(self, receipt: dict[str, Any]) -> None:
        """Keep a receipt for the next part.

        :param receipt: what became of a URL, without secrets.
        """
        self._lines.append(json.dumps(receipt, ensure_ascii=False))

    def take(self) -> list[str]:
        """The receipts since the last part; they are the caller's now, to be written."""
        lines, self._lines = self._lines, []
        return lines

    def write(self, lines: list[str]) -> None:
        """Write a part, if there is anything to write. It blocks.

        :param lines: what :meth:`take` returned.
        """
        if not lines:
            return
        last = int(self._parts[-1][5:13]) if self._parts else -1
        name = f"part-{last + 1:08d}.jsonl"
        try:
            self._write(name, "".join(f"{line}\n" for line in lines).encode())
        except BaseException:
            self._lines[:0] = lines  # for the next attempt
            raise
        self._parts.append(name)

    def _write(self, name: str, content: bytes) -> None:
        path = self._folder / name
        if getattr(path, "protocol", "file") in ("", "file", "local"):
            # A local file grows while it is written; a rename is at once. An object appears when it is closed.
            unfinished = self._folder / f".{name}"
            self._fill(unfinished, content)
            unfinished.replace(path)
        else:
            self._fill(path, content)

    @staticmethod
    def _fill(path: Any, content: bytes) -> None:
        sink: IO[bytes]
        with path.open("wb") as sink:
            sink.write(content)
