"""Reads a batch's URLs from a list, or from a manifest: text with a URL a line, CSV or JSON Lines.

A file that cannot be read reliably to its end is refused, with its name and line, before anything is sent.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from airflow_provider_cloudstore.batch.spool import spooled
from airflow_provider_cloudstore.protocol.errors import InvalidInputError

MAX_LINE_LENGTH = 128 * 1024
"""Bytes of a line without its end, and of a row of a CSV."""
_LIMIT = f"{MAX_LINE_LENGTH // 1024} KiB"
_BLOCK_SIZE = 256 * 1024
_MAX_INTEGER_DIGITS = 512
_HEAD = 512
_GZIP = b"\x1f\x8b"
_DELIMITERS = (",", "\t", ";")
_TAB_FIRST = ("\t", ",", ";")  # a header of one column holds it with each
_CSV_SUFFIXES = {".csv": _DELIMITERS, ".tsv": _TAB_FIRST, ".tab": _TAB_FIRST}
_JSON_SUFFIXES = frozenset({".jsonl", ".ndjson", ".json"})
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_TITLE = re.compile(r"[\w .()-]{1,40}")  # of a column, and no URL or part of one
# RFC 4180: a field, with or without quotes, and what ends it.
_FIELDS = {
    delimiter: re.compile(rf'(?:"([^"]*+(?:""[^"]*+)*+)"|([^"{delimiter}]*+))({delimiter}|\Z)') for delimiter in _DELIMITERS
}
# Other formats that hold URLs, recognised by their first bytes so that the error can name them.
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook (.xlsx)"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstandard"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x04\x22\x4d\x18", "compressed with lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "compressed with snappy"),
    (b"PAR1", "Parquet"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
    (b"ARROW1", "Arrow"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook (.xls)"),
    (b"%PDF", "a PDF"),
    (codecs.BOM_UTF32_LE, "UTF-32 text"),
    (codecs.BOM_UTF32_BE, "UTF-32 text"),
    (codecs.BOM_UTF16_LE, "UTF-16 text"),
    (codecs.BOM_UTF16_BE, "UTF-16 text"),
)


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
"""Its entries from the beginning, each time it is called."""
_Lines = Iterator[tuple[int, bytes]]
_Records = Iterator[tuple[int, int, str]]


def list_manifest(urls: Sequence[Any]) -> Manifest:
    """A list of URLs as a manifest."""
    return lambda: (Entry(line, url) for line, url in enumerate(urls, 1))


def spooled_manifest(source: BinaryIO, name: str, column: str, key_column: str | None = None) -> Manifest:
    """Copy a manifest as it is to the folder for temporary files; its format is found while it is read for the first time.

    The suffix names the format: ``.csv``, ``.tsv`` and ``.tab``, or ``.jsonl``, ``.ndjson`` and ``.json``, in any case; else
    the first line does that is neither blank nor a ``#`` comment. Reading the entries raises ``InvalidInputError`` if the file
    cannot be read to its end; the message names the file, its format and its columns, and repeats nothing else of it.

    :param source: the file, plain or gzip; reading it blocks.
    :param name: its path.
    :param column: the column of a CSV, or the key in JSON, that holds the URL.
    :param key_column: the column or key with the manifest's own id of the line.
    :raises BatchInterruptedError: if it cannot be read to its end, or does not fit.
    """
    spool = spooled(source, name)
    columns = [column, *([key_column] if key_column else [])]
    return lambda: _entries(spool.open(), name, columns)


def _refused(name: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"the manifest {name} {what}; nothing was sent")


def _entries(reading: io.RawIOBase, name: str, columns: list[str]) -> Iterator[Entry]:
    with suppress(EOFError, gzip.BadGzipFile, zlib.error):
        yield from _found(reading, name, columns)
        return
    raise _refused(name, "is gzip, but damaged or cut short")


def _found(reading: io.RawIOBase, name: str, columns: list[str]) -> Iterator[Entry]:
    content = io.BufferedReader(reading, _BLOCK_SIZE)
    packed = content.peek(len(_GZIP)).startswith(_GZIP)
    if packed:
        content = io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=content)), _BLOCK_SIZE)
    if problem := _other_format(content.peek(_HEAD)[:_HEAD]):
        can_be_read = "a manifest is UTF-8 text, CSV or JSON Lines, plain or gzip"
        raise _refused(name, f"is {problem}{' inside gzip' if packed else ''}: {can_be_read}")
    lines: _Lines = enumerate(chain.from_iterable(_blocks(content)), 1)
    suffix = _suffix(name)
    if suffix in _CSV_SUFFIXES:
        return _csv(lines, name, columns, _CSV_SUFFIXES[suffix])
    content_lines = _without_blanks(lines)
    first = next(content_lines, None)
    if first is None:
        return iter(())
    form = (
        "json"
        if suffix in _JSON_SUFFIXES and not first[1].startswith(b"[")
        else _format_of(first[1].decode(errors="replace"), name, columns)
    )
    if form == "csv":
        return _csv(chain([first], lines), name, columns, _DELIMITERS)
    return (_json_lines if form == "json" else _text)(chain([first], content_lines), name, columns)


def _suffix(name: str) -> str:
    suffixes = PurePosixPath(name.lower()).suffixes
    return next((suffix for suffix in reversed(suffixes) if suffix not in (".gz", ".gzip")), "")


def _other_format(head: bytes) -> str:
    for magic, what in _OTHER_FORMATS:
        if head.startswith(magic):
            return what
    if head.startswith(_GZIP):
        return "gzip"
    if head[257:262] == b"ustar":
        return "a tar archive"
    if b"\0" in head:
        return "UTF-16 text or binary"
    return "a web page" if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")) else ""


def _format_of(first: str, name: str, columns: list[str]) -> str:
    """The format that the first line shows: ``json``, ``text`` or ``csv``."""
    if first.startswith("{"):
        return "json"
    if _URL.match(first):
        return "text"
    rows = [_split(first, delimiter) for delimiter in _DELIMITERS]
    if any(_matching(row, columns[0]) for row in rows):
        return "csv"
    if _JSON_STRING.fullmatch(first):
        return "json"
    if first.startswith("["):
        raise _refused(name, "is a JSON array: write JSON Lines, one object or string a line, or pass the list itself as urls")
    raise _refused(
        name,
        f"begins with neither a URL, nor JSON, nor a CSV header with the column '{columns[0]}': write a URL a line, or set "
        f"url_column to one of its columns, which are {_titles(max(rows, key=len))}",
    )


def _blocks(content: BinaryIO) -> Iterator[list[bytes]]:
    """The lines without their ends, some at a time; of a line beyond the limit, just more than the limit."""
    rest = content.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
    while block := content.read(_BLOCK_SIZE):
        block = rest + block
        end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1  # a CR at the end of the block may belong to a CRLF
        if end:
            yield block[:end].splitlines()
        rest = block[end:]
        if not rest.endswith(b"\r"):
            rest = rest[: MAX_LINE_LENGTH + 1]
    yield rest.splitlines()


def _without_blanks(lines: _Lines) -> _Lines:
    for number, line in lines:
        if line:  # millions of lines may be blank
            bare = line.strip() if len(line) <= MAX_LINE_LENGTH else line
            if bare and not bare.startswith(b"#"):
                yield number, bare


def _text(lines: _Lines, name: str, columns: list[str]) -> Iterator[Entry]:
    if len(columns) > 1:
        raise _refused(name, f"is text with a URL a line, which has no column '{columns[1]}'")
    count, ends = 0, {",", ";"}
    for number, line in lines:
        if len(line) > MAX_LINE_LENGTH:
            yield Entry(number, problem=f"the line is longer than {_LIMIT}")
            continue
        url = line.decode("utf-8", "surrogateescape").strip()
        count += 1
        if ends:
            ends = {end for end in ends if end in url and "/" not in url.rpartition(end)[2]}
        yield Entry(number, url)
    if ends and count > 1:
        raise _refused(
            name,
            f"looks like CSV without a header, because each line has a value after '{min(ends)}': add a header with the column "
            f"'{columns[0]}', or if the URLs end like this, write JSON Lines",
        )


def _json_lines(lines: _Lines, name: str, columns: list[str]) -> Iterator[Entry]:
    decode = json.JSONDecoder(parse_int=_integer).decode
    for number, line in lines:
        if len(line) > MAX_LINE_LENGTH:
            yield Entry(number, problem=f"the line is longer than {_LIMIT}")
            continue
        try:
            row = decode(line.decode())
        except (ValueError, RecursionError):
            yield Entry(number, problem="the line is not JSON")
            continue
        if isinstance(row, str):
            yield Entry(number, row)
        elif not isinstance(row, dict) or columns[0] not in row:
            yield Entry(number, problem=f"the line has no key '{columns[0]}'")
        else:
            key = row.get(columns[1]) if len(columns) > 1 else None
            yield Entry(number, row[columns[0]], "", key if isinstance(key, (str, int, float)) or key is None else str(key))


def _integer(digits: str) -> int | str:
    """A JSON integer; Python refuses to convert very long ones, so they stay strings."""
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else digits


def _csv(lines: _Lines, name: str, columns: list[str], delimiters: Sequence[str]) -> Iterator[Entry]:
    records = _records(lines, name)
    header, delimiter = _header(records, name, columns[0], delimiters)
    width, places = len(header), [_place(header, column, name) for column in columns]
    for first, last, text in records:
        row = _split(text, delimiter)
        if not row:
            raise _misquoted(name, first)
        if last > first and _holds_rows(row, width, delimiter):
            raise _refused(
                name, f"has a quote in line {first} that is closed only in line {last}: the text in between looks like rows"
            )
        problem = _too_wide(row, width, places[0]) if len(row) > width else ""
        row += [""] * (width - len(row))
        url = row[places[0]]
        if not url:
            problem = f"the line has no value in column '{columns[0]}'"
        yield Entry(first, None if problem else url, problem, row[places[1]] if len(places) > 1 else None)


def _records(lines: _Lines, name: str) -> _Records:
    """The rows that are not blank, with their first and last line: a row with an open quote goes on in the next line."""
    for first, line in lines:
        if not line or line.isspace():
            continue
        last, row = _closed(lines, first, line, name) if line.count(b'"') % 2 else (first, line)
        if len(row) > MAX_LINE_LENGTH:
            raise _refused(name, f"has a row in line {first} that is longer than {_LIMIT}")
        yield first, last, row.decode("utf-8", "surrogateescape")


def _closed(lines: _Lines, first: int, line: bytes, name: str) -> tuple[int, bytes]:
    parts, size = [line], len(line)
    for last, part in lines:
        parts.append(part)
        size += len(part) + 1
        if part.count(b'"') % 2:
            return last, b"\n".join(parts)
        if size > MAX_LINE_LENGTH:
            break
    raise _refused(name, f"has a quote in line {first} that is not closed within {_LIMIT}")


def _split(row: str, delimiter: str) -> list[str]:
    """The fields of a row; none if its quotes are not those of RFC 4180."""
    if '"' not in row:
        return row.split(delimiter)
    match_at, fields, position, end = _FIELDS[delimiter].match, [], 0, delimiter
    while end:
        found = match_at(row, position)
        if not found:
            return []
        quoted, bare, end = found.groups()
        fields.append(bare if quoted is None else quoted.replace('""', '"'))
        position = found.end()
    return fields


def _misquoted(name: str, line: int) -> InvalidInputError:
    quotes = "a value with a quote in it has to begin and end with one, and those in it are doubled"
    return _refused(name, f"is not valid CSV (RFC 4180) in line {line}: {quotes}")


def _holds_rows(row: list[str], width: int, delimiter: str) -> bool:
    """Whether a quoted value contains rows: everything between two stray quotes is one value, and valid CSV."""
    return any(
        "://" in line and line.count(delimiter) >= max(width - 1, 0) // 2 for value in row for line in value.splitlines()[1:]
    )


def _too_wide(row: list[str], width: int, place: int) -> str:
    """Why a row with more fields than the header is invalid: an unquoted delimiter cuts the value that contains it.

    Empty fields at the end are harmless, unless the URL is the last column and may end with the delimiter.
    """
    if not any(row[width:]) and place < width - 1:
        return ""
    return f"the line has {len(row):,} fields and the header {width:,}: put a value that holds the delimiter in double quotes"


def _header(records: _Records, name: str, column: str, delimiters: Sequence[str]) -> tuple[list[str], str]:
    """The columns, and the delimiter with which one of them holds the URLs. Comments may precede them."""
    for line, _, text in records:
        rows = [(_split(text, delimiter), delimiter) for delimiter in delimiters]
        held = [row for row in rows if _matching(row[0], column)]
        if held or not text.startswith("#"):
            header, delimiter = held[0] if held else max(rows, key=lambda row: len(row[0]))
            if not header:
                raise _misquoted(name, line)
            return header, delimiter
    return [], delimiters[0]


def _matching(header: list[str], column: str) -> list[int]:
    """The places of a column: by exact name, or else by names that differ in case and spaces alone."""
    exact = [place for place, title in enumerate(header) if title == column]
    return exact or [place for place, title in enumerate(header) if title.strip().lower() == column.strip().lower()]


def _place(header: list[str], column: str, name: str) -> int:
    places = _matching(header, column)
    if len(places) == 1:
        return places[0]
    problem = "more than one column" if places else "no column"
    columns = _titles(header)
    raise _refused(name, f"has {problem} '{column}'; its columns are {columns}: set url_column or key_column to one of them")


def _titles(header: list[str]) -> str:
    return ", ".join(repr(title) for title in header[:20] if _TITLE.fullmatch(title)) or "none"
