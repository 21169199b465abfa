from __future__ import annotations

import errno
import gzip
import io
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import Entry, FileManifest, list_manifest
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


def refusal_of(content: bytes, name: str) -> str:
    with pytest.raises(InvalidInputError, match=rf"^the manifest {name} .*; nothing was sent") as refused:
        entries_of(content, name)
    return str(refused.value)


def test_an_entry_does_not_print_its_url_and_is_identified_by_it() -> None:
    assert "hunter2" not in repr(Entry(1, "https://h/?sig=hunter2"))
    assert Entry(1, "a").digest == Entry(2, "a").digest != Entry(1, "A").digest
    assert Entry(1, problem="x").digest != Entry(2, problem="x").digest
    assert len(Entry(1, "\udcff").digest) == 32


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
    assert failed.value.__suppress_context__  # a store's own words may hold credentials


@pytest.mark.parametrize(
    ("row", "url", "problem"),
    [
        ("http://h/1", "http://h/1", ""),
        (["http://h/1"], "http://h/1", ""),
        ({"id": 1, "link": "http://h/1"}, "http://h/1", ""),
        (None, None, ""),  # refused when it is sent, like other things that are no URL
        (["http://h/1", 7], None, "the row has 2 values: select one"),
        ({"url": "http://h/1"}, None, "the line has no key 'link'"),
    ],
)
def test_the_rows_of_a_query_are_taken_like_urls(row: Any, url: Any, problem: str) -> None:
    assert list(list_manifest([row, row], "link")()) == [Entry(line, url, problem) for line in (1, 2)]


CSV = b"id,url\n1,http://h/1\n2,http://h/2\n"
FORMATS = [
    ("urls", b"http://h/1\n  # note\n http://h/2 \n"),
    ("urls.dat.gz", b'{"url": "http://h/1"}\n{"url": "http://h/2"}'),
    ("urls.Csv.GZ", b'"id","url"\n1,http://h/1\n2,"http://h/2"'),
    ("urls.tsv", CSV.replace(b",", b"\t")),
    ("urls.csv", CSV.replace(b",", b";")),
    ("urls.csv", CSV.replace(b"url", b"URL")),
    ("urls.csv", b'"Url"\nhttp://h/1\n"http://h/2"\n'),
    ("urls.csv", b'"Name, title",url,image\n"Doe, J",http://h/1,x\nRoe,http://h/2,y\n'),
    ("list.tsv", b"TsvHttpData-1.0\nhttp://h/1\t1357\twHENa08V36iPYAsOa2JAdw==\nhttp://h/2\n"),
]


@pytest.mark.parametrize(("before", "end"), [(b"", b"\n"), (b"", b"\r"), (b"\xef\xbb\xbf#x\n", b"\r\n\r\n")])
@pytest.mark.parametrize(("name", "content"), FORMATS)
def test_the_first_line_that_is_no_comment_shows_the_format(name: str, content: bytes, before: bytes, end: bytes) -> None:
    assert [url for _, url, _ in read((before + content).replace(b"\n", end), name)] == URLS


@pytest.mark.parametrize(
    "content",
    [
        b"id;link\n1;http://h/1\n",
        b"url,url \n",
        b"URL,id,url\n",
        b"u:hunter2@h/1,h/?sig=hunter2,7\n",
        b"PK\x03\x04\x14\x00\x06\x00\x08\x00\r\n",  # a workbook
        "http://u:hunter2@h/1\n".encode("utf-16"),
        gzip.compress(b"https://h/1", mtime=0),  # twice
    ],
)
@pytest.mark.parametrize("name", ["urls", "urls.csv.gz"])
def test_what_begins_like_no_format_is_refused_and_not_shown(content: bytes, name: str) -> None:
    refused = refusal_of(gzip.compress(content), name)
    assert "is neither text with a URL a line, nor JSON Lines, nor CSV whose header names the column 'url' once" in refused
    assert "(url_column names another), in UTF-8, plain or gzip" in refused
    assert "hunter2" not in refused


def test_a_truncated_gzip_is_refused() -> None:
    whole = gzip.compress(b"".join(b"http://h/%d\n" % (number * 7919) for number in range(2_000)))
    for content in (whole[:-4], whole[: len(whole) // 2], whole[:-8] + b"12345678"):
        assert "is gzip, but damaged or cut short" in refusal_of(content, "urls.txt.gz")


LINES: dict[str, tuple[bytes, list[Line]]] = {
    "urls.jsonl": (
        b'{"url": "http://h/1"}\n\n{"url": 5}\n{broken\n[1]\n{"x": 1}\n{"url": "\xff"}\n' + b"[" * 60_000,
        [
            (1, "http://h/1", ""),
            (3, 5, ""),
            (4, None, "the line is not JSON"),
            (5, 1, ""),  # as a row of a list: its only value
            (6, None, "the line has no key 'url'"),
            (7, "\udcff", ""),  # no URL, as its validation finds
            (8, None, "the line is not JSON"),
        ],
    ),
    "urls.csv": (
        b'id,url\n1,http://h/1\n2,"http://h/2"\n3,\n"4, ""4",http://h/4\n\n#5\n6,http://h/w_1,h_1/x.png\n',
        [
            (2, "http://h/1", ""),
            (3, "http://h/2", ""),
            (4, None, "the line has no value in column 'url'"),
            (5, "http://h/4", ""),
            (7, None, "the line has no value in column 'url'"),
            (8, None, "the line has 3 fields and the header 2: quote values that hold the delimiter"),
        ],
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_without_a_url_says_what_is_wrong_and_the_others_are_read(name: str) -> None:
    content, lines = LINES[name]
    assert read(content, name) == lines


@pytest.mark.parametrize("row", ['5,"http://h/5', '5,"http://h/"5', '5,http://h/5,"two\nlines"'])
def test_a_stray_quote_or_a_row_of_two_lines_swallows_no_rows(row: str) -> None:
    rows = [f"{number},http://h/{number}" for number in range(1, 101)]
    rows[4] = row
    found = read("\n".join(["id,url,note", *rows]).encode(), "urls.csv")
    assert [url for _, url, _ in found if url] == [f"http://h/{number}" for number in range(1, 101) if number != 5]
    assert "the line is not valid CSV (" in found[4][2]
    assert found[4][2].endswith("): a row takes one line")
