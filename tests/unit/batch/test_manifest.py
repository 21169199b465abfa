from __future__ import annotations

import errno
import gzip
import io
import os
import re
import tempfile
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cloudstore.batch.manifest import MAX_LINE_LENGTH, Entry, FileManifest, list_manifest
from airflow_provider_cloudstore.exceptions import BatchInterruptedError, CloudStoreError, InvalidInputError

Line = tuple[int, Any, str]
URLS = ["http://h/1", "http://h/2"]


def manifest_of(opens: Callable[[str], Any], name: str = "urls", column: str = "url") -> FileManifest:
    return FileManifest(SimpleNamespace(open=opens), name, column)


def entries_of(content: bytes, name: str, column: str = "url") -> list[Entry]:
    manifest = manifest_of(lambda mode: io.BytesIO(content), name, column)
    found = list(manifest())
    assert list(manifest()) == found
    return found


def read(content: bytes, name: str = "urls.txt", column: str = "url") -> list[Line]:
    found = [
        [(entry.line, entry.url, entry.problem) for entry in entries_of(packed, name, column)]
        for packed in (content, gzip.compress(content))
    ]
    assert found[0] == found[1]  # gzip is known by its bytes, not by its name
    return found[0]


def urls_of(content: bytes, name: str, column: str = "url") -> list[Any]:
    return [url for _, url, _ in read(content, name, column)]


def refusal_of(content: bytes, name: str, column: str = "url") -> str:
    with pytest.raises(InvalidInputError, match=rf"^the manifest {name} .*; nothing was sent") as refused:
        entries_of(content, name, column)
    assert refused.value.__context__ is None
    return str(refused.value)


# --- entries


def test_an_entry_does_not_print_its_url_and_is_identified_by_it() -> None:
    assert "hunter2" not in repr(Entry(1, "https://h/?sig=hunter2"))
    assert Entry(1, "a").digest == Entry(2, "a").digest != Entry(1, "A").digest
    assert Entry(1, problem="x").digest != Entry(2, problem="x").digest
    assert len(Entry(1, "\udcff").digest) == 32


# --- the copy


def test_the_copy_has_no_name_and_its_readings_begin_anew(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    manifest = manifest_of(lambda mode: io.BytesIO(b"http://h/1\nhttp://h/2\n"))
    next(manifest())
    assert [entry.url for entry in manifest()] == URLS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError("s3cret"), InvalidInputError, "does not exist, or is a folder"),
        (OSError(errno.ENOSPC, "s3cret"), BatchInterruptedError, os.strerror(errno.ENOSPC)),
        (ValueError("s3cret"), BatchInterruptedError, "ValueError"),
    ],
)
def test_a_manifest_that_is_no_file_is_refused_and_one_that_cannot_be_copied_is_an_error_that_airflow_retries(
    error: Exception, kind: type[CloudStoreError], words: str
) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise error

    with pytest.raises(kind, match=words) as failed:
        manifest_of(lambda mode: Broken())
    assert failed.value.permanent is (kind is InvalidInputError)
    assert failed.value.__context__ is None  # a store's own words may hold credentials


def test_a_worker_without_a_folder_for_temporary_files_is_told_of_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    with pytest.raises(BatchInterruptedError, match=r"no folder for temporary files.*\nSet TMPDIR to a folder") as failed:
        manifest_of(lambda mode: io.BytesIO(b"http://h/1"))
    assert failed.value.__context__ is None


# --- lists


@pytest.mark.parametrize(
    ("row", "url", "problem"),
    [
        ("http://h/1", "http://h/1", ""),
        (["http://h/1"], "http://h/1", ""),
        (("http://h/1",), "http://h/1", ""),
        ({"id": 1, "link": "http://h/1"}, "http://h/1", ""),
        (None, None, ""),  # refused when it is sent, like other things that are no URL
        (["http://h/1", 7], None, "the row has 2 values: select the URL alone"),
        ([], None, "the row has 0 values: select the URL alone"),
        ({"url": "http://h/1"}, None, "the line has no key 'link'"),
        ([["http://h/1"]], None, "the URL is a list"),
        ({"link": {}}, None, "the URL is a dict"),
    ],
)
def test_the_rows_of_a_query_are_taken_like_urls(row: Any, url: Any, problem: str) -> None:
    assert list(list_manifest([row, row], "link")()) == [Entry(line, url, problem) for line in (1, 2)]


# --- formats

CSV = b"id,url\n1,http://h/1\n2,http://h/2\n"
FORMATS = [
    ("urls", b"http://h/1\n  # note\n http://h/2 \n"),
    ("urls.dat.gz", b'{"url": "http://h/1"}\n{"url": "http://h/2"}'),
    ("urls.Csv.GZ", b'"id","url"\n1,http://h/1\n2,"http://h/2"'),
    ("urls.tsv", CSV.replace(b",", b"\t")),
    ("urls.csv", CSV.replace(b",", b";")),
    ("urls.csv", CSV.replace(b"url", b"URL")),
    ("urls.tsv", b"Url\tid\nhttp://h/1\t1\nhttp://h/2\t2"),
    ("urls.csv", b'"Url"\nhttp://h/1\n"http://h/2"\n'),
    ("urls.csv", b'"Name, title",url,image\n"Doe, J",http://h/1,x\nRoe,http://h/2,y\n'),
    ("list.tsv", b"TsvHttpData-1.0\nhttp://h/1\t1357\twHENa08V36iPYAsOa2JAdw==\nhttp://h/2\n"),
    ("list", b"TsvHttpData-1.0\nhttp://h/1\t1357\nhttp://h/2\t\tyHENa08V36iPYAsOa2JAdw==\n"),
]


@pytest.mark.parametrize(("before", "end"), [(b"", b"\n"), (b"\xef\xbb\xbf#x\n", b"\r\n\r\n")])
@pytest.mark.parametrize(("name", "content"), FORMATS)
def test_the_first_line_that_is_no_comment_shows_the_format(name: str, content: bytes, before: bytes, end: bytes) -> None:
    assert urls_of((before + content).replace(b"\n", end), name) == URLS


def test_json_lines_are_objects_with_a_named_key() -> None:
    content = b'{"url": "http://h/1"}\n\n{"url": 5}\n{broken\n[1]\n{"x": 1}\n{"url": "\xff"}\n' + b"[" * 60_000
    assert read(content, "urls.jsonl") == [
        (1, "http://h/1", ""),
        (3, 5, ""),
        (4, None, "the line is not JSON"),
        (5, 1, ""),  # as a row of a list: its only value
        (6, None, "the line has no key 'url'"),
        (7, "\udcff", ""),  # no URL, as its validation finds
        (8, None, "the line is not JSON"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"id;link\n1;http://h/1\n",
        b"url,url \n",
        b"URL,id,url\n",
        b"u:hunter2@h/1,h/?sig=hunter2,7\n",
    ],
)
@pytest.mark.parametrize("name", ["urls", "urls.csv.gz"])
def test_what_begins_like_no_format_is_refused_and_not_shown(content: bytes, name: str) -> None:
    refused = refusal_of(content, name)
    assert "is neither text with a URL a line, nor JSON Lines, nor a list for transfers (TsvHttpData-1.0)" in refused
    assert "nor CSV whose header names the column 'url' once (url_column names another), in UTF-8" in refused
    assert "hunter2" not in refused


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize(("name", "content"), FORMATS)
def test_what_windows_and_old_macs_write_is_read(name: str, content: bytes, end: str, encoding: str) -> None:
    text = content.decode().replace("\n", end)
    assert urls_of(text.encode(), name) == URLS
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    assert urls_of(mark + text.encode(encoding), name) == URLS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04\x14\x00\x06\x00\x08\x00\r\n", "looks like zip, such as an Excel workbook"),
        (b"PK\x03\x04".ljust(MAX_LINE_LENGTH * 2, b"x"), "looks like zip, such as an Excel workbook"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00", "looks like binary data"),
        (b"%PDF-1.7\r%\xe2\xe3\xcf\xd3\r\n", "looks like PDF"),
        (b"PAR1\x15\x04\x15\x00\n", "looks like Parquet"),
        (gzip.compress(b"https://h/1", mtime=0), "looks like gzip in gzip"),
        ("http://u:hunter2@h/1".encode("utf-16-le")[1:], "looks like binary data"),
        ("id,url\nhttp://u:hunter2@h/1".encode("utf-16-le"), "looks like binary data"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "looks like binary data"),
        (b"\xff\xfeu\x00r", "is UTF-16, but damaged or cut short"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_with_what_it_looks_like(content: bytes, words: str) -> None:
    refused = refusal_of(gzip.compress(content), "urls")
    assert words in refused
    assert "hunter2" not in refused


FIRST_LINES = st.sampled_from(
    [content for _, content in FORMATS] + [b"PK\x03\x04", b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b'"', b"{"]
)


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=12) | FIRST_LINES | st.sampled_from([b"\r", b"\n", b"\x00", b","]), max_size=6).map(b"".join),
    st.sampled_from(["urls", "urls.csv"]),
    st.booleans(),
)
def test_reading_whatever_bytes_ends_in_entries_or_in_an_error_of_ours(content: bytes, name: str, is_gzip: bool) -> None:
    packed = gzip.compress(content) if is_gzip else content
    try:
        for entry in manifest_of(lambda mode: io.BytesIO(packed), name)():
            assert len(entry.digest) == 32
    except CloudStoreError as refused:
        assert refused.permanent  # noqa: PT017  (either is right)


def test_a_truncated_gzip_is_refused() -> None:
    whole = gzip.compress(b"".join(b"http://h/%d\n" % (number * 7919) for number in range(2_000)))
    for content in (whole[:-4], whole[: len(whole) // 2], whole[:-8] + b"12345678"):
        assert "is gzip, but damaged or cut short" in refusal_of(content, "urls.txt.gz")


# --- CSV


def test_csv_has_a_named_column() -> None:
    content = b'id,link\n1,http://h/1\n2,"http://h/2"\n3,\n"4, ""4",http://h/4\n\n#5\n'
    assert read(content, "urls.csv", "link") == [
        (2, "http://h/1", ""),
        (3, "http://h/2", ""),
        (4, None, "the line has no value in column 'link'"),
        (5, "http://h/4", ""),
        (7, None, "the line has no value in column 'link'"),
    ]


def test_a_row_with_more_fields_than_the_header_is_a_bad_line_and_no_cut_url() -> None:
    problem = "the line has 3 fields and the header 2: quote values that hold the delimiter"
    content = b"id,url\n1,http://h/w_1,h_1/x.png\n0,http://h/0"
    assert read(content, "urls.csv") == [(2, None, problem), (3, "http://h/0", "")]


def test_a_single_column_has_no_delimiter() -> None:
    content = b'url\nhttp://h/w_1,h_1;q\tx.png\n"http://h/a,b"\nhttp://h/0,\n'
    assert urls_of(content, "urls.csv") == ["http://h/w_1,h_1;q\tx.png", "http://h/a,b", "http://h/0,"]


def test_a_line_of_a_url_list_that_has_no_url_or_too_many_fields_is_a_bad_line() -> None:
    content = b"TsvHttpData-1.0\n\t1357\nhttp://h/1,a;b\t1\tx\ty\nhttp://h/2,a;b\t1\n"
    assert read(content) == [
        (2, None, "the line has no value in column 'url'"),
        (3, None, "the line has 4 fields and the header 3: quote values that hold the delimiter"),
        (4, "http://h/2,a;b", ""),
    ]


@pytest.mark.parametrize("row", ['5,"http://h/5', '5,"http://h/"5', '5,http://h/5,"two\nlines"'])
def test_a_stray_quote_or_a_row_of_two_lines_swallows_no_rows(row: str) -> None:
    rows = [f"{number},http://h/{number}" for number in range(1, 101)]
    rows[4] = row
    refused = refusal_of("\n".join(["id,url,note", *rows, '7"0,http://h/70"', '8,"x']).encode(), "urls.csv")
    assert re.search(r"is not valid CSV in line 6 \(", refused)
    assert "a row takes one line, and quotes enclose whole values" in refused


# --- limits


def test_a_line_has_at_most_128_kib() -> None:
    longest = b"http://h/1".ljust(MAX_LINE_LENGTH - 1, b"x")
    assert len(longest + b"\n") == 131_072
    assert urls_of(longest + b"\n", "urls") == [longest.decode()]
    assert "has a line 1 that is longer than 128 KiB" in refusal_of(b" " + longest + b"\n", "urls")


def test_a_line_without_end_takes_no_memory() -> None:
    packed = gzip.compress(b"http://h/1\n" + b"x" * (16 * 1024 * 1024), compresslevel=1)
    manifest = manifest_of(lambda mode: io.BytesIO(packed))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="longer than 128 KiB"):
            list(manifest())
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
