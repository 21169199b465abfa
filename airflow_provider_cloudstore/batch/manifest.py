"""Where a batch's URLs come from: a list, or a manifest that is read as a stream and never held whole."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from airflow_provider_cloudstore.protocol.identifiers import is_nothing

_LONGEST_LINE = 64 * 1024
_GZIP = b"\x1f\x8b"
_JSON_LINES = frozenset({".jsonl", ".ndjson", ".json"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a manifest, or the reason why there is none.

    :param position: counted from 0, without blank lines and comments.
    :param line: the line in the file, or the place in the list, counted from 1.
    :param url: the URL, not yet checked; it may hold credentials.
    :param problem: why the line holds no URL.
    """

    position: int
    line: int
    url: Any = field(repr=False, default=None)
    problem: str = ""


def entries_of_list(urls: Iterable[Any]) -> Iterator[Entry]:
    """The entries of a list.

    :param urls: the URLs.
    """
    for position, url in enumerate(urls):
        yield Entry(position, position + 1, url)


def list_of(urls: Any) -> list[Any] | None:
    """The list in ``urls``, or None where it is the path of a manifest. A template renders a list as text: that is a list too.

    :param urls: a list, or a text.
    :raises ValueError: if it is neither; the message does not repeat it, because URLs hold credentials.
    """
    if urls is None or isinstance(urls, (bytes, dict, int, float)):
        raise ValueError("urls is no list and no path; a template renders None when its source is missing")
    if not isinstance(urls, str):
        return list(urls)
    text = urls.strip()
    if text.startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
        raise ValueError("urls begins like a list but cannot be read as one: pass an XCom, or render it with | tojson")
    if is_nothing(text) or "\n" in text:
        raise ValueError("urls is empty or has line breaks: it is a list, or the path of a manifest")
    if text.lower().startswith(("http://", "https://", "ftp://")):
        raise ValueError("urls is a single URL: pass a list, or the path of a manifest")
    return None


def entries_of_file(stream: BinaryIO, name: str, column: str) -> Iterator[Entry]:
    """The entries of a manifest: text with a URL a line (blank lines and ``#`` comments are passed over), CSV, or JSON Lines.

    :param stream: the file, plain or gzip.
    :param name: its name: ``.csv``, ``.jsonl``, ``.ndjson`` and ``.json`` say what is in it, anything else is text.
    :param column: the column of a CSV, or the key in JSON Lines, that holds the URL.
    :raises ValueError: if a CSV has no such column.
    """
    buffered = io.BufferedReader(cast("io.RawIOBase", stream))
    lines = cast("BinaryIO", gzip.GzipFile(fileobj=buffered)) if buffered.peek(2)[:2] == _GZIP else buffered
    path = PurePosixPath(name.removesuffix(".gz"))
    if path.suffix == ".csv":
        found = _csv(lines, column)
    elif path.suffix in _JSON_LINES:
        found = _json_lines(lines, column)
    else:
        found = _text(lines)
    for position, (line, url, problem) in enumerate(found):
        yield Entry(position, line, url, problem)


Found = Iterator[tuple[int, Any, str]]


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes, str]]:
    number = 0
    while raw := stream.readline(_LONGEST_LINE + 1):
        number += 1
        if len(raw) <= _LONGEST_LINE:
            yield number, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, ""
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(_LONGEST_LINE)
        yield number, b"", f"the line is longer than {_LONGEST_LINE // 1024} KiB"


def _text(stream: BinaryIO) -> Found:
    for number, raw, problem in _lines(stream):
        text = raw.decode("utf-8", "surrogateescape").strip()
        if problem or (text and not text.startswith("#")):
            yield number, text, problem


def _json_lines(stream: BinaryIO, column: str) -> Found:
    for number, raw, problem in _lines(stream):
        if not raw.strip() and not problem:
            continue
        try:
            row = json.loads(raw) if not problem else None
            yield number, row[column] if row else None, problem
        except (ValueError, RecursionError):
            yield number, None, "the line is no JSON"
        except (KeyError, TypeError):
            yield number, None, f"the line has no key '{column}'"


def _csv(stream: BinaryIO, column: str) -> Found:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.DictReader(text)
    if column not in (reader.fieldnames or ()):
        raise ValueError(f"the manifest has no column '{column}': name it with url_column")
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            yield reader.line_num, None, "the line is no CSV"
            continue
        if row is None:
            return
        yield reader.line_num, row.get(column), "" if row.get(column) else f"the line has no value in column '{column}'"
