from __future__ import annotations

import errno
import gzip
import io
import os
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import MAX_LINE_LENGTH, Entry, FileManifest, list_manifest
from airflow_provider_cloudstore.exceptions import BatchInterruptedError, InvalidInputError

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


def test_a_list_is_its_own_manifest() -> None:
    manifest = list_manifest(["a", None])
    for _ in range(2):
        assert list(manifest()) == [Entry(1, "a"), Entry(2, None)]


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


@pytest.mark.parametrize("error", [FileNotFoundError, IsADirectoryError, NotADirectoryError])
def test_a_manifest_that_is_no_file_is_refused(error: type[OSError]) -> None:
    def fail(mode: str) -> Any:
        raise error("s3cret")

    with pytest.raises(InvalidInputError, match="does not exist, or is a folder") as refused:
        manifest_of(fail)
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    ("error", "reason"), [(OSError(errno.ENOSPC, "s3cret"), os.strerror(errno.ENOSPC)), (ValueError("s3cret"), "ValueError")]
)
def test_a_manifest_that_cannot_be_copied_is_an_error_that_airflow_retries(error: Exception, reason: str) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise error

    words = rf"the manifest urls cannot be copied to this worker's folder for temporary files \({reason}\)"
    with pytest.raises(BatchInterruptedError, match=words) as failed:
        manifest_of(lambda mode: Broken())
    assert (failed.value.cause, failed.value.permanent, failed.value.__context__) == ("store", False, None)


# --- formats

CSV = b"id,url\n1,http://h/1\n2,http://h/2\n"
FORMATS = [
    ("urls", b"http://h/1\n  # note\n http://h/2 \n"),
    ("urls.dat.gz", b'{"url": "http://h/1"}\n{"url": "http://h/2"}'),
    ("urls", CSV),
    ("urls.Csv.GZ", b'"id","url"\n1,http://h/1\n2,"http://h/2"'),
    ("urls.tsv", CSV.replace(b",", b"\t")),
    ("urls.csv", CSV.replace(b",", b";")),
    ("urls", b' "url" \nhttp://h/1\nhttp://h/2'),
]


@pytest.mark.parametrize("end", [b"\n", b"\r\n\r\n"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf#x\n"])
@pytest.mark.parametrize(("name", "content"), FORMATS)
def test_the_first_line_that_is_no_comment_shows_the_format(name: str, content: bytes, before: bytes, end: bytes) -> None:
    assert urls_of((before + content).replace(b"\n", end), name) == URLS


def test_json_lines_are_objects_with_a_named_key() -> None:
    content = b'{"url": "http://h/1"}\n\n{"url": 5}\n{broken\n[1]\n{"x": 1}\n"http://h/2"\n7\n{"url": "\xff"}\n' + b"[" * 60_000
    assert read(content, "urls.jsonl") == [
        (1, "http://h/1", ""),
        (3, 5, ""),
        (4, None, "the line is not JSON"),
        (5, None, "the line has no key 'url'"),
        (6, None, "the line has no key 'url'"),
        (7, None, "the line has no key 'url'"),
        (8, None, "the line has no key 'url'"),
        (9, "\udcff", ""),  # no URL, as its validation finds
        (10, None, "the line is not JSON"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"id;link\n1;http://h/1\n",
        b"url,url \n",
        b"<!DOCTYPE html>\n",
        b'"http://u:hunter2@h/1"\n',
        b"u:hunter2@h/1,h/?sig=hunter2,7\n",
        b"PK\x03\x04\x14\0..",
        "http://u:hunter2@h/1".encode("utf-16"),
        gzip.compress(gzip.compress(b"x", mtime=0), mtime=0),
    ],
)
@pytest.mark.parametrize("name", ["urls", "urls.csv.gz"])
def test_what_begins_like_no_format_is_refused_and_not_shown(content: bytes, name: str) -> None:
    refused = refusal_of(content, name)
    assert "is neither text with a URL a line, nor JSON Lines, nor CSV whose header names the column 'url' once" in refused
    assert "hunter2" not in refused


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


@pytest.mark.parametrize(
    ("header", "row", "fields"),
    [
        ("id,url", "1,http://h/w_1,h_1/x.png", "3 fields and the header 2"),
        ("url", "http://h/1,", "2 fields and the header 1"),
        ("id\turl", "1\thttp://h/1\t2", "3 fields and the header 2"),
    ],
)
def test_a_row_with_more_fields_than_the_header_is_a_bad_line_and_no_cut_url(header: str, row: str, fields: str) -> None:
    good = header.replace("url", "http://h/0").replace("id", "0")
    problem = f"the line has {fields}: quote values that hold the delimiter"
    assert read("\n".join([header, row, good]).encode(), "urls.csv") == [(2, None, problem), (3, "http://h/0", "")]


@pytest.mark.parametrize(
    "row",
    [
        '5,"http://h/5',
        '"5,http://h/5',
        '5,"http://h/"5',
        '5,"http://h/5" ',
        '5,http://h/5,"two\nlines"',
    ],
)
def test_a_stray_quote_or_a_row_of_two_lines_swallows_no_rows(row: str) -> None:
    rows = [f"{number},http://h/{number}" for number in range(1, 101)]
    rows[4] = row
    refused = refusal_of("\n".join(["id,url,note", *rows, '7"0,http://h/70"']).encode(), "urls.csv")
    assert "is not valid CSV in line 6 (" in refused
    assert "a row takes one line, and quotes enclose whole values" in refused


# --- limits


@pytest.mark.parametrize(("name", "header"), [("u.txt", b""), ("u.csv", b"url\n")])
def test_a_line_has_at_most_128_kib(name: str, header: bytes) -> None:
    longest = b"http://h/1".ljust(MAX_LINE_LENGTH - 1, b"x")
    assert len(longest + b"\n") == 131_072
    assert urls_of(header + longest + b"\n", name) == [longest.decode()]
    line = 1 + header.count(b"\n")
    assert f"has a line {line} that is longer than 128 KiB" in refusal_of(header + b" " + longest + b"\n", name)


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
