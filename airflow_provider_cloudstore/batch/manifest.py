"""Reads a batch's URLs from a list or a manifest: text with one URL per line, CSV, JSON Lines, or a Storage Transfer URL list.

A file that cannot be read to its end is refused before anything is sent; a line without a URL counts as failed.
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
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cloudstore.exceptions import BatchInterruptedError, InvalidInputError

_GZIP = b"\x1f\x8b"
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_CSV_NAME = re.compile(r"\.[ct]sv(\.gz)?$", re.IGNORECASE)
_DELIMITERS = ",\t;"
_URL_LIST = "TsvHttpData-1.0"  # first line of a URL list for Google's Storage Transfer Service; its rows have no header


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, not yet validated, or the reason why a line has no URL."""

    line: int
    """The line in the file, or the position in the list, counted from 1."""
    url: Any = field(repr=False, default=None)
    problem: str = ""

    @property
    def digest(self) -> bytes:
        """The entry's identity in receipts: the SHA-256 of the URL exactly as in the manifest, in UTF-8.

        For a line without a URL, it is the SHA-256 of the text ``line``, a space and the line's number.
        """
        text = f"line {self.line}" if self.problem else str(self.url)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


Manifest = Callable[[], Iterator[Entry]]
"""Each call reads the entries from the beginning; it ends the reading that an earlier call began."""


def list_manifest(urls: Sequence[Any], column: str = "url") -> Manifest:
    """Return a list as a manifest. An item is a URL, or a query's row with the URL as its only value or in ``column``."""
    return lambda: (_entry(line, row, column) for line, row in enumerate(urls, 1))


def _entry(line: int, row: Any, column: str) -> Entry:
    if isinstance(row, Mapping):
        return Entry(line, row[column]) if column in row else Entry(line, problem=f"the line has no key '{column}'")
    if not isinstance(row, (list, tuple)):
        return Entry(line, row)
    return Entry(line, row[0]) if len(row) == 1 else Entry(line, problem=f"the row has {len(row):,} values: select one")


class FileManifest:
    """A manifest in a file. It is copied to an unnamed temporary file, so that the URLs counted are the URLs sent.

    The first line that is neither blank nor a ``#`` comment shows the format; ``.csv`` and ``.tsv`` must have a header. Reading
    the entries raises ``InvalidInputError`` if the file cannot be read to its end; the message repeats nothing of the file.

    :param column: the column of a CSV (case-insensitive), or the key in JSON, that holds the URL.
    :raises InvalidInputError: if the path is not that of a file.
    :raises BatchInterruptedError: if the file cannot be copied, which may be temporary.
    """

    def __init__(self, path: Any, name: str, column: str) -> None:
        self._name = name
        self._column = column
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115  (it stays open for the readings)
        weakref.finalize(self, self._copy.close)
        try:
            with path.open("rb") as source:
                shutil.copyfileobj(source, self._copy)
            self._copy.flush()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._refused("does not exist, or is a folder: urls is a list, or the path of one file") from None
        except Exception as error:  # noqa: BLE001  (from any store; its message may hold credentials)
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
            what = f"the manifest {name} cannot be copied to this worker's folder for temporary files ({reason})"
            raise BatchInterruptedError(what, operation="batch upload") from None

    def __call__(self) -> Iterator[Entry]:
        """Read the entries from the beginning."""
        parse: Callable[[int, str], Entry] | None = None
        for number, line in self.lines():
            text = line.strip()
            if not text or (text.startswith("#") and not isinstance(parse, _Csv)):
                continue
            if parse is None:
                parse = self._parser(text)
                if isinstance(parse, _Csv):
                    continue  # the first line is not a row
            yield parse(number, line)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Read the lines from the beginning, with their numbers; bytes that are not UTF-8 become surrogates."""
        try:
            yield from enumerate(self._text(), 1)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise self._refused("is gzip, but damaged or cut short") from None

    def _text(self) -> io.TextIOWrapper:
        self._copy.seek(0)
        content: Any = open(self._copy.fileno(), "rb", closefd=False)  # noqa: SIM115  (the copy stays open for the next reading)
        if content.peek(2).startswith(_GZIP):
            content = gzip.GzipFile(fileobj=content)
        return io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="")  # lines keep their own endings

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"the manifest {self._name} {what}")

    def _parser(self, first: str) -> Callable[[int, str], Entry]:
        if _URL.match(first) and not _CSV_NAME.search(self._name):
            return lambda number, line: Entry(number, line.strip())
        if first.startswith("{"):
            return self._json_entry
        if first == _URL_LIST:
            return _Csv(["url", "size", "MD5"], "\t", "url")
        for delimiter in _DELIMITERS:
            header = [title.strip() for title in next(csv.reader([first], delimiter=delimiter))]
            found = [title for title in header if title.lower() == self._column.lower()]
            if len(found) == 1:
                return _Csv(header, delimiter, found[0])
        csv_like = f"CSV whose header names the column '{self._column}' once (url_column names another)"
        raise self._refused(f"is neither text with a URL a line, nor JSON Lines, nor {csv_like}, in UTF-8, plain or gzip")

    def _json_entry(self, number: int, line: str) -> Entry:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return Entry(number, problem="the line is not JSON")
        return _entry(number, row, self._column)


@dataclass(frozen=True, slots=True)
class _Csv:
    """Parses rows of one line each. Values cannot hold line breaks, because then a stray quote would swallow rows."""

    header: list[str]
    delimiter: str
    column: str

    def __call__(self, number: int, line: str) -> Entry:
        try:
            row = next(csv.reader([line], delimiter=self.delimiter, strict=True))
        except csv.Error as error:
            return Entry(number, problem=f"the line is not valid CSV ({error}): a row takes one line")
        if len(row) > len(self.header):  # an unquoted delimiter may have cut the URL
            more = f"{len(row):,} fields and the header {len(self.header):,}"
            return Entry(number, problem=f"the line has {more}: quote values that hold the delimiter")
        if url := dict(zip(self.header, row, strict=False)).get(self.column):
            return Entry(number, url)
        return Entry(number, problem=f"the line has no value in column '{self.column}'")
