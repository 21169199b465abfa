from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import Entry, entries_of_file, entries_of_list
from airflow_provider_cloudstore.protocol.errors import InvalidInputError


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
        (2, 4, None, "the line has no value in column 'link'"),
        (3, 6, "http://h/4", ""),
        (4, 7, None, "the line has no value in column 'link'"),
    ]


@pytest.mark.parametrize(
    ("name", "header", "row", "fields"),
    [
        ("urls.csv", "id,url", "1,http://h/w_1,h_1/x.png", "3 fields and the header 2"),
        ("urls.csv", "url,id", "http://h/?sig=a,b,1", "3 fields and the header 2"),
        ("urls.csv", "url", "http://h/1,2", "2 fields and the header 1"),
        ("urls.csv", "url", "http://h/1,", "2 fields and the header 1"),
        ("urls.csv", "id,url", "1,http://h/1,,x", "4 fields and the header 2"),
        ("urls.tsv", "id\turl", "1\thttp://h/1\t2", "3 fields and the header 2"),
        ("urls.tsv", "url", "http://h/1\t2", "2 fields and the header 1"),
    ],
)
def test_a_row_with_more_fields_than_the_header_is_a_bad_line_and_no_cut_url(
    name: str, header: str, row: str, fields: str
) -> None:
    good = {"url": "http://h/0", "id": "0"}
    rows = [
        header,
        row,
        ("\t" if name.endswith("tsv") else ",").join(good[title] for title in header.replace("\t", ",").split(",")),
    ]
    problem = f"the line has {fields}: put a value that holds the delimiter in double quotes"
    assert read("\n".join(rows).encode(), name) == [(0, 2, None, problem), (1, 3, "http://h/0", "")]


def test_empty_fields_at_the_end_of_a_row_pass_where_no_url_can_have_been_cut() -> None:
    content = b'url,id\nhttp://h/1,1,,\nhttp://h/2\n"http://h/w_1,h_1",3\n'
    assert [url for _, _, url, _ in read(content, "urls.csv")] == ["http://h/1", "http://h/2", "http://h/w_1,h_1"]


def test_a_very_long_number_in_json_is_json() -> None:
    digits = "9" * 5000
    found = entries_of_file(io.BytesIO(f'{{"url": "http://h/1", "id": {digits}}}'.encode()), "u.jsonl", "url", "id")
    assert [(entry.url, entry.key) for entry in found] == [("http://h/1", digits)]
    assert [url for _, _, url, _ in read(f'[{{"url": "http://h/1", "id": {digits}}}]'.encode(), "u.json")] == ["http://h/1"]


def test_a_csv_without_the_column_is_refused_with_the_columns_it_has() -> None:
    for content, columns in ((b"id,link\n", "'id', 'link'"), (b"", "none"), (b"id;url\n1;u", "'id;url'")):
        with pytest.raises(InvalidInputError, match=f"urls.csv.gz has no column 'url'; its columns are {columns}"):
            read(content, "urls.csv.gz")


def test_names_are_read_leniently() -> None:
    for name in ("URLS.CSV", "urls.Csv.GZ", "urls.csv.gzip"):
        assert read(b" URL ,Id\nhttp://h/1,7\n", name) == [(0, 2, "http://h/1", "")]
    assert [entry.key for entry in entries_of_file(io.BytesIO(b"URL,ID\nhttp://h/1,7\n"), "u.csv", "url", "id")] == ["7"]
    assert read(b"id\turl\n1\thttp://h/1\n", "urls.tsv") == [(0, 2, "http://h/1", "")]


@pytest.mark.parametrize(
    ("fifth", "last", "words"),
    [
        ('5,"http://h/5', '700,http://h/700"', "has a quote in line 6 that is closed only in line 701"),
        ('"5,http://h/5', '7"00,http://h/700', "is not valid CSV .RFC 4180. in line 701"),
        ('5,"http://h/5', "700,http://h/700", "is not valid CSV .RFC 4180. in line 1001"),
        ('5,"http://h/"5', "700,http://h/700", "is not valid CSV .RFC 4180. in line 6"),
    ],
)
def test_a_stray_quote_swallows_no_rows(fifth: str, last: str, words: str) -> None:
    rows = [f"{number},http://h/{number}" for number in range(1, 1001)]
    rows[4], rows[699] = fifth, last
    with pytest.raises(InvalidInputError, match=words):
        read("\n".join(["id,url", *rows]).encode(), "urls.csv")


def test_a_json_array_is_read_piece_by_piece() -> None:
    items = ["http://h/1", {"url": "http://h/2"}, {"x": 1}, *(f"http://h/{number}" for number in range(9000))]
    found = read(json.dumps(items, indent=1).encode(), "urls.JSON")
    assert found[:3] == [(0, 1, "http://h/1", ""), (1, 2, "http://h/2", ""), (2, 3, None, "the item has no key 'url'")]
    assert len(found) == 9003
    assert read(b" [ ] ", "urls.json") == []


@pytest.mark.parametrize("content", [b'["a" "b"]', b'["a",]', b'["a"', b'["a"] x', b"[" * 100_000])
def test_a_broken_json_array_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"urls.json (is a JSON array with a syntax error|has content after|has an item)"):
        read(content, "urls.json")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04...", "zip archive or an Excel workbook"), (b"\x28\xb5\x2f\xfd..", "zstandard"), (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\x00..", "xz"), ("http://h/1".encode("utf-16"), "UTF-16"), ("http://h/1".encode("utf-16-le"), "UTF-16"),
        (b"PAR1....", "Parquet"), (b"\xd0\xcf\x11\xe0...", ".xls"), (b"<!DOCTYPE html>", "a web page"),
        (gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), "gzip inside gzip"),
    ],
)  # fmt: skip
def test_every_other_format_is_named(content: bytes, what: str) -> None:
    for name in ("urls.csv", "urls.txt", "urls.parquet"):
        with pytest.raises(InvalidInputError, match=f"the manifest {name} is .*{what}.*a manifest is UTF-8 text"):
            list(entries_of_file(io.BytesIO(content), name, "url"))


@pytest.mark.parametrize("name", ["urls.txt.gz", "urls.csv.gz", "urls.jsonl", "urls.json"])
def test_a_truncated_gzip_is_refused(name: str) -> None:
    whole = gzip.compress(b"url\n" + b"".join(b"http://h/%d\n" % (number * 7919) for number in range(20_000)))
    for content in (whole[:-4], whole[: len(whole) // 2], whole[:-8] + b"12345678"):
        with pytest.raises(InvalidInputError, match=r"damaged or cut short|broken"):
            list(entries_of_file(io.BytesIO(content), name, "url"))


@pytest.mark.parametrize("name", ["urls.jsonl", "urls.ndjson.gz", "urls.json"])
def test_json_lines_have_a_named_key(name: str) -> None:
    assert read(b'{"url": "http://h/1"}\n\n{"url": 5}\n{broken\n[1]\n{"x": 1}\n' + b"[" * 60_000, name) == [
        (0, 1, "http://h/1", ""),
        (1, 3, 5, ""),
        (2, 4, None, "the line is not JSON"),
        (3, 5, None, "the line has no key 'url'"),
        (4, 6, None, "the line has no key 'url'"),
        (5, 7, None, "the line is not JSON"),
    ]


@pytest.mark.parametrize("name", ["urls.txt", "urls.jsonl"])
def test_a_line_without_end_is_reported_and_passed_over(name: str) -> None:
    good = b'{"url": "http://h/1"}' if name.endswith("l") else b"http://h/1"
    found = read(good + b"\n" + b"x" * 200_000 + b"\n" + good + b"\n", name)
    assert [line for _, line, _, _ in found] == [1, 2, 3]
    assert found[1][3] == "the line is longer than 64 KiB"
    assert found[2][2] == "http://h/1"


def test_an_entry_does_not_print_its_url() -> None:
    assert "hunter2" not in repr(Entry(0, 1, "https://h/?sig=hunter2"))
