"""Reads a batch's URLs from a list, or from a manifest: text with a URL a line, CSV or JSON Lines.

A manifest is copied to a local file without a name: what is counted is what is sent, and nothing of it can stay behind. A file
that cannot be read reliably to its end is refused, with its name and line, before anything is sent.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any, BinaryIO

from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, InvalidInputError

MAX_LINE_LENGTH = 128 * 1024
"""Characters of a line with its end."""
_BLOCK_SIZE = 256 * 1024
_GZIP = b"\x1f\x8b"
_BINARY = re.compile(rb"[\x00-\x08]")  # in the first bytes, as of UTF-16, .xlsx and gzip inside gzip
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_CSV_NAME = re.compile(r"\.(csv|tsv|tab)(\.gz|\.gzip)?$", re.IGNORECASE)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_TITLE = re.compile(r"[\w .()-]{1,40}")  # of a column, and no URL or part of one
_DELIMITERS = ",\t;"

_Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, or the reason why a line has none.

    :param line: the line in the file, or the position in the list, counted from 1.
    :param url: the URL, not yet validated; it may hold credentials.
    :param problem: why the line holds no URL.
    :param key: the manifest's own id of the line, where ``key_column`` names one.
    """

    line: int
    url: Any = field(repr=False, default=None)
    problem: str = ""
    key: Any = None


Manifest = Callable[[], Iterator[Entry]]
"""Its entries from the beginning, each time it is called. One reading ends where the next begins."""


def list_manifest(urls: Sequence[Any]) -> Manifest:
    """A list of URLs as a manifest."""
    return lambda: (Entry(line, url) for line, url in enumerate(urls, 1))


def spooled_manifest(source: BinaryIO, name: str, column: str, key_column: str | None = None) -> Manifest:
    """Copy a manifest as it is to the folder for temporary files; its format is found while it is read for the first time.

    The first line shows the format that is neither blank nor a ``#`` comment; ``.csv``, ``.tsv`` and ``.tab`` must have a header.
    Reading the entries raises ``InvalidInputError`` if the file cannot be read to its end; the message names the file, its format
    and its columns, and repeats nothing else of it.

    :param source: the file, plain or gzip; reading it blocks.
    :param name: its path.
    :param column: the column of a CSV, or the key in JSON, that holds the URL.
    :param key_column: the column or key with the manifest's own id of the line.
    :raises BatchInterruptedError: if it cannot be read to its end, or does not fit.
    """
    return _SpooledManifest(_spooled(source, name), name, column, key_column)


def _spooled(source: BinaryIO, name: str) -> IO[bytes]:
    try:
        copy = tempfile.TemporaryFile()  # noqa: SIM115  (it is closed with its manifest)
        for block in _blocks(source, name):
            copy.write(block)
        copy.flush()
        return copy
    except OSError as error:
        reason = error.strerror or type(error).__name__
    problem = f"the manifest {name} cannot be copied to {tempfile.tempdir or 'TMPDIR'} ({reason})"
    raise BatchInterruptedError(problem, operation="batch upload", cause="disk")


def _blocks(source: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        while block := source.read(_BLOCK_SIZE):
            yield block
        return
    except Exception as error:  # noqa: BLE001  (of any store; its text may hold credentials)
        reason = type(error).__name__
    problem = f"the manifest {name} cannot be read to its end ({reason})"
    raise BatchInterruptedError(problem, operation="batch upload", cause="store")


class _SpooledManifest:
    def __init__(self, copy: IO[bytes], name: str, column: str, key_column: str | None) -> None:
        self._copy = copy
        self._name = name
        self._column = column
        self._key_column = key_column
        weakref.finalize(self, copy.close)

    def __call__(self) -> Iterator[Entry]:
        with suppress(EOFError, gzip.BadGzipFile, zlib.error):
            yield from self._entries()
            return
        raise self._refused("is gzip, but damaged or cut short")

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"the manifest {self._name} {what}; nothing was sent")

    def _entries(self) -> Iterator[Entry]:
        self._copy.seek(0)
        content: Any = open(self._copy.fileno(), "rb", closefd=False)  # noqa: SIM115  (the copy stays open for the next reading)
        if content.peek(8).startswith(_GZIP):
            content = gzip.GzipFile(fileobj=content)
        if _BINARY.search(content.peek(8)[:8]):
            raise self._refused("is UTF-16, compressed or binary: a manifest is UTF-8 text, CSV or JSON Lines, plain or gzip")
        lines = _lines(io.TextIOWrapper(content, "utf-8-sig", "surrogateescape"))
        first = next((found for found in lines if not _is_blank(found[1])), None)
        if first is None:
            return
        parse, is_csv = self._parser(first[1].strip())
        for number, line in lines if is_csv else chain([first], lines):
            if line.isspace() or (_is_blank(line) and not is_csv):
                continue
            if len(line) > MAX_LINE_LENGTH:
                yield Entry(number, problem=f"the line is longer than {MAX_LINE_LENGTH // 1024} KiB")
            else:
                yield parse(number, line)

    def _parser(self, first: str) -> tuple[Callable[[int, str], Entry], bool]:
        """What turns a line into an entry, in the format that the first line shows; and whether that is the header of a CSV."""
        if first.startswith("{"):
            return self._json_entry, False
        if _URL.match(first) and not _CSV_NAME.search(self._name):
            if self._key_column:
                raise self._refused(f"is text with a URL a line, which has no column '{self._key_column}'")
            return lambda number, line: Entry(number, line.strip()), False
        headers = [(_header(first, delimiter), delimiter) for delimiter in _DELIMITERS]
        header, delimiter = max(headers, key=lambda found: (_plain(self._column) in found[0], len(found[0])))
        if _plain(self._column) not in header:
            if _JSON_STRING.fullmatch(first):
                return self._json_entry, False
            if first.startswith("["):
                raise self._refused("is a JSON array: write JSON Lines, one object or string a line, or pass the list as urls")
        return self._csv_parser(header, delimiter), True

    def _json_entry(self, number: int, line: str) -> Entry:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return Entry(number, problem="the line is not JSON")
        if isinstance(row, str):
            return Entry(number, row)
        if not isinstance(row, dict) or self._column not in row:
            return Entry(number, problem=f"the line has no key '{self._column}'")
        return Entry(number, row[self._column], key=row.get(self._key_column))

    def _csv_parser(self, header: list[str], delimiter: str) -> Callable[[int, str], Entry]:
        place = self._place(header, self._column)
        key_place = self._place(header, self._key_column) if self._key_column else None
        width = len(header)

        def parse(number: int, line: str) -> Entry:
            row = _split(line.removesuffix("\n"), delimiter)
            if not row:
                problem = "quote a value whole and on one line, and double quotes in it, or write JSON Lines"
                raise self._refused(f"has a stray quote in line {number}: {problem}")
            row += [""] * (width - len(row))
            problem = "" if row[place] else f"the line has no value in column '{self._column}'"
            if any(row[width:]) or (len(row) > width and place == width - 1):  # an unquoted delimiter may have cut the URL
                problem = f"the line has {len(row):,} fields and the header {width:,}: quote values that hold the delimiter"
            return Entry(number, None if problem else row[place], problem, None if key_place is None else row[key_place])

        return parse

    def _place(self, header: list[str], column: str) -> int:
        if header.count(_plain(column)) == 1:
            return header.index(_plain(column))
        titles = ", ".join(repr(title) for title in header[:20] if _TITLE.fullmatch(title))
        mend = (
            f"set url_column or key_column to one of its columns, which are {titles}" if titles else "its first line is no header"
        )
        raise self._refused(
            f"is neither JSON Lines, nor text with a URL a line, nor CSV whose header names the column '{column}' once: {mend}"
        )


def _lines(text: io.TextIOWrapper) -> _Lines:
    """The lines with their numbers; of a line beyond the limit, just more than the limit."""
    number = 0
    while line := text.readline(MAX_LINE_LENGTH + 1):
        number += 1
        yield number, line
        while len(line) > MAX_LINE_LENGTH and not line.endswith("\n"):
            line = text.readline(MAX_LINE_LENGTH + 1)


def _is_blank(line: str) -> bool:
    """Whether a line is blank or a comment; a row of a CSV may begin like one."""
    return line.isspace() or line.lstrip().startswith("#")


def _split(line: str, delimiter: str) -> list[str]:
    """The fields of a row that is one line; none if a quote is stray."""
    with suppress(csv.Error):
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    return []


def _header(line: str, delimiter: str) -> list[str]:
    return [_plain(title) for title in _split(line, delimiter)]


def _plain(title: str) -> str:
    """The name of a column: it may differ in case and spaces."""
    return title.strip().lower()
