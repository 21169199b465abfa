"""Records the outcome of every URL in a folder: JSON Lines in parts, and a mark that names the try that writes them.

Object stores cannot append, so the current part is written anew with each checkpoint, until it has about 1 MiB; then the next one
begins. A part's name consists of batch, try, number and process: batches can share a folder, and names sort in order of writing.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from tenacity import Retrying, stop_after_attempt, wait_random_exponential

from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.tries import WAYS_OUT, Try
from airflow_provider_cloudstore.protocol.errors import BatchStoppedError
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, hides_secret, redact_url, url_secrets

PART_SIZE = 1024 * 1024
"""Bytes after which the next part begins."""
RESTORE = f"Restore the folder, or set `receipts` to where it is, and clear the task: it resumes. {WAYS_OUT}"
_READ_AHEAD = 8
_READ_ATTEMPTS = 5
_MAX_LENGTH = 16_000
_DIGEST_SIZE = 32
_PART = re.compile(r"part-(?P<batch>[0-9a-f]{12})-\d{4}-\d{8}-[0-9a-f]+\.jsonl")
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # json.dumps would create an encoder for each line


class Folder(Protocol):
    """A folder of files; every method blocks."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file: at every moment, either the earlier content is there or the new one, and complete."""

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""


def unusable(what: str, advice: str) -> BatchStoppedError:
    """The error for receipts that no retry mends."""
    return BatchStoppedError(
        f"the receipts: {what}; nothing more was sent", operation="batch upload", cause="receipts", advice=advice
    )


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
        self._parts: list[str]  # of earlier tries, once this one has begun: to read before must not look like no receipts
        self._number = 0
        self._content = b""  # of the current part
        self._has_failed = False

    def begin(self, *, expects_earlier: bool = False) -> None:
        """Leave the mark of this try, which stops any older one.

        :param expects_earlier: whether earlier tries are known to have left their mark.
        :raises BatchInterruptedError: if a newer try has left its mark.
        :raises BatchStoppedError: if the mark is missing or of another format, or the folder cannot be used.
        """
        if self._load_mark(begins=True) is None and expects_earlier:
            raise unusable(f"earlier tries kept the batch's progress in receipts, and there are none in {self.place}", RESTORE)
        self._folder.write(self._mark, json.dumps(self._writer.to_mark()).encode())
        self._parts = parts_by_batch(self._folder.names()).get(self._writer.batch, [])
        if self._parts:  # the last one may be of this try in another process
            self._number = int(self._parts[-1].split("-")[3]) + 1

    def read(self, add: Callable[[bytes, Status], None]) -> None:
        """Read the receipts of earlier tries, after ``begin``. If this fails and is called again, it starts over.

        :param add: receives the digest and the status of each receipt, in the order of writing.
        :raises BatchStoppedError: if a part is damaged: unlike an outage, that does not pass.
        """
        for part in read_parts(self._folder, self._parts, self.place):
            for digest, status, _ in part:
                add(digest, status)

    def write(self, lines: list[str]) -> None:
        """Append lines, unless a newer try has taken over. After a failure, call it again with the same lines.

        :param lines: the receipts as JSON; if there are none, only the mark is checked.
        :raises BatchInterruptedError: if a newer try has taken over.
        :raises BatchStoppedError: if the mark of this try is missing, or the folder cannot be written.
        """
        if self._load_mark() is None:
            raise unusable(f"{self.place} was removed or emptied while the batch ran", RESTORE)
        if not lines:
            return
        content = self._content + "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        had_failed, self._has_failed = self._has_failed, True
        name = f"part-{self._writer.batch}-{self._writer.number:04d}-{self._number:08d}-{self._writer.process}.jsonl"
        self._folder.write(name, content)
        self._content, self._has_failed = content, False
        if had_failed or len(content) >= PART_SIZE:
            # A request that failed may still arrive, and would replace what is added to this part after it.
            self._number, self._content = self._number + 1, b""

    def _load_mark(self, *, begins: bool = False) -> Any:
        content = self._folder.read(self._mark)
        mark: Any = None if content is None else {}  # what does not parse is of another format: marks are written whole
        with suppress(ValueError):
            mark = json.loads(content or b"") or {}
        self._writer.validate(mark, f"{self.place}/{self._mark}", begins=begins)
        return mark


def parts_by_batch(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of the parts in a folder by the id of their batch, in the order of writing."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_PART.fullmatch, sorted(names))):
        found.setdefault(match["batch"], []).append(match[0])
    return found


def read_parts(folder: Folder, names: Iterable[str], place: str) -> Iterator[Iterator[tuple[bytes, Status, dict[str, Any]]]]:
    """The receipts of each part, in order: digest, status and the whole line. A few parts are always being read.

    Each failed read is retried by itself: among thousands one always fails, and restarting all of them would never finish.

    :param folder: the folder.
    :param names: the parts.
    :param place: the path of the folder, for errors.
    :raises BatchStoppedError: at the first line that is no receipt.
    """
    retrying = Retrying(stop=stop_after_attempt(_READ_ATTEMPTS), wait=wait_random_exponential(0.1, max=1), reraise=True)
    executor = ThreadPoolExecutor(_READ_AHEAD, "cloudstore-receipts")
    starting = ((name, executor.submit(retrying, folder.read, name)) for name in names)
    reading = deque(islice(starting, _READ_AHEAD))
    try:
        while reading:
            name, content = reading.popleft()
            yield _parse(content.result() or b"", f"{place}/{name}")
            reading.extend(islice(starting, 1))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _parse(content: bytes, place: str) -> Iterator[tuple[bytes, Status, dict[str, Any]]]:
    for number, line in enumerate(content.splitlines() or [b""], 1):  # no part is written without lines
        digest = b""
        with suppress(ValueError, TypeError, KeyError, RecursionError):  # the line is damaged
            receipt = json.loads(line.decode())
            digest, status = bytes.fromhex(receipt["digest"]), Status(receipt["status"])
        if len(digest) != _DIGEST_SIZE:
            advice = "Restore this file, or move it away and clear the task, which sends the URLs in it again."
            raise unusable(f"line {number} of {place} is damaged", advice)
        yield digest, status, receipt


def to_line(
    entry: Entry,
    digest: bytes,
    status: Status,
    number: int,
    *,
    url: str,
    error: str = "",
    file_id: str = "",
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
    :param file_id: the file's id; empty if the service returned none.
    :param response: the service's response. The receipt has none if this is None, and null in its place if it is too large.
    :param secrets: what the receipt must not hold, such as the access token.
    """
    receipt: dict[str, Any] = {"line": entry.line}
    if entry.key is not None:
        receipt["key"] = _redacted_key(entry, secrets)
    receipt |= {"digest": digest.hex(), "url": url, "status": status.value, "try": number}
    if status is Status.QUEUED:
        receipt["file_id"] = file_id
    if error:
        receipt["error"] = error[:_MAX_LENGTH]
    elif response is not None:
        receipt["response"] = response if len(_to_json(response)) <= _MAX_LENGTH else None
    return _to_json(receipt)


def _redacted_key(entry: Entry, secrets: Sequence[Secret]) -> Any:
    """The manifest's own id of a line, redacted: the column may repeat the URL, a part of it, or the token."""
    text = str(entry.key)
    if "://" in text:
        text = redact_url(text)
    if hides_secret(text[:_MAX_LENGTH], (*secrets, *url_secrets(str(entry.url)))):
        return MASK
    return entry.key if isinstance(entry.key, int) else text
