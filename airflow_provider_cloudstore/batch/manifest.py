"""Reads a batch's URLs from a list, or from a manifest: text with a URL a line, CSV or JSON Lines.

A file that cannot be read reliably to its end is refused, with its name and line, before anything is sent.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any, BinaryIO

from airflow_provider_cloudstore.batch.spool import spooled
from airflow_provider_cloudstore.protocol.errors import InvalidInputError

MAX_LINE_LENGTH = 128 * 1024
"""Characters of a line with its end, and of a row of a CSV."""
_TOO_LONG = f"longer than {MAX_LINE_LENGTH // 1024} KiB"
_GZIP = b"\x1f\x8b"
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_CSV_NAME = re.compile(r"\.(csv|tsv|tab)(\.gz|\.gzip)?$", re.IGNORECASE)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_TITLE = re.compile(r"[\w .()-]{1,40}")  # of a column, and no URL or part of one
_DELIMITERS = ",\t;"
# A row of RFC 4180: Python's parser accepts quotes within values, too.
_FIELD = '(?:"(?:[^"]++|"")*+"|[^"{0}]*+)'
_ROWS = {delimiter: re.compile(f"{_FIELD}(?:{{0}}{_FIELD})*+".format(delimiter)) for delimiter in _DELIMITERS}

_Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, or the reason why a line has none.

    :param line: the line in the file, or the position in the list, counted from 1.
    :param url: the URL, not yet validated; it may hold credentials.
    :param problem: why the line holds no URL.
    :param key: the manifest's own id of the line, where ``key_column`` names one.
    :param lines: how many lines of the file it takes: a quoted value of a CSV may hold line breaks.
    """

    line: int
    url: Any = field(repr=False, default=None)
    problem: str = ""
    key: Any = None
    lines: int = 1


Manifest = Callable[[], Iterator[Entry]]
"""Its entries from the beginning, each time it is called. One reading ends where the next begins."""


def list_manifest(urls: Sequence[Any]) -> Manifest:
    """A list of URLs as a manifest."""
    return lambda: (Entry(line, url) for line, url in enumerate(urls, 1))


def spooled_manifest(source: BinaryIO, name: str, column: str, key_column: str | None = None) -> SpooledManifest:
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
    return SpooledManifest(spooled(source, name), name, column, key_column)


class SpooledManifest:
    """A manifest in a file; see :func:`spooled_manifest`."""

    def __init__(self, copy: IO[bytes], name: str, column: str, key_column: str | None) -> None:
        self._copy = copy
        self._name = name
        self._column = column
        self._key_column = key_column
        weakref.finalize(self, copy.close)

    def __call__(self) -> Iterator[Entry]:
        """Read its entries from the beginning."""
        with suppress(EOFError, gzip.BadGzipFile, zlib.error):
            yield from self._entries()
            return
        raise self._refused("is gzip, but damaged or cut short")

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"the manifest {self._name} {what}; nothing was sent")

    def _open(self) -> Any:
        self._copy.seek(0)
        content: Any = open(self._copy.fileno(), "rb", closefd=False)  # noqa: SIM115  (the copy stays open for the next reading)
        return gzip.GzipFile(fileobj=content) if content.peek(8).startswith(_GZIP) else content

    def write(self, chosen: Iterable[Entry], target: Any) -> None:
        """Write the lines of some of its entries as they are, after what precedes the first entry, such as a header.

        :param chosen: the entries.
        :param target: a binary file; gzip is written if the manifest is gzip.
        """
        first = next((entry.line for entry in self()), sys.maxsize)
        content = self._open()
        wanted = {entry.line + more for entry in chosen for more in range(entry.lines)}
        with (
            gzip.GzipFile(fileobj=target, mode="wb", mtime=0)
            if isinstance(content, gzip.GzipFile)
            else nullcontext(target) as file
        ):
            for number, line in enumerate(io.TextIOWrapper(content, "utf-8", "surrogateescape", newline=""), 1):
                if number < first or number in wanted:
                    file.write(line.encode("utf-8", "surrogateescape"))

    def _entries(self) -> Iterator[Entry]:
        content = self._open()
        if b"\0" in content.peek(8):
            raise self._refused("is binary or UTF-16: a manifest is UTF-8 text, CSV or JSON Lines, plain or gzip")
        lines = _lines(io.TextIOWrapper(content, "utf-8-sig", "surrogateescape"))
        for number, line in lines:
            if (bare := line.strip()) and not bare.startswith("#"):
                return self._read(bare, chain([(number, line)], lines))
        return iter(())

    def _read(self, first: str, lines: _Lines) -> Iterator[Entry]:
        """The entries, in the format that the first line shows."""
        if first.startswith("{"):
            return self._json_lines(lines)
        if _URL.match(first) and not _CSV_NAME.search(self._name):
            return self._text(lines)
        headers = [([_plain(title) for title in _split(first, delimiter)], delimiter) for delimiter in _DELIMITERS]
        header, delimiter = max(headers, key=lambda found: (_plain(self._column) in found[0], len(found[0])))
        if _plain(self._column) not in header:
            if _JSON_STRING.fullmatch(first):
                return self._json_lines(lines)
            if first.startswith("["):
                raise self._refused("is a JSON array: write JSON Lines, one object or string a line, or pass the list as urls")
        return self._csv(lines, header, delimiter)

    def _text(self, lines: _Lines) -> Iterator[Entry]:
        if self._key_column:
            raise self._refused(f"is text with a URL a line, which has no column '{self._key_column}'")
        count, ends = 0, {",", ";"}
        for number, line in lines:
            url = line.strip()
            if len(line) > MAX_LINE_LENGTH:
                yield Entry(number, problem=f"the line is {_TOO_LONG}")
            elif url and not url.startswith("#"):
                count += 1
                ends = ends and {end for end in ends if end in url and "/" not in url.rpartition(end)[2]}
                yield Entry(number, url)
        if ends and count > 1:
            raise self._refused(
                f"looks like CSV without a header, because each line has a value after '{min(ends)}': add a header with the "
                f"column '{self._column}', or if the URLs end like this, write JSON Lines"
            )

    def _json_lines(self, lines: _Lines) -> Iterator[Entry]:
        for number, line in lines:
            if len(line) > MAX_LINE_LENGTH:
                yield Entry(number, problem=f"the line is {_TOO_LONG}")
            elif (text := line.strip()) and not text.startswith("#"):
                yield self._json_entry(number, text)

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

    def _csv(self, lines: _Lines, header: list[str], delimiter: str) -> Iterator[Entry]:
        place = self._place(header, self._column)
        key_place = self._place(header, self._key_column) if self._key_column else None
        width, rows = len(header), self._rows(lines)
        next(rows)
        for first, last, text in rows:
            row = _split(text, delimiter)
            if not row:
                raise self._refused(f"is not valid CSV (RFC 4180) in line {first}: quote a value whole, and double quotes in it")
            if last > first and _holds_rows(row, width, delimiter):
                closed = f"that is closed only in line {last}, with rows in between; if it is meant, write JSON Lines"
                raise self._refused(f"has a quote in line {first} {closed}")
            row += [""] * (width - len(row))
            problem = "" if row[place] else f"the line has no value in column '{self._column}'"
            if any(row[width:]) or (len(row) > width and place == width - 1):  # an unquoted delimiter may have cut the URL
                problem = f"the line has {len(row):,} fields and the header {width:,}: quote values that hold the delimiter"
            key = None if key_place is None else row[key_place]
            yield Entry(first, None if problem else row[place], problem, key, last - first + 1)

    def _rows(self, lines: _Lines) -> Iterator[tuple[int, int, str]]:
        """The rows that are not blank, with their first and last line: a row with an open quote goes on in the next line."""
        for first, line in lines:
            if line.isspace():
                continue
            last, row = first, line
            if line.count('"') % 2:
                for last, more in lines:  # noqa: B007  (yielded below)
                    row += more
                    if more.count('"') % 2 or len(row) > MAX_LINE_LENGTH:
                        break
            if len(row) > MAX_LINE_LENGTH:
                raise self._refused(f"has a row in line {first} that is {_TOO_LONG}, or a quote that is not closed")
            yield first, last, row.removesuffix("\n")

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


def _split(row: str, delimiter: str) -> list[str]:
    """The fields of a row; none if its quotes are not those of RFC 4180."""
    if '"' not in row:
        return row.split(delimiter)
    return next(csv.reader([row], delimiter=delimiter)) if _ROWS[delimiter].fullmatch(row) else []


def _holds_rows(row: list[str], width: int, delimiter: str) -> bool:
    """Whether a quoted value contains rows: everything between two stray quotes is one value, and valid CSV."""
    return any("://" in line and line.count(delimiter) >= (width - 1) // 2 for value in row for line in value.splitlines()[1:])


def _plain(title: str) -> str:
    """The name of a column: it may differ in case and spaces."""
    return title.strip().lower()
