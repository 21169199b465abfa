"""Reads a batch's URLs from a list, or from a manifest as a stream.

The format is detected by content first and by name second. A file that cannot be read reliably to its end is refused, with its
name and line, before anything is sent.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from airflow_provider_cloudstore.protocol.errors import InvalidInputError

_MAX_LINE_LENGTH = 64 * 1024
_MAX_ARRAY_ITEM_LENGTH = 1024 * 1024
_MAX_INTEGER_DIGITS = 512
_HEAD = 512
_GZIP = b"\x1f\x8b"
_DELIMITERS = {"csv": ",", "tsv": "\t", "tab": "\t"}
_JSON_SUFFIXES = frozenset({"jsonl", "ndjson", "json"})
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
_CAN_BE_READ = "a manifest is UTF-8 text, CSV, JSON Lines or a JSON array, plain or gzip"


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, or the reason why a line has none.

    :param position: counted from 0, without blank lines and comments.
    :param line: the line in the file, or the position in the list, counted from 1.
    :param url: the URL, not yet validated; it may hold credentials.
    :param problem: why the line holds no URL.
    :param key: the manifest's own id of the line, where ``key_column`` names one.
    """

    position: int
    line: int
    url: Any = field(repr=False, default=None)
    problem: str = ""
    key: Any = None


def entries_of_list(urls: Iterable[Any]) -> Iterator[Entry]:
    """The entries of a list of URLs."""
    for position, url in enumerate(urls):
        yield Entry(position, position + 1, url)


def entries_of_file(stream: BinaryIO, name: str, column: str, key_column: str | None = None) -> Iterator[Entry]:
    """The entries of a manifest: text with a URL a line (without blank lines and ``#`` comments), CSV, or JSON.

    :param stream: the file, plain or gzip.
    :param name: its path. The suffix selects the format (``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson``, ``.json``, in any case);
        without one of them the file is text.
    :param column: the column of a CSV, or the key in JSON, that holds the URL.
    :param key_column: the column or key with the manifest's own id of the line.
    :raises InvalidInputError: if it cannot be read to its end; the message names the file, its format and its columns.
    """
    with suppress(EOFError, gzip.BadGzipFile, zlib.error):
        for position, (line, url, problem, key) in enumerate(_found(stream, name, column, key_column)):
            yield Entry(position, line, url, problem, key)
        return
    raise _refused(name, "is gzip, but damaged or cut short")


Found = Iterator[tuple[int, Any, str, Any]]


def _refused(name: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"the manifest {name} {what}; nothing was sent")


def _found(stream: BinaryIO, name: str, column: str, key_column: str | None) -> Found:
    content = io.BufferedReader(cast("io.RawIOBase", stream), 64 * 1024)
    packed = content.peek(2)[:2] == _GZIP
    if packed:
        content = io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=content)), 64 * 1024)
    head = content.peek(_HEAD)[:_HEAD]
    if problem := _other_format(head):
        raise _refused(name, f"is {problem}{' inside gzip' if packed else ''}: {_CAN_BE_READ}")
    columns = [column, *([key_column] if key_column else [])]
    suffix = _suffix(name)
    if suffix in _DELIMITERS:
        return _csv(cast("BinaryIO", content), name, columns, _DELIMITERS[suffix])
    if suffix not in _JSON_SUFFIXES:
        if key_column:
            raise _refused(name, f"is text with a URL a line, which has no column '{key_column}'")
        return _text(cast("BinaryIO", content))
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"[" and suffix == "json":
        return _json_array(cast("BinaryIO", content), name, columns)
    return _json_lines(cast("BinaryIO", content), columns)


def _suffix(name: str) -> str:
    bare = name.lower().rstrip("/")
    while bare.endswith((".gz", ".gzip")):
        bare = bare.rpartition(".")[0]
    return bare.rpartition("/")[2].rpartition(".")[2]


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


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes, str]]:
    for number in itertools.count(1):
        raw = stream.readline(_MAX_LINE_LENGTH + 1)
        if not raw:
            return
        if len(raw) <= _MAX_LINE_LENGTH:
            yield number, raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw, ""
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(_MAX_LINE_LENGTH)
        yield number, b"", f"the line is longer than {_MAX_LINE_LENGTH // 1024} KiB"


def _text(stream: BinaryIO) -> Found:
    for number, raw, problem in _lines(stream):
        text = raw.decode("utf-8", "surrogateescape").strip()
        if problem or (text and not text.startswith("#")):
            yield number, text, problem, None


def _json_lines(stream: BinaryIO, columns: list[str]) -> Found:
    for number, raw, problem in _lines(stream):
        if problem:
            yield number, None, problem, None
        elif raw.strip():
            try:
                row = json.loads(raw, parse_int=_integer)
            except (ValueError, RecursionError):
                yield number, None, "the line is not JSON", None
            else:
                yield (number, *_fields(row, columns, "the line"))


def _integer(digits: str) -> int | str:
    """A JSON integer; Python refuses to convert very long ones, so they stay strings."""
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else digits


def _fields(row: Any, columns: list[str], what: str) -> tuple[Any, str, Any]:
    if not isinstance(row, dict) or columns[0] not in row:
        return None, f"{what} has no key '{columns[0]}'", None
    key = row.get(columns[1]) if len(columns) > 1 else None
    return row[columns[0]], "", key if isinstance(key, (str, int, float)) or key is None else str(key)


def _json_array(stream: BinaryIO, name: str, columns: list[str]) -> Found:
    """The items of a JSON array of URLs or objects, numbered by item instead of by line."""
    decoder = json.JSONDecoder(parse_int=_integer)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    buffer, at_end, number, expects = text.read(64 * 1024).lstrip()[1:], False, 0, "]"
    while True:
        buffer = buffer.lstrip()
        if buffer[:1] == "]" and expects == "]":
            if buffer[1:].strip() or text.read(1).strip():
                raise _refused(name, f"has content after the end of its JSON array, after item {number}")
            return
        item, size = _first_item(decoder, buffer)
        if size:
            rest = buffer[size:].lstrip()
        if not at_end and (not size or not rest):
            more = text.read(64 * 1024)
            at_end, buffer = not more, buffer + more
            if len(buffer) > _MAX_ARRAY_ITEM_LENGTH:
                raise _refused(name, f"has an item {number + 1} of more than {_MAX_ARRAY_ITEM_LENGTH // 1024} KiB")
            continue
        if not size or rest[:1] not in (",", "]"):
            raise _refused(name, f"is a JSON array with a syntax error after item {number}")
        number += 1
        expects = rest[0]
        buffer = rest[1:] if expects == "," else rest
        yield (number, *((item, "", None) if not isinstance(item, (dict, list)) else _fields(item, columns, "the item")))


def _first_item(decoder: json.JSONDecoder, text: str) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return None, 0


def _csv(stream: BinaryIO, name: str, columns: list[str], delimiter: str) -> Found:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(text, strict=True, delimiter=delimiter)
    rows = _strict_rows(reader, name)
    _, header = next(rows, (0, []))
    places = _places(header, columns, name)
    before = reader.line_num
    for line, row in rows:
        if _has_open_quote(row, len(header), delimiter):
            raise _refused(
                name, f"has a quote in line {before + 1} that is closed only in line {line}: the text in between looks like rows"
            )
        before = line
        if row:
            values = [row[place] if place < len(row) else "" for place in places]
            problem = _too_wide(row, len(header), places[0])
            if not values[0]:
                problem = f"the line has no value in column '{columns[0]}'"
            yield line, None if problem else values[0], problem, values[1] if len(values) > 1 else None


def _strict_rows(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    what = ""
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        what = str(error)  # the csv module's own message, which repeats nothing of the file
    if what:
        raise _refused(name, f"is not valid CSV (RFC 4180) in line {reader.line_num}: {what}")


def _has_open_quote(row: list[str], width: int, delimiter: str) -> bool:
    """Whether a quoted value contains rows: everything between two stray quotes is one value, and valid CSV."""
    spread = [value for value in row if "\n" in value or "\r" in value]
    return any(
        "://" in line and line.count(delimiter) >= max(width - 1, 0) // 2 for value in spread for line in value.splitlines()[1:]
    )


def _too_wide(row: list[str], width: int, place: int) -> str:
    """Why a row with more fields than the header is invalid: an unquoted delimiter cuts the value that contains it.

    Empty fields at the end are harmless, unless the URL is the last column and may end with the delimiter.
    """
    more = row[width:]
    if not more or (not any(more) and place < width - 1):
        return ""
    return f"the line has {len(row):,} fields and the header {width:,}: put a value that holds the delimiter in double quotes"


def _places(header: list[str], columns: list[str], name: str) -> list[int]:
    """The indexes of the columns: by exact name, or else by the only name that differs in case and spaces alone."""
    places = []
    for column in columns:
        exact = [place for place, title in enumerate(header) if title == column]
        alike = exact or [place for place, title in enumerate(header) if title.strip().lower() == column.strip().lower()]
        if len(alike) != 1:
            problem = "more than one column" if alike else "no column"
            titles = ", ".join(repr(title[:40]) for title in header[:20] if "://" not in title) or "none"
            raise _refused(
                name, f"has {problem} '{column}'; its columns are {titles}: set url_column or key_column to one of them"
            )
        places.append(alike[0])
    return places
