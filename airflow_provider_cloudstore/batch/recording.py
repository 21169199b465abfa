"""Records the outcome of every URL in a folder: JSON Lines in parts, and a mark that names the try that writes them.

It is all that a batch remembers. Object stores cannot append, so the current part is written anew with each checkpoint, until it
has about 1 MiB; then the next one begins. A part's name consists of batch, try, number and process: batches can share a folder,
and names sort in order of writing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_provider_cloudstore.batch.folder import PathFolder, unusable
from airflow_provider_cloudstore.exceptions import BatchInterruptedError

log = logging.getLogger(__name__)

PART_SIZE = 1024 * 1024
"""Bytes after which the next part begins."""
_DIGEST_SIZE = 32
_PART = re.compile(r"part-(?P<batch>[0-9a-f]{12})-\d{4}-\d{8}-[0-9a-f]+\.jsonl")
_WAYS_OUT = (
    "Set `receipts` to a folder that every worker shares, and start a new DAG run, which sends every URL; receipts=None allows "
    "retries to send every URL again."
)


class Status(Enum):
    """The outcome of a URL."""

    QUEUED = "queued"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    UNSENT = "unsent"


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a batch, in one process."""

    scope: tuple[str, ...] = ()
    """DAG, run, task and map index."""
    number: int = 1
    process: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    """Differs if the same try runs twice."""

    @property
    def batch(self) -> str:
        """A short id of the batch for file names."""
        return hashlib.blake2b("\0".join(self.scope).encode(), digest_size=6).hexdigest()


class Receipts:
    """The receipts of one batch, written by one try. All methods block; one thread at a time writes."""

    def __init__(self, folder: PathFolder, writer: Try) -> None:
        self.folder = folder
        self.writer = writer
        self._mark = f"batch-{writer.batch}.json"
        self._number = 0
        self._content = b""  # of the current part
        self._has_failed = False

    def begin(self) -> list[str]:
        """Leave the mark of this try, which stops any older one, and return the parts of earlier ones, in the order of writing.

        :raises BatchInterruptedError: if a newer try has left its mark.
        :raises BatchStoppedError: if an earlier try left no mark in a local folder, or the folder cannot be used.
        """
        if not self._find_mark(begins=True) and self.writer.number > 1:
            if self.folder.is_local:
                what = f"no receipts of an earlier try in {self.folder.place}: is the folder shared by all workers?"
                raise unusable(what, _WAYS_OUT)
            log.warning("No receipts of an earlier try in %s: this try sends every URL.", self.folder.place)
        mark = {"scope": self.writer.scope, "number": self.writer.number, "process": self.writer.process}
        self.folder.write(self._mark, json.dumps(mark).encode())
        parts = parts_by_batch(self.folder.names()).get(self.writer.batch, [])
        if parts:  # the last one may be of this try in another process
            self._number = int(parts[-1].split("-")[3]) + 1
        return parts

    def write(self, lines: Sequence[str]) -> None:
        """Append receipts, unless a newer try has taken over. After a failure, call it again with the same lines.

        :raises BatchInterruptedError: if a newer try has taken over.
        :raises BatchStoppedError: if the mark of this try is missing, or the folder cannot be written.
        """
        if not self._find_mark():
            advice = "Restore the folder and clear the task: it resumes. Without it, start a new DAG run, which sends every URL."
            raise unusable(f"{self.folder.place} was removed or emptied while the batch ran", advice)
        if not lines:
            return
        content = self._content + "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        had_failed, self._has_failed = self._has_failed, True
        name = f"part-{self.writer.batch}-{self.writer.number:04d}-{self._number:08d}-{self.writer.process}.jsonl"
        self.folder.write(name, content)
        self._content, self._has_failed = content, False
        if had_failed or len(content) >= PART_SIZE:
            # A request that failed may still arrive, and would replace what is added to this part after it.
            self._number, self._content = self._number + 1, b""

    def _find_mark(self, *, begins: bool = False) -> bool:
        """Whether a try has left its mark: no newer one, nor another process of this one, which a beginning one replaces."""
        content = self.folder.read(self._mark)
        if content is None:
            return False
        number = None
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            mark = json.loads(content)
            number, is_other = mark["number"], mark["process"] != self.writer.process
        if not isinstance(number, int):
            advice = "Restore this file, or start a new DAG run, which sends every URL."
            raise unusable(f"{self.folder.place}/{self._mark} is damaged", advice)
        if number > self.writer.number or (number == self.writer.number and is_other and not begins):
            what = f"try {self.writer.number} found the mark of try {number}, which has taken over"
            raise BatchInterruptedError(what, operation="batch upload", cause="superseded")
        return True


def parts_by_batch(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of the parts in a folder by the id of their batch, in the order of writing."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_PART.fullmatch, sorted(names))):
        found.setdefault(match["batch"], []).append(match[0])
    return found


def read_part(folder: PathFolder, name: str) -> list[tuple[bytes, Status, dict[str, Any]]]:
    """The receipts of a part, in the order of writing: digest, status and the whole line.

    :raises BatchStoppedError: at the first line that is no receipt: unlike an outage, that does not pass.
    """
    found: list[tuple[bytes, Status, dict[str, Any]]] = []
    for number, line in enumerate((folder.read(name) or b"").splitlines() or [b""], 1):  # no part is written without lines
        digest = b""
        with suppress(ValueError, TypeError, KeyError, RecursionError):  # the line is damaged
            receipt = json.loads(line.decode())
            digest, status = bytes.fromhex(receipt["digest"]), Status(receipt["status"])
        if len(digest) != _DIGEST_SIZE:
            advice = "Restore this file, or move it away and clear the task, which sends the URLs in it again."
            raise unusable(f"line {number} of {folder.place}/{name} is damaged", advice)
        found.append((digest, status, receipt))
    return found
