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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_provider_cloudstore.exceptions import BatchInterruptedError, CloudStoreError, InvalidInputError

MAX_LINE_LENGTH = 128 * 1024  # characters, with its end
_GZIP = b"\x1f\x8b"
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_CSV_NAME = re.compile(r"\.[ct]sv(\.gz)?$", re.IGNORECASE)
_MAX_BROKEN = 20  # lines that an error names
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


def list_manifest(urls: Sequence[Any]) -> Manifest:
    """A list of URLs as a manifest."""
    return lambda: (Entry(line, url) for line, url in enumerate(urls, 1))


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
            failed = BatchInterruptedError(what, operation="batch upload", ended_by="store")
        else:
            return
        raise failed

    def __call__(self) -> Iterator[Entry]:
        """Read its entries from the beginning."""
        parse: Callable[[int, str], Entry] | None = None
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
            refused = self._refused("is gzip, but damaged or cut short")
        except csv.Error as error:
            broken = [str(one) for one in islice(self._broken_lines(parse), _MAX_BROKEN + 1)]
            numbers = ", ".join(broken[:_MAX_BROKEN]) + (" and more" if len(broken) > _MAX_BROKEN else "")
            what = f"is not valid CSV in line {numbers} ({error})"
            refused = self._refused(f"{what}: a row takes one line, and quotes enclose whole values")
        raise refused

    def _broken_lines(self, parse: Any) -> Iterator[int]:
        """The numbers of all lines that cannot be parsed."""
        for number, line in self.lines():
            try:
                parse(number, line)
            except csv.Error:
                yield number

    def lines(self) -> Iterator[tuple[int, str]]:
        """Read its lines from the beginning, with their numbers; bytes that are not UTF-8 become surrogates."""
        self._copy.seek(0)
        content: Any = open(self._copy.fileno(), "rb", closefd=False)  # noqa: SIM115  (the copy stays open for the next reading)
        if content.peek(2).startswith(_GZIP):
            content = gzip.GzipFile(fileobj=content)
        text, number = io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="\n"), 0
        while line := text.readline(MAX_LINE_LENGTH + 1):
            number += 1
            if len(line) > MAX_LINE_LENGTH:
                raise self._refused(f"has a line {number} that is longer than {MAX_LINE_LENGTH // 1024} KiB")
            yield number, line

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
        if not isinstance(row, dict) or self._column not in row:
            return Entry(number, problem=f"the line has no key '{self._column}'")
        return Entry(number, row[self._column])


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
