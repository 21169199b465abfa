"""The receipts of a batch, in a folder: JSON Lines parts with the outcome of every URL, and a file that names the owning try.

Object stores cannot append, so each checkpoint rewrites the current part until it has about 1 MiB; then the next part begins.
A part's name consists of batch, try, number and process, so batches can share a folder, and names sort in order of writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore import stores
from airflow_provider_cloudstore.batch.manifest import FileManifest
from airflow_provider_cloudstore.exceptions import BatchFailedError, BatchSupersededError, InvalidInputError

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import ObjectStoragePath

log = logging.getLogger(__name__)

PART_SIZE = 1024 * 1024
"""Bytes after which the next part begins."""
_PART = re.compile(r"part-(?P<batch>[0-9a-f]{12})-\d{4}-\d{8}-[0-9a-f]+\.jsonl")
_PERMANENT_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
_NEW_RUN = "start a new DAG run, which sends every URL"


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
    """A random id, which differs if the same try runs twice."""

    @property
    def batch(self) -> str:
        """A short id of the batch for file names."""
        return hashlib.blake2b("\0".join(self.scope).encode(), digest_size=6).hexdigest()


def _permanent_problem(path: Any, error: Exception) -> str:
    """Return why no retry fixes an error of a path's store, such as a read-only local folder; empty if a retry may help."""
    if stores.is_local(path) and isinstance(error, OSError) and error.errno in _PERMANENT_ERRORS:
        return error.strerror or type(error).__name__
    is_missing = isinstance(error, FileNotFoundError) and stores.protocol_of(path) in stores.OBJECT_STORES
    return "its bucket or container does not exist" if is_missing else ""


def _unusable(what: str, advice: str) -> BatchFailedError:
    """Build the error for a problem of the receipts that no retry fixes."""
    reason = f"the receipts: {what}; nothing more was sent"
    return BatchFailedError(reason, operation="batch upload", advice=advice)


class Folder:
    """A folder, as a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``; it need not exist yet. Every method blocks."""

    def __init__(self, path: Any) -> None:
        self.location = str(path).rstrip("/")
        self.is_local = stores.is_local(path)  # other workers may not see a local folder
        self._path = path

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if the file does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError):
            fs, path = stores.filesystem(self._path / name)
            fs.invalidate_cache()  # other tries write to the folder
            return bytes(fs.cat_file(path))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file; at every moment, it has either its complete earlier content or the complete new content.

        :raises BatchFailedError: if no retry can help, as with a read-only local folder or a missing bucket.
        """
        try:
            with stores.atomic_write(self._path / name) as file:
                file.write(content)
        except Exception as error:
            reason = error.reason if isinstance(error, InvalidInputError) else _permanent_problem(self._path, error)
            if not reason:
                raise
            advice = "Fix that and clear the task, which then resumes. If nothing was sent yet, start a new DAG run."
            raise _unusable(f"{self._path / name} cannot be used: {reason}", advice) from None

    def names(self) -> list[str]:
        """Return the names of the files; the list is empty if the folder does not exist yet."""
        with suppress(FileNotFoundError):
            fs, path = stores.filesystem(self._path)
            fs.invalidate_cache()
            return [file.rpartition("/")[2] for file in fs.ls(path, detail=False)]
        return []


class Receipts:
    """The receipts of one batch, written by one try. All methods block; only one thread at a time may write."""

    def __init__(self, folder: Folder, writer: Try) -> None:
        self.folder = folder
        self.writer = writer
        self._owner = f"batch-{writer.batch}.json"
        self._number = 0
        self._content = b""  # of the current part

    def begin(self) -> list[str]:
        """Write this try's owner file, which stops older tries, and return the batch's earlier parts, in the order of writing.

        :raises BatchInterruptedError: if a newer try owns the receipts.
        :raises BatchFailedError: if an earlier try left nothing in a local folder, or the folder cannot be used.
        """
        if not self._find_owner(begins=True) and self.writer.number > 1:
            if self.folder.is_local:
                what = f"no receipts of an earlier try in {self.folder.location}: is the folder shared by all workers?"
                advice = f"Set `receipts` to a folder that every worker shares, and {_NEW_RUN}; or set receipts=None."
                raise _unusable(what, advice)
            log.warning("No receipts of an earlier try in %s: this try sends every URL.", self.folder.location)
        owner = {"scope": self.writer.scope, "number": self.writer.number, "process": self.writer.process}
        self.folder.write(self._owner, json.dumps(owner).encode())
        parts = _parts_by_batch(self.folder.names()).get(self.writer.batch, [])
        if parts:  # this try may have written the last part in another process
            self._number = int(parts[-1].split("-")[3]) + 1
        return parts

    def write(self, lines: Sequence[str]) -> None:
        """Append receipts, unless a newer try has taken over. After a failure, call it again with the same lines.

        :raises BatchInterruptedError: if a newer try has taken over.
        :raises BatchFailedError: if the owner file is missing, or the folder cannot be written.
        """
        if not self._find_owner():
            advice = f"Restore the folder and clear the task: it resumes. Without it, {_NEW_RUN}."
            raise _unusable(f"{self.folder.location} was removed or emptied while the batch ran", advice)
        if not lines:
            return
        content = self._content + "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        name = f"part-{self.writer.batch}-{self.writer.number:04d}-{self._number:08d}-{self.writer.process}.jsonl"
        try:
            self.folder.write(name, content)
        except Exception:
            self._begin_part()  # the failed write may still arrive, and would overwrite later receipts in its part
            raise
        self._content = content
        if len(content) >= PART_SIZE:
            self._begin_part()

    def _begin_part(self) -> None:
        self._number, self._content = self._number + 1, b""

    def _find_owner(self, *, begins: bool = False) -> bool:
        """Whether the receipts have an owner; raises if it is a newer try or, unless ``begins``, this try in another process."""
        content = self.folder.read(self._owner)
        if content is None:
            return False
        owner = json.loads(content)
        number, is_other = owner["number"], owner["process"] != self.writer.process
        if number > self.writer.number or (number == self.writer.number and is_other and not begins):
            what = f"try {self.writer.number} found the owner file of try {number}, which has taken over"
            raise BatchSupersededError(what, operation="batch upload")
        return True


def _parts_by_batch(names: Iterable[str]) -> dict[str, list[str]]:
    """Group the names of a folder's parts by the id of their batch, in the order of writing."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_PART.fullmatch, sorted(names))):
        found.setdefault(match["batch"], []).append(match[0])
    return found


def read_part(folder: Folder, name: str) -> list[tuple[bytes, Status, dict[str, Any]]]:
    """Read the receipts of a part, in the order of writing: the digest, the status and the whole line of each.

    :raises BatchFailedError: if a line is not a receipt, because unlike an outage, such damage is permanent.
    """
    lines = (folder.read(name) or b"").splitlines() or [b""]  # an empty part is damaged
    try:
        receipts = [json.loads(line) for line in lines]
        return [(bytes.fromhex(receipt["digest"]), Status(receipt["status"]), receipt) for receipt in receipts]
    except (ValueError, TypeError, KeyError):
        advice = "Restore this file, or move it away and clear the task, which sends the URLs in it again."
        raise _unusable(f"{folder.location}/{name} is damaged", advice) from None


def read_receipts(path: str | PathLike[str] | ObjectStoragePath) -> Iterator[dict[str, Any]]:
    """Yield the last receipt of each URL (per task in a shared folder), newest first.

    The outcomes are streamed: memory grows by about 120 bytes per URL. While a batch runs, the outcomes are those so far.

    :param path: the folder: text, an ``ObjectStoragePath`` or a ``pathlib.Path``.
    :raises InvalidInputError: if there are no receipts at that path.
    :raises BatchFailedError: if a file is damaged; the message names it.
    """
    return _last_outcomes(_open(path))


def write_failed(
    receipts: str | PathLike[str] | ObjectStoragePath,
    manifest: str | PathLike[str] | ObjectStoragePath,
    target: str | PathLike[str] | ObjectStoragePath,
    *,
    url_column: str = "url",
) -> int:
    """Write the failed lines, malformed ones included, to a new manifest, for you to correct and resend.

    The lines are unchanged, with the manifest's header, uncompressed and in UTF-8; a URL that it lists twice is written once.
    Lines that were not sent are left out, because clearing the task sends them. The target is complete or absent.

    :param receipts: the folder of one batch's receipts.
    :param manifest: the manifest of that batch.
    :param target: the file to write, a local path or a path for ``ObjectStoragePath``. It holds the credentials of its URLs.
    :param url_column: the column of a CSV, or the key in JSON, that holds the URL.
    :returns: how many lines were written.
    :raises InvalidInputError: if the folder does not hold the receipts of exactly one batch, or the manifest cannot be read.
    :raises BatchFailedError: if a receipt is damaged.
    """
    folder = _open(receipts)
    if sum(name.startswith("batch-") for name in folder.names()) > 1:
        raise InvalidInputError(
            f"{folder.location} holds the receipts of several batches, whose manifests may differ; nothing was written",
            advice="Give each run a folder of its own, such as .../receipts/{{ run_id }}, and name that one.",
        )
    source_path, target_path = stores.object_path(manifest, "manifest"), stores.object_path(target, "target")
    if str(source_path) == str(target_path):
        raise InvalidInputError("the target is the manifest itself; nothing was written", advice="Name another file.")
    outcomes = _last_outcomes(folder)
    failed = {bytes.fromhex(outcome["digest"]) for outcome in outcomes if outcome["status"] == Status.FAILED.value}
    source = FileManifest(source_path, str(manifest), url_column)
    first, wanted = next((entry.line for entry in source()), 0), _lines_of(source, failed)
    with stores.atomic_write(target_path) as file:
        for number, line in source.lines():
            if number < first or number in wanted:
                file.write(line.encode("utf-8", "surrogateescape"))
    return len(wanted)


def _lines_of(source: FileManifest, digests: set[bytes]) -> set[int]:
    chosen: dict[bytes, int] = {}
    for entry in source():
        if entry.digest in digests:
            chosen.setdefault(entry.digest, entry.line)  # only the first line of a URL was sent
    return set(chosen.values())


def _open(path: Any) -> Folder:
    folder = Folder(stores.object_path(path, "receipts"))
    if not any(name.startswith(("batch-", "part-")) for name in folder.names()):
        raise InvalidInputError(f"there are no receipts at {folder.location}: check the path")
    return folder


def _last_outcomes(folder: Folder) -> Iterator[dict[str, Any]]:
    for batch, names in _parts_by_batch(folder.names()).items():
        seen: set[bytes] = set()
        for name in reversed(names):
            for digest, _, receipt in reversed(read_part(folder, name)):
                if digest not in seen:
                    seen.add(digest)
                    yield {"batch": batch, **receipt}
