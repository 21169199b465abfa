"""Records the outcome of every URL in a folder: JSON Lines in parts, and a mark that names the try that writes them.

Object stores cannot append, so the current part is written anew with each checkpoint, until it has about 1 MiB; then the next one
begins. A part's name consists of batch, try, process and number, so any number of batches can share a folder without collisions.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from tenacity import Retrying, retry_if_not_exception_type, stop_after_attempt, wait_random_exponential

from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.protocol.encodings import hides_secret
from airflow_provider_cloudstore.protocol.errors import BatchStoppedError, CloudStoreError
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, redact_url, url_secrets

if TYPE_CHECKING:
    from airflow_provider_cloudstore.batch.manifest import Entry

PART_SIZE = 1024 * 1024
"""Bytes after which the next part begins."""
SLOW_WRITE = 2.0
"""Seconds after which the store's library may have given up a request and repeated it."""
_READ_AHEAD = 8
_READ_ATTEMPTS = 5
_MAX_RESPONSE_SIZE = 16_000
_MAX_ERROR_SIZE = 1_000
_DIGEST_SIZE = 32
_RECORDED = {status.value: status for status in (Status.QUEUED, Status.FAILED, Status.UNKNOWN)}
_PART = re.compile(r"part-(?P<batch>[0-9a-f]{12})-(?P<try>\d{4,})-[0-9a-f]+-(?P<number>\d{8,})\.jsonl")
_LOCAL = ("", "file", "local")
# Here a file appears when its only request is complete, and a folder is only a prefix of names, which needs no creation.
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "wasb", "wasbs", "oss", "obs", "oci", "memory", "r2", "b2"}
)
# What no retry mends on a local filesystem.
_UNUSABLE = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # json.dumps would create an encoder for each line


class Folder(Protocol):
    """A folder of files; every method blocks."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file: at every moment, either the earlier content is there or the new one, and complete."""

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""


class PathFolder:
    """A folder on a path: a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``.

    Every method raises ``BatchStoppedError`` for what no retry mends: a local folder that is read-only, or a missing bucket.

    :param path: the folder, which need not exist.
    """

    def __init__(self, path: Any) -> None:
        is_local = getattr(path, "protocol", "") in _LOCAL
        self._path: Any = Path(getattr(path, "path", path)) if is_local else path
        self._fs = None if is_local else path.fs
        self._is_object_store = not is_local and path.protocol in _OBJECT_STORES

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""
        with self._stops(name), suppress(FileNotFoundError):
            if self._fs is None:
                return bytes((self._path / name).read_bytes())
            self._fs.invalidate_cache()  # other tries write to the folder
            return bytes(self._fs.cat_file((self._path / name).path))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file, and create the folder in a store that has folders."""
        with self._stops(name):
            if self._fs is not None and self._is_object_store:
                self._fs.pipe_file((self._path / name).path, content)
                return
            with suppress(FileNotFoundError):
                self._write_and_rename(name, content)
                return
            self._path.mkdir(parents=True, exist_ok=True)
            self._write_and_rename(name, content)

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""
        with self._stops(""), suppress(FileNotFoundError):
            if self._fs is None:
                return os.listdir(self._path)
            self._fs.invalidate_cache()
            return [PurePosixPath(path).name for path in self._fs.ls(self._path.path, detail=False)]
        return []

    def _write_and_rename(self, name: str, content: bytes) -> None:
        unfinished, complete = self._path / f".{name}.{uuid.uuid4().hex[:8]}", self._path / name
        try:
            if self._fs is None:
                with unfinished.open("xb") as sink:
                    sink.write(content)
                    sink.flush()
                    os.fsync(sink.fileno())
                unfinished.replace(complete)
            else:
                self._fs.pipe_file(unfinished.path, content)
                self._fs.mv(unfinished.path, complete.path)
        except OSError:
            with suppress(OSError):  # what prevents this must not hide why
                unfinished.unlink()
            raise

    @contextmanager
    def _stops(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._fs is None and isinstance(error, OSError) and error.errno in _UNUSABLE:
                reason = error.strerror
            elif self._is_object_store and _is_missing_bucket(error):
                reason = "its bucket or container does not exist"
            else:
                raise
            raise _stopped(f"{self._path / name} cannot be used: {reason}") from None


def _is_missing_bucket(error: BaseException | None) -> bool:
    """Whether a store reports that the bucket does not exist; adlfs wraps Azure's own error in a ``RuntimeError``."""
    while error is not None:
        if isinstance(error, FileNotFoundError) or type(error).__name__ == "ResourceNotFoundError":
            return True
        error = error.__cause__
    return False


def _stopped(
    what: str, advice: str = "Mend that and clear the task: it resumes. With another folder, it starts anew."
) -> BatchStoppedError:
    return BatchStoppedError(
        f"the receipts: {what}; nothing more was sent", operation="batch upload", cause="receipts", advice=advice
    )


def parts_by_batch(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of the parts in a folder by the id of their batch, in the order of writing."""
    matches = filter(None, map(_PART.fullmatch, names))
    found: dict[str, list[str]] = {}
    for match in sorted(matches, key=lambda match: (int(match["try"]), int(match["number"]))):
        found.setdefault(match["batch"], []).append(match[0])
    return found


class Receipts:
    """The receipts of one batch, written by one try. All methods block; one thread at a time writes.

    :param folder: the folder, which need not exist.
    :param writer: the try.
    :param place: the path of the folder, for messages.
    """

    def __init__(self, folder: Folder, writer: Try, place: str = "") -> None:
        self.place = place
        self._folder = folder
        self._writer = writer
        self._mark = f"batch-{writer.batch}.json"
        self._has_earlier = False
        self._number = 0
        self._content = b""  # of the current part
        self._may_be_late = False

    def begin(self) -> bool:
        """Leave the mark of this try, which stops any older one.

        :returns: whether an earlier try of this batch had left one.
        :raises BatchInterruptedError: if a newer try has left its mark.
        :raises BatchStoppedError: if the mark is of another format, or the folder cannot be used.
        """
        mark = self._load_mark()
        self._writer.validate(mark, f"{self.place}/{self._mark}", begins=True)
        if mark and mark.get("process") != self._writer.process:  # else it is from a call of this method that failed
            self._has_earlier = True
        self._folder.write(self._mark, json.dumps(self._writer.to_mark()).encode())
        if self._has_earlier:  # it may have been this try in another process: numbers tell the order of writing
            self._number = max((int(name[-14:-6]) for name in self._parts()), default=-1) + 1
        return self._has_earlier

    def read(self, add: Callable[[bytes, Status], None]) -> None:
        """Read the receipts of earlier tries. If this fails and is called again, it starts over.

        :param add: receives the digest and the status of each receipt, in the order of writing.
        :raises BatchStoppedError: if a part is damaged: unlike an outage, that does not pass.
        """
        names = self._parts()
        for name, content in zip(names, read_ahead(self._folder, names), strict=True):
            for digest, status, _ in parse_part(content, f"{self.place}/{name}"):
                add(digest, status)

    def write(self, lines: list[str]) -> None:
        """Append lines, unless a newer try has taken over. After a failure, call it again with the same lines.

        :param lines: the receipts as JSON; if there are none, only the mark is checked.
        :raises BatchInterruptedError: if a newer try has taken over.
        :raises BatchStoppedError: if the mark of this try is missing, or the folder cannot be written.
        """
        began = time.monotonic()
        mark = self._load_mark()
        if mark is None:
            advice = "Restore the files and clear the task: it resumes. Without them, it sends every URL again."
            raise _stopped(f"{self.place} was removed or emptied while the batch ran", advice)
        self._writer.validate(mark, f"{self.place}/{self._mark}")
        if not lines:
            return
        number, content = self._number, self._content
        may_be_late, self._may_be_late = self._may_be_late, True
        for piece in _pieces(lines):
            if len(content) >= PART_SIZE:
                number, content = number + 1, b""
            content += piece
            self._folder.write(self._name(number), content)
        if may_be_late or time.monotonic() - began > SLOW_WRITE:
            # A request that was given up may still arrive, and would replace what is written to this part after it.
            number, content = number + 1, b""
        self._number, self._content, self._may_be_late = number, content, False

    def _parts(self) -> list[str]:
        return parts_by_batch(self._folder.names()).get(self._writer.batch, [])

    def _name(self, number: int) -> str:
        return f"part-{self._writer.batch}-{self._writer.number:04d}-{self._writer.process}-{number:08d}.jsonl"

    def _load_mark(self) -> Any:
        content = self._folder.read(self._mark)
        try:
            return None if content is None else json.loads(content) or {}
        except ValueError:
            return {}  # marks are written whole, so this is none of this format


def _pieces(lines: list[str]) -> Iterator[bytes]:
    """The lines as bytes, a part's size at a time: the first write may take over millions of lines from the state store."""
    piece = bytearray()
    for line in lines:
        piece += f"{line}\n".encode("utf-8", "backslashreplace")
        if len(piece) >= PART_SIZE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def parse_part(content: bytes, place: str) -> Iterator[tuple[bytes, Status, dict[str, Any]]]:
    """The receipts of a part: the digest, the status and the whole line.

    :param content: the part.
    :param place: its path, for the error.
    :raises BatchStoppedError: at the first line that is no receipt.
    """
    for number, line in enumerate(content.splitlines() or [b""], 1):  # no part is written without lines
        digest = b""
        with suppress(ValueError, TypeError, KeyError, RecursionError):  # the line is damaged
            receipt = json.loads(line.decode())
            digest, status = bytes.fromhex(receipt["digest"]), _RECORDED[receipt["status"]]
        if len(digest) != _DIGEST_SIZE:
            advice = "Restore this file, or move it away and clear the task, which sends the URLs in it again."
            raise _stopped(f"line {number} of {place} is damaged", advice)
        yield digest, status, receipt


def read_ahead(folder: Folder, names: Iterable[str]) -> Iterator[bytes]:
    """The contents of files, in order, of which a few are always being read. One that is missing is empty.

    Each failed read is retried by itself: among thousands one always fails, and restarting all of them would never finish.
    """
    retrying = Retrying(
        retry=retry_if_not_exception_type(CloudStoreError),
        stop=stop_after_attempt(_READ_ATTEMPTS),
        wait=wait_random_exponential(0.1, max=1),
        reraise=True,
    )
    reading: deque[Callable[[], bytes]] = deque()
    for name in names:
        reading.append(_in_daemon_thread(partial(retrying, folder.read, name)))
        if len(reading) == _READ_AHEAD:
            yield reading.popleft()()
    while reading:
        yield reading.popleft()()


def _in_daemon_thread(read: Callable[[], bytes | None]) -> Callable[[], bytes]:
    """Start reading; a store that hangs must not keep the process alive.

    :returns: waits for the content and returns it.
    """
    outcome: list[bytes | BaseException] = []

    def run() -> None:
        try:
            outcome.append(read() or b"")
        except BaseException as error:  # noqa: BLE001  (raised in the thread that waits)
            outcome.append(error)

    def result() -> bytes:
        thread.join()
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    thread = threading.Thread(target=run, name="cloudstore-receipts", daemon=True)
    thread.start()
    return result


def to_line(
    entry: Entry,
    digest: bytes,
    status: Status,
    number: int,
    *,
    url: str,
    error: str = "",
    response: Any = None,
    secrets: Sequence[Secret] = (),
) -> str:
    """One receipt as JSON. Besides URL and key, which the manifest's longest line bounds, it has at most 16 KiB.

    :param entry: the line of the manifest.
    :param digest: the digest of its URL.
    :param status: the outcome.
    :param number: the try.
    :param url: the URL, redacted.
    :param error: why it failed.
    :param response: the service's response. The receipt has none if this is None, and null in its place if it is too large.
    :param secrets: what the receipt must not hold, such as the access token.
    """
    receipt: dict[str, Any] = {"line": entry.line}
    if entry.key is not None:
        receipt["key"] = _redacted_key(entry, secrets)
    receipt |= {"digest": digest.hex(), "url": url, "status": status.value, "try": number}
    if error:
        receipt["error"] = error[:_MAX_ERROR_SIZE]
    elif response is not None:
        return f'{_to_json(receipt)[:-1]}, "response": {_bounded(response)}}}'
    return _to_json(receipt)


def _bounded(response: Any) -> str:
    with suppress(TypeError, ValueError, RecursionError):  # it is no JSON
        text = _to_json(response)
        return text if len(text) <= _MAX_RESPONSE_SIZE else "null"
    return "null"


def _redacted_key(entry: Entry, secrets: Sequence[Secret]) -> Any:
    """The manifest's own id of a line, redacted: the column may repeat the URL, a part of it, or the token."""
    text = str(entry.key)
    if "://" in text:
        text = redact_url(text)
    if hides_secret(text[:_MAX_RESPONSE_SIZE], (*secrets, *url_secrets(str(entry.url)))):
        return MASK
    is_json = isinstance(entry.key, (str, int)) or (isinstance(entry.key, float) and entry.key * 0 == 0)
    return entry.key if is_json and text == str(entry.key) else text
