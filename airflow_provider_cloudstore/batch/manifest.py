"""Reads a batch's URLs from a list, or from a manifest: text with a URL a line, CSV or JSON Lines.

A file that cannot be read reliably to its end is refused, with its name and line, before anything is sent.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from airflow_provider_cloudstore.exceptions import BatchInterruptedError, CloudStoreError, InvalidInputError

MAX_LINE_LENGTH = 128 * 1024  # characters, with its end
_GZIP = b"\x1f\x8b"
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_CSV_NAME = re.compile(r"\.(csv|tsv|tab)(\.gz|\.gzip)?$", re.IGNORECASE)
_DELIMITERS = ",\t;"


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, or the reason why a line has none.

    :param line: the line in the file, or the position in the list, counted from 1.
    :param url: the URL, not yet validated; it may hold credentials.
    :param problem: why the line holds no URL.
    :param lines: how many lines of the file it takes: a quoted value of a CSV may hold line breaks.
    """

    line: int
    url: Any = field(repr=False, default=None)
    problem: str = ""
    lines: int = 1

    @property
    def digest(self) -> bytes:
        """Its identity in receipts: the SHA-256 of the URL exactly as in the manifest, in UTF-8.

        Of a line without a URL, that of its number.
        """
        text = f"line {self.line}" if self.problem else str(self.url)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


Manifest = Callable[[], Iterator[Entry]]
"""Its entries from the beginning, each time it is called. One reading ends where the next begins."""


def list_manifest(urls: Sequence[Any]) -> Manifest:
    """A list of URLs as a manifest."""
    return lambda: (Entry(line, url) for line, url in enumerate(urls, 1))


class FileManifest:
    """A manifest in a file, copied as it is to a temporary file without a name: what is counted is what is sent.

    The first line that is neither blank nor a ``#`` comment shows the format; ``.csv``, ``.tsv`` and ``.tab`` must have a header.
    Reading the entries raises ``InvalidInputError`` if the file cannot be read to its end; the message repeats nothing of it.

    :param path: the file, plain or gzip; opening and reading it blocks.
    :param name: its path as text, for messages.
    :param column: the column of a CSV, or the key in JSON, that holds the URL.
    :raises InvalidInputError: if it is not a file.
    :raises BatchInterruptedError: if it cannot be copied, which may pass.
    """

    def __init__(self, path: Any, name: str, column: str) -> None:
        self._name = name
        self._column = column
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115  (closed below)
        weakref.finalize(self, self._copy.close)
        failed: CloudStoreError  # raised below: the text of a store's own error may hold credentials
        try:
            with path.open("rb") as source:
                shutil.copyfileobj(source, self._copy)
            self._copy.flush()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            failed = self._refused("does not exist, or is a folder: urls is a list, or the path of one file")
        except Exception as error:  # noqa: BLE001  (of any store)
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
            what = f"the manifest {name} cannot be copied to this worker's folder for temporary files ({reason})"
            failed = BatchInterruptedError(what, operation="batch upload", cause="store")
        else:
            return
        raise failed

    def __call__(self) -> Iterator[Entry]:
        """Read its entries from the beginning."""
        try:
            lines = self._lines(io.TextIOWrapper(self._open(), "utf-8-sig", "surrogateescape"))
            for number, line in lines:
                if (bare := line.strip()) and not bare.startswith("#"):
                    yield from self._read(bare, chain([(number, line)], lines))
            return
        except (EOFError, gzip.BadGzipFile, zlib.error):
            damaged = self._refused("is gzip, but damaged or cut short")
        raise damaged

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"the manifest {self._name} {what}; nothing was sent")

    def _open(self) -> Any:
        self._copy.seek(0)
        content: Any = open(self._copy.fileno(), "rb", closefd=False)  # noqa: SIM115  (the copy stays open for the next reading)
        return gzip.GzipFile(fileobj=content) if content.peek(2).startswith(_GZIP) else content

    def write(self, chosen: Iterable[Entry], target: Any) -> None:
        """Write the lines of some entries as they are, after what precedes the first one: a header. Gzip stays gzip."""
        first = next((entry.line for entry in self()), sys.maxsize)
        wanted = {entry.line + more for entry in chosen for more in range(entry.lines)}
        content = self._open()
        is_gzip = isinstance(content, gzip.GzipFile)
        with gzip.GzipFile(fileobj=target, mode="wb", mtime=0) if is_gzip else nullcontext(target) as file:
            for number, line in enumerate(io.TextIOWrapper(content, "utf-8", "surrogateescape", newline=""), 1):
                if number < first or number in wanted:
                    file.write(line.encode("utf-8", "surrogateescape"))

    def _lines(self, text: io.TextIOWrapper) -> Iterator[tuple[int, str]]:
        number = 0
        while line := text.readline(MAX_LINE_LENGTH + 1):
            number += 1
            if len(line) > MAX_LINE_LENGTH:
                raise self._refused(f"has a line {number} that is longer than {MAX_LINE_LENGTH // 1024} KiB")
            yield number, line

    def _read(self, first: str, lines: Iterator[tuple[int, str]]) -> Iterator[Entry]:
        is_csv = _CSV_NAME.search(self._name)
        if not is_csv and _URL.match(first):
            return (Entry(number, url) for number, line in lines if (url := line.strip()) and not url.startswith("#"))
        if first.startswith("{") or (not is_csv and _URL.match(first[1:])):
            return (
                self._json_entry(number, text) for number, line in lines if (text := line.strip()) and not text.startswith("#")
            )
        return self._csv(first, lines)

    def _json_entry(self, number: int, line: str) -> Entry:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return Entry(number, problem="the line is not JSON")
        if isinstance(row, str):
            return Entry(number, row)
        if not isinstance(row, dict) or self._column not in row:
            return Entry(number, problem=f"the line has no key '{self._column}'")
        return Entry(number, row[self._column])

    def _csv(self, first: str, lines: Iterator[tuple[int, str]]) -> Iterator[Entry]:
        headers = {delimiter: [_plain(title) for title in first.replace('"', "").split(delimiter)] for delimiter in _DELIMITERS}
        delimiter = next((one for one in _DELIMITERS if headers[one].count(_plain(self._column)) == 1), "")
        if not delimiter:
            csv_like = f"CSV whose header names the column '{self._column}' once (url_column names another)"
            raise self._refused(f"is neither text with a URL a line, nor JSON Lines, nor {csv_like}, in UTF-8")
        begin = next(lines)[0]
        header, end = headers[delimiter], begin
        reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
        try:
            for row in reader:
                if any("://" in line for value in row for line in value.splitlines()[1:]):
                    raise csv.Error("a quoted value holds whole rows")
                start, end = end + 1, begin + reader.line_num
                if row:
                    yield self._csv_entry(start, row, header, end - start + 1)
        except csv.Error as error:
            problem = f"is not valid CSV (RFC 4180) from line {end + 1} on: {error}"
        else:
            return
        raise self._refused(f"{problem}; quote values whole, and double the quotes in them")

    def _csv_entry(self, line: int, row: list[str], header: list[str], lines: int) -> Entry:
        if len(row) > len(header):  # an unquoted delimiter may have cut the URL
            problem = f"the line has {len(row):,} fields and the header {len(header):,}: quote values that hold the delimiter"
            return Entry(line, None, problem, lines)
        if url := dict(zip(header, row, strict=False)).get(_plain(self._column)):
            return Entry(line, url, lines=lines)
        return Entry(line, None, f"the line has no value in column '{self._column}'", lines)


def _plain(title: str) -> str:
    """The title of a column, which may differ in case and spaces."""
    return title.strip().lower()
