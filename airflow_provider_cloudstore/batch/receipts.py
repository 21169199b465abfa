"""A record of what became of every URL, in a folder: JSON Lines in parts, and a mark that says which try writes them.

Object stores have no append, so each part is a file of its own, whole or absent. A part is named by its batch, its try, the
process that wrote it and its number: no two can meet, however many batches share a folder.
"""

from __future__ import annotations

import hashlib
import json
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

from tenacity import Retrying, stop_after_attempt, wait_random_exponential

from airflow_provider_cloudstore.protocol.errors import BatchSupersededError, InvalidInputError, ReceiptsLostError

_READERS = 32
_READ_ATTEMPTS = 5
# Here a folder is nothing but the beginning of a name: it need not be made, and making it could make a bucket.
_WITHOUT_FOLDERS = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "wasb", "wasbs", "oss", "obs", "oci", "memory", "r2", "b2"}
)


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a batch, in one process.

    :param scope: what batch it is: DAG, run, task and map index.
    :param number: the try, counted from 1.
    :param process: differs when the same try is run twice.
    """

    scope: tuple[str, ...] = ()
    number: int = 1
    process: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def batch(self) -> str:
        """A short name of the batch for file names."""
        return hashlib.blake2b("\0".join(self.scope).encode(), digest_size=6).hexdigest()

    def to_mark(self) -> dict[str, Any]:
        """As JSON can hold it: what each checkpoint says about who wrote it."""
        return asdict(self) | {"scope": list(self.scope)}

    def validate(self, mark: Any, *, begins: bool = False) -> None:
        """Stop unless this try is the newest that has left a mark.

        :param mark: what :meth:`to_mark` of the last writer returned, or nothing.
        :param begins: whether this process begins now: then it takes over from another process of the same try.
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
    """What is needed of a place for files; every method blocks."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None where there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, so that it is whole or absent."""

    def names(self) -> list[str]:
        """The names in it; none where it does not exist yet."""


class PathFolder:
    """A folder on a path: a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``.

    :param path: the folder, which need not exist.
    """

    def __init__(self, path: Any) -> None:
        self._path = path
        self._local = getattr(path, "protocol", "file") in ("", "file", "local")

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None where there is none."""
        self._forget_listings()
        try:
            with (self._path / name).open("rb") as source:
                return bytes(source.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and create the folder in a store that has folders.

        :raises InvalidInputError: if the folder cannot be created.
        """
        try:
            self._write(name, content)
        except (FileNotFoundError, NotADirectoryError):
            if getattr(self._path, "protocol", "file") in _WITHOUT_FOLDERS:
                raise
        else:
            return
        problem = ""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
            problem = error.strerror or type(error).__name__
        if problem:
            raise InvalidInputError(f"the receipts folder {self._path} cannot be created ({problem})")
        self._write(name, content)

    def names(self) -> list[str]:
        """The names in it; none where it does not exist yet."""
        self._forget_listings()
        try:
            return [PurePosixPath(str(path)).name for path in self._path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _write(self, name: str, content: bytes) -> None:
        path = self._path / name
        if self._local:
            # A local file grows while it is written; a rename is at once. An object appears when it is closed.
            unfinished = self._path / f".{name}.{uuid.uuid4().hex[:8]}"
            _fill(unfinished, content)
            unfinished.replace(path)
        else:
            _fill(path, content)

    def _forget_listings(self) -> None:
        """Other tries write here: what fsspec remembers of the folder may be old."""
        forget = getattr(getattr(self._path, "fs", None), "invalidate_cache", None)
        if forget and not self._local:
            forget()


def _fill(path: Any, content: bytes) -> None:
    with path.open("wb") as sink:
        sink.write(content)


class Receipts:
    """The receipts of one batch, written by one try. Its methods block; one thread at a time writes.

    :param folder: where they are, or will be.
    :param writer: who writes.
    :param place: where the folder is, for messages.
    """

    def __init__(self, folder: Folder, writer: Try, place: str = "") -> None:
        self.place = place
        self._folder = folder
        self._writer = writer
        self._mark = f"batch-{writer.batch}.json"
        self._number = 0

    def begin(self) -> None:
        """Leave the mark of this try, which stops any older one.

        :raises BatchSupersededError: if a newer one has left its own.
        """
        self._validate(begins=True)
        self._folder.write(self._mark, json.dumps(self._writer.to_mark()).encode())

    def read(self, take: Callable[[dict[str, Any]], None], since: int = 0) -> None:
        """Read the receipts of earlier tries, many parts at once: on an object store each takes a while.

        :param take: is given each receipt, in the order in which they were written.
        :param since: the first try that counts.
        """
        part = re.compile(rf"part-{self._writer.batch}-(\d{{4,}})-[0-9a-f]+-\d{{8,}}\.jsonl")
        found = ((part.fullmatch(name), name) for name in self._folder.names())
        names = sorted((int(match.group(1)), name) for match, name in found if match and int(match.group(1)) >= since)
        for content in _read_all(self._folder, [name for _, name in names]):
            for line in content.splitlines():
                take(json.loads(line))

    def write(self, lines: list[str]) -> None:
        """Write a part, once it is certain that no newer try is at work. To be called again with the same lines if it fails.

        :param lines: the receipts as JSON; with none there is nothing to write, and the mark is looked at all the same.
        :raises BatchSupersededError: if a newer try has taken over.
        :raises ReceiptsLostError: if the mark of this one is gone.
        """
        self._validate()
        if lines:
            name = f"part-{self._writer.batch}-{self._writer.number:04d}-{self._writer.process}-{self._number:08d}.jsonl"
            self._folder.write(name, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
            self._number += 1

    def _validate(self, *, begins: bool = False) -> None:
        content = self._folder.read(self._mark)
        if content is None and not begins:
            what = f"the receipts folder {self.place} was removed or emptied while the batch ran"
            raise ReceiptsLostError(what, operation="batch upload")
        try:
            mark = json.loads(content or b"null")
        except ValueError:
            mark = None  # of nobody who could be newer: a mark is written whole
        self._writer.validate(mark, begins=begins)


def _read_all(folder: Folder, names: list[str]) -> Iterator[bytes]:
    """The contents of files, in order, read ahead by threads that do not keep a process from ending.

    A read that fails is repeated here: of thousands, one always fails, and to begin anew with all of them would never end.
    """
    again = Retrying(stop=stop_after_attempt(_READ_ATTEMPTS), wait=wait_random_exponential(0.1, max=1), reraise=True)
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    room = threading.Semaphore(2 * _READERS)  # how far ahead: the parts of a large batch do not fit into memory
    done: list[queue.SimpleQueue[bytes | BaseException]] = [queue.SimpleQueue() for _ in names]

    def work() -> None:
        while room.acquire():
            try:
                number = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done[number].put(again(folder.read, names[number]) or b"")
            except BaseException as error:  # noqa: BLE001  (raised below, in the thread that asked)
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
