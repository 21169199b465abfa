"""Records the outcome of every URL in a folder: JSON Lines in parts, and a mark that names the try that writes them.

Object stores cannot append, so each part is a file of its own, complete or absent. Its name consists of batch, try, process and
number, so that any number of batches can share a folder without collisions. Once a minute, or sooner if there are many lines, an
index repeats what a later try needs of the parts since the last one: reading thousands of objects one by one takes long.
"""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

from tenacity import Retrying, stop_after_attempt, wait_random_exponential

from airflow_provider_cloudstore.batch.ledger import DAMAGES
from airflow_provider_cloudstore.protocol.errors import BatchSupersededError, InvalidInputError, ReceiptsLostError

log = logging.getLogger(__name__)

_READERS = 32
_READ_ATTEMPTS = 5
PARTS_PER_INDEX = 60
_LINES_PER_INDEX = 8_000  # about a MiB: indexes are read ahead, as parts are
# In these stores a folder is only a prefix of names: it needs no creation, and creating it could create a bucket.
_WITHOUT_FOLDERS = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "wasb", "wasbs", "oss", "obs", "oci", "memory", "r2", "b2"}
)


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a batch, in one process.

    :param scope: identifies the batch: DAG, run, task and map index.
    :param number: the try, counted from 1.
    :param process: differs if the same try runs twice.
    """

    scope: tuple[str, ...] = ()
    number: int = 1
    process: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def batch(self) -> str:
        """A short id of the batch for file names."""
        return hashlib.blake2b("\0".join(self.scope).encode(), digest_size=6).hexdigest()

    def to_mark(self) -> dict[str, Any]:
        """The mark that each checkpoint carries, as JSON."""
        return asdict(self) | {"scope": list(self.scope)}

    def validate(self, mark: Any, *, begins: bool = False) -> None:
        """Check that no newer try has left its mark.

        :param mark: the mark that was found, or None.
        :param begins: whether this process is starting: then it takes over from another process of the same try.
        :raises BatchSupersededError: if a newer try, or another process of this one, has written since.
        """
        number, process = (mark.get("number"), mark.get("process")) if isinstance(mark, dict) else (None, None)
        if isinstance(number, int) and (
            number > self.number or (number == self.number and process != self.process and not begins)
        ):
            raise BatchSupersededError(
                f"try {self.number} found the mark of try {number}, which has taken over", operation="batch upload"
            )


class Folder(Protocol):
    """A folder of files; every method blocks."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file that is complete or absent."""

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""


class PathFolder:
    """A folder on a path: a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``.

    :param path: the folder, which need not exist.
    """

    def __init__(self, path: Any) -> None:
        self._path = path
        self._local = getattr(path, "protocol", "file") in ("", "file", "local")

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist; a folder of that name has none."""
        self._forget_listings()
        try:
            with (self._path / name).open("rb") as source:
                return bytes(source.read())
        except IsADirectoryError:
            return b""
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and create the folder in a store that has folders.

        :raises InvalidInputError: if the folder cannot be created, or has a folder of that name.
        """
        problem = ""
        try:
            self._write(name, content)
        except IsADirectoryError:
            problem = f"the receipts file {self._path / name} is a folder: remove it"
        except (FileNotFoundError, NotADirectoryError):
            if getattr(self._path, "protocol", "file") in _WITHOUT_FOLDERS:
                raise
        else:
            return
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
            problem = f"the receipts folder {self._path} cannot be created ({error.strerror or type(error).__name__})"
        if problem:
            raise InvalidInputError(problem)
        self._write(name, content)

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""
        self._forget_listings()
        try:
            return [PurePosixPath(str(path)).name for path in self._path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _write(self, name: str, content: bytes) -> None:
        path = self._path / name
        if self._local:
            # A local file is visible while it is written, so it is renamed when complete. An object appears when it is closed.
            unfinished = self._path / f".{name}.{uuid.uuid4().hex[:8]}"
            try:
                _fill(unfinished, content)
                unfinished.replace(path)
            except OSError:
                with suppress(OSError):  # what prevents this must not hide why
                    unfinished.unlink()
                raise
        else:
            _fill(path, content)

    def _forget_listings(self) -> None:
        """Other tries write to the folder: what fsspec has cached may be stale."""
        forget = getattr(getattr(self._path, "fs", None), "invalidate_cache", None)
        if forget and not self._local:
            forget()


def _fill(path: Any, content: bytes) -> None:
    with path.open("wb") as sink:
        sink.write(content)


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
        self._number = 0
        self._unindexed: list[str] = []
        self._first_unindexed = 0

    def begin(self) -> None:
        """Leave the mark of this try, which stops any older one.

        :raises BatchSupersededError: if a newer try has left its mark.
        """
        self._validate(begins=True)
        self._folder.write(self._mark, json.dumps(self._writer.to_mark()).encode())

    def read(self, add: Callable[[Any], None], since: int = 0) -> None:
        """Read the receipts of earlier tries, many parts concurrently: object stores are slow.

        :param add: receives each receipt, in the order of writing; from an index, without what :func:`_indexed` omits. It raises
            one of ``DAMAGES`` for what is none.
        :param since: the first try that counts.
        :raises InvalidInputError: if a part is damaged: unlike an outage, that does not pass.
        """
        for name, content in self._contents(self._files(since)):
            if line := _first_damaged_line(content, add):
                raise InvalidInputError(
                    f"line {line} of the receipts {self.place.rstrip('/')}/{name} is damaged; nothing was sent",
                    advice="Restore this file, or move it away and clear the task, which resends its URLs unless Airflow's state "
                    "store has them.",
                )

    def write(self, lines: list[str]) -> None:
        """Write a part, unless a newer try has taken over. After a failure, call it again with the same lines.

        :param lines: the receipts as JSON; if there are none, only the mark is checked.
        :raises BatchSupersededError: if a newer try has taken over.
        :raises ReceiptsLostError: if the mark of this try is missing.
        """
        self._validate()
        if not lines:
            return
        self._folder.write(f"part-{self._name(self._number)}.jsonl", _as_lines(lines))
        self._unindexed += map(_indexed, lines)
        self._number += 1
        if self._number - self._first_unindexed >= PARTS_PER_INDEX or len(self._unindexed) >= _LINES_PER_INDEX:
            self._write_index()

    def _write_index(self) -> None:
        name = f"index-{self._name(self._first_unindexed)}-{self._number - 1:08d}.jsonl"
        body, self._unindexed, self._first_unindexed = _as_lines(self._unindexed), [], self._number
        try:
            self._folder.write(name, _checksum(body) + body)
        except Exception as error:  # noqa: BLE001  (of any library; the parts hold everything, and need no index)
            log.warning("An index of the receipts could not be written, so a retry reads its parts: %s", type(error).__name__)

    def _name(self, number: int) -> str:
        return f"{self._writer.batch}-{self._writer.number:04d}-{self._writer.process}-{number:08d}"

    def _contents(self, files: dict[str, list[str]]) -> Iterator[tuple[str, bytes]]:
        """The names and contents of files; the parts of an index in its place if it is damaged."""
        for (name, parts), content in zip(files.items(), _read_all(self._folder, list(files)), strict=True):
            checksum, line_end, body = content.partition(b"\n") if parts else (b"", b"", content)
            if not parts or checksum + line_end == _checksum(body):
                yield name, body
            else:
                yield from self._contents({part: [] for part in parts})

    def _files(self, since: int) -> dict[str, list[str]]:
        """What has to be read, in the order of writing: parts, or an index with the names of its parts if they are all there."""
        named = re.compile(rf"(?:part|index)-{self._writer.batch}-(\d{{4,}})-([0-9a-f]+)-(\d{{8,}})(?:-(\d{{8,}}))?\.jsonl")
        files: dict[tuple[int, str, int], str] = {}
        indexes: dict[str, list[tuple[int, str, int]]] = {}
        for match in filter(None, map(named.fullmatch, self._folder.names())):
            number, process, first, last = int(match[1]), match[2], int(match[3]), match[4]
            if number < since:
                continue
            if last:
                indexes[match[0]] = [(number, process, part) for part in range(first, int(last) + 1)]
            else:
                files[number, process, first] = match[0]
        of_index: dict[str, list[str]] = {}
        for name, parts in indexes.items():
            if parts and files.keys() >= set(parts):
                of_index[name] = [files.pop(part) for part in parts]
                files[parts[0]] = name
        return {name: of_index.get(name, []) for _, name in sorted(files.items())}

    def _validate(self, *, begins: bool = False) -> None:
        content = self._folder.read(self._mark)
        if content is None and not begins:
            what = f"the receipts folder {self.place} was removed or emptied while the batch ran"
            raise ReceiptsLostError(what, operation="batch upload")
        try:
            mark = json.loads(content or b"null")
        except ValueError:
            mark = None  # not the mark of a newer try: marks are written whole
        self._writer.validate(mark, begins=begins)


def _as_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _checksum(body: bytes) -> bytes:
    """The first line of an index: without it, a shortened one would hide what its parts hold."""
    return json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


def _indexed(line: str) -> str:
    """What a later try needs of a receipt."""
    receipt = json.loads(line)
    names = ("digest", "status", "before", *(("url", "error") if receipt.get("status") == "unknown" else ()))
    return json.dumps({name: receipt[name] for name in names if name in receipt})


def _first_damaged_line(content: bytes, add: Callable[[Any], None]) -> int | None:
    for number, line in enumerate(content.splitlines() or [b""], 1):  # no part is written without lines
        try:
            add(json.loads(line))
        except DAMAGES:
            return number
    return None


def _read_all(folder: Folder, names: list[str]) -> Iterator[bytes]:
    """The contents of files, in order, read ahead by daemon threads.

    Each failed read is retried by itself: among thousands one always fails, and restarting all of them would never finish.
    """
    retrying = Retrying(stop=stop_after_attempt(_READ_ATTEMPTS), wait=wait_random_exponential(0.1, max=1), reraise=True)
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    room = threading.Semaphore(2 * _READERS)  # limits reading ahead: the parts of a large batch do not fit into memory
    done: list[queue.SimpleQueue[bytes | BaseException]] = [queue.SimpleQueue() for _ in names]

    def work() -> None:
        while room.acquire():
            try:
                number = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done[number].put(retrying(folder.read, names[number]) or b"")
            except BaseException as error:  # noqa: BLE001  (raised below, in the calling thread)
                done[number].put(error)

    for number in range(len(names)):
        todo.put(number)
    for _ in range(min(_READERS, len(names))):
        threading.Thread(target=work, name="cloudstore-receipts", daemon=True).start()
    for result in done:
        content = result.get()
        if isinstance(content, BaseException):
            raise content
        room.release()
        yield content
