"""Reads a batch's URLs from a list, or from a manifest: text with a URL a line, CSV, JSON Lines, or a URL list for transfers.

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
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from airflow_provider_cloudstore.exceptions import BatchInterruptedError, CloudStoreError, InvalidInputError

MAX_LINE_LENGTH = 128 * 1024  # characters, with its end
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks, as Windows writes them
_OTHER_FORMATS = {
    b"PK\x03\x04": "zip, such as an Excel workbook",
    b"%PDF": "PDF",
    b"PAR1": "Parquet",
    _GZIP: "gzip in gzip",
}
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_CSV_NAME = re.compile(r"\.[ct]sv(\.gz)?$", re.IGNORECASE)
_DELIMITERS = ",\t;"
_NO_DELIMITER = "\x1f"  # no text has one, and the csv module needs one
_URL_LIST = "TsvHttpData-1.0"  # of Google's Storage Transfer Service: the first line, before rows without a header


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, not yet validated, or the reason why a line has none."""

    line: int
    """In the file, or the position in the list, counted from 1."""
    url: Any = field(repr=False, default=None)
    problem: str = ""

    @property
    def digest(self) -> bytes:
        """Its identity in receipts: the SHA-256 of the URL exactly as in the manifest, in UTF-8.

        Of a line without a URL, that of its number.
        """
        text = f"line {self.line}" if self.problem else str(self.url)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


Manifest = Callable[[], Iterator[Entry]]
"""Its entries from the beginning, each time it is called. One reading ends where the next begins."""


def list_manifest(urls: Sequence[Any], column: str = "url") -> Manifest:
    """A list as a manifest: of URLs, or of the rows of a query, whose only value or named field is one."""
    return lambda: (_entry(line, row, column) for line, row in enumerate(urls, 1))


def _entry(line: int, row: Any, column: str) -> Entry:
    problem = ""
    if isinstance(row, Mapping):
        problem = "" if column in row else f"the line has no key '{column}'"
        row = row.get(column)
    elif isinstance(row, (list, tuple)):
        problem = "" if len(row) == 1 else f"the row has {len(row):,} values: select the URL alone"
        row = row[0] if row else None
    if not problem and isinstance(row, (Mapping, list, tuple)):
        problem = f"the URL is a {type(row).__name__}"
    return Entry(line, problem=problem) if problem else Entry(line, row)


class FileManifest:
    """A manifest in a file, copied as it is to a temporary file without a name: what is counted is what is sent.

    The first line that is neither blank nor a ``#`` comment shows the format; ``.csv`` and ``.tsv`` must have a header. Reading
    the entries raises ``InvalidInputError`` if the file cannot be read to its end; the message repeats nothing of it.

    :param column: the column of a CSV (without case), or the key in JSON, that holds the URL.
    :raises InvalidInputError: if it is not a file.
    :raises BatchInterruptedError: if it cannot be copied, which may pass.
    """

    def __init__(self, path: Any, name: str, column: str) -> None:
        self._name = name
        self._column = column
        self._copy = _temporary_file()
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
            failed = BatchInterruptedError(what, operation="batch upload", ended_by="store")
        else:
            return
        raise failed

    def __call__(self) -> Iterator[Entry]:
        """Read its entries from the beginning."""
        parse: Callable[[int, str], Entry] | None = None
        number = 0
        try:
            for number, line in self.lines():
                text = line.strip()
                if not text or (text.startswith("#") and not isinstance(parse, _Csv)):
                    continue
                if parse is None:
                    parse = self._parser(text)
                    if isinstance(parse, _Csv):
                        continue  # the first line is no row
                yield parse(number, line)
            return
        except (EOFError, gzip.BadGzipFile, zlib.error):
            what = "is gzip, but damaged or cut short"
        except UnicodeDecodeError:
            what = "is UTF-16, but damaged or cut short"
        except csv.Error as error:
            what = f"is not valid CSV in line {number} ({error}): a row takes one line, and quotes enclose whole values"
        raise self._refused(what)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Read its lines from the beginning, with their numbers; bytes that are not UTF-8 become surrogates."""
        number, text = 0, self._text()
        while line := text.readline(MAX_LINE_LENGTH + 1):
            number += 1
            if len(line) > MAX_LINE_LENGTH:
                raise self._refused(f"has a line {number} that is longer than {MAX_LINE_LENGTH // 1024} KiB")
            yield number, line

    def _text(self) -> io.TextIOWrapper:
        self._copy.seek(0)
        content: Any = open(self._copy.fileno(), "rb", closefd=False)  # noqa: SIM115  (the copy stays open for the next reading)
        if content.peek(2).startswith(_GZIP):
            content = gzip.GzipFile(fileobj=content)
        start = content.peek(4)
        is_utf_16 = start.startswith(_UTF_16)
        binary = "binary data, or like UTF-16 without its mark" if b"\0" in start and not is_utf_16 else ""
        if looks := next((name for magic, name in _OTHER_FORMATS.items() if start.startswith(magic)), binary):
            raise self._refused(f"looks like {looks}: export the URLs as text, CSV or JSON Lines")
        encoding, errors = ("utf-16", "strict") if is_utf_16 else ("utf-8-sig", "surrogateescape")
        return io.TextIOWrapper(content, encoding, errors, newline="")  # a line ends with LF, CR LF or, from old tools, CR

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"the manifest {self._name} {what}")

    def _parser(self, first: str) -> Callable[[int, str], Entry]:
        if _URL.match(first) and not _CSV_NAME.search(self._name):
            return lambda number, line: Entry(number, line.strip())
        if first.startswith("{"):
            return self._json_entry
        if first == _URL_LIST:
            return _Csv(["url", "size", "MD5"], "\t", "url")
        with suppress(csv.Error):
            for delimiter in _DELIMITERS:
                header = [title.strip() for title in next(csv.reader([first], delimiter=delimiter))]
                found = [title for title in header if title.lower() == self._column.lower()]
                if len(found) == 1:
                    return _Csv(header, delimiter if len(header) > 1 else _NO_DELIMITER, found[0])
        csv_like = f"a list for transfers ({_URL_LIST}), nor CSV whose header names the column '{self._column}' once"
        raise self._refused(
            f"is neither text with a URL a line, nor JSON Lines, nor {csv_like} (url_column names another), in UTF-8"
        )

    def _json_entry(self, number: int, line: str) -> Entry:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return Entry(number, problem="the line is not JSON")
        return _entry(number, row, self._column)


@dataclass(frozen=True, slots=True)
class _Csv:
    """Parses rows of one line each: where a value may hold line breaks, a stray quote swallows rows."""

    header: list[str]
    delimiter: str
    column: str

    def __call__(self, number: int, line: str) -> Entry:
        row = next(csv.reader([line], delimiter=self.delimiter, strict=True))
        if len(row) > len(self.header):  # an unquoted delimiter may have cut the URL
            problem = (
                f"the line has {len(row):,} fields and the header {len(self.header):,}: quote values that hold the delimiter"
            )
            return Entry(number, problem=problem)
        if url := dict(zip(self.header, row, strict=False)).get(self.column):
            return Entry(number, url)
        return Entry(number, problem=f"the line has no value in column '{self.column}'")


def _temporary_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        reason = error.strerror or type(error).__name__
    what = f"this worker has no folder for temporary files, into which the manifest is copied ({reason})"
    advice = "Set TMPDIR to a folder that the worker may write, and clear the task."
    raise BatchInterruptedError(what, operation="batch upload", ended_by="store", advice=advice)
