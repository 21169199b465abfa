from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import Entry, entries_of_file, entries_of_list, list_of


def read(content: bytes, name: str = "urls.txt", column: str = "url") -> list[tuple[int, int, Any, str]]:
    found = []
    for packed in (content, gzip.compress(content)):
        entries = list(entries_of_file(io.BytesIO(packed), name, column))
        found.append([(entry.position, entry.line, entry.url, entry.problem) for entry in entries])
    assert found[0] == found[1]  # gzip is known by its bytes, not by its name
    return found[0]


def test_a_list_is_its_own_manifest() -> None:
    assert list(entries_of_list(["a", None])) == [Entry(0, 1, "a"), Entry(1, 2, None)]


def test_text_has_a_url_a_line_and_may_have_blanks_and_comments() -> None:
    assert read(b"\xef\xbb\xbfhttp://h/1\r\n\n  # note\n http://h/2 \nhttp://h/\xc3\xa9") == [
        (0, 1, "http://h/1", ""), (1, 4, "http://h/2", ""), (2, 5, "http://h/é", ""),
    ]  # fmt: skip


def test_csv_has_a_named_column_and_quoted_line_breaks() -> None:
    content = b'id,link\n1,http://h/1\n2,"http://h/2"\n3,\n"4\n4",http://h/4\n5\n'
    assert read(content, "urls.csv", "link") == [
        (0, 2, "http://h/1", ""),
        (1, 3, "http://h/2", ""),
        (2, 4, "", "the line has no value in column 'link'"),
        (3, 6, "http://h/4", ""),
        (4, 7, None, "the line has no value in column 'link'"),
    ]


def test_a_csv_without_the_column_is_refused() -> None:
    for content in (b"id,link\n", b""):
        with pytest.raises(ValueError, match="no column 'url': name it with url_column"):
            read(content, "urls.csv.gz")


@pytest.mark.parametrize("name", ["urls.jsonl", "urls.ndjson.gz", "urls.json"])
def test_json_lines_have_a_named_key(name: str) -> None:
    assert read(b'{"url": "http://h/1"}\n\n{"url": 5}\n{broken\n[1]\n{"x": 1}\n' + b"[" * 60_000, name) == [
        (0, 1, "http://h/1", ""),
        (1, 3, 5, ""),
        (2, 4, None, "the line is no JSON"),
        (3, 5, None, "the line has no key 'url'"),
        (4, 6, None, "the line has no key 'url'"),
        (5, 7, None, "the line is no JSON"),
    ]


@pytest.mark.parametrize("name", ["urls.txt", "urls.jsonl"])
def test_a_line_without_end_is_reported_and_passed_over(name: str) -> None:
    good = b'{"url": "http://h/1"}' if name.endswith("l") else b"http://h/1"
    found = read(good + b"\n" + b"x" * 200_000 + b"\n" + good + b"\n", name)
    assert [line for _, line, _, _ in found] == [1, 2, 3]
    assert found[1][3] == "the line is longer than 64 KiB"
    assert found[2][2] == "http://h/1"


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        ("['http://h/1', 'http://h/2']", ["http://h/1", "http://h/2"]), (' ["a", null] ', ["a", None]), ("[]", []), ([], []),
        (("a", "b"), ["a", "b"]), ("s3://bucket/urls.txt", None), ("/path/[1].txt", None), ("urls.csv", None),
    ],
)  # fmt: skip
def test_urls_are_a_list_or_its_rendered_text_or_a_path(urls: Any, found: Any) -> None:
    assert list_of(urls) == found


@pytest.mark.parametrize(
    "urls",
    [
        None, 5, {"a": 1}, b"x", "", " ", "None", "null", "[https://h/?sig=hunter2, https://h/2]", "https://h/a?sig=hunter2",
        "ftp://u:hunter2@h/a", "https://h/?sig=hunter2\nhttps://h/2", "[" * 5000,
    ],
)  # fmt: skip
def test_what_is_neither_is_refused_without_being_shown(urls: Any) -> None:
    with pytest.raises(ValueError, match=r"^urls ") as refused:
        list_of(urls)
    assert "hunter2" not in str(refused.value)


def test_an_entry_does_not_print_its_url() -> None:
    assert "hunter2" not in repr(Entry(0, 1, "https://h/?sig=hunter2"))
