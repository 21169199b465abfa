from __future__ import annotations

import gc
import gzip
import io
import os
import time
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import MAX_LINE_LENGTH, Entry, list_manifest, spooled_manifest
from airflow_provider_cloudstore.protocol.errors import InvalidInputError

Line = tuple[int, Any, str]
URLS = ["http://h/1", "http://h/2"]


def entries_of(content: bytes, name: str, column: str = "url", key_column: str | None = None) -> list[Entry]:
    manifest = spooled_manifest(io.BytesIO(content), name, column, key_column)
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


def problems_of(found: list[Line]) -> list[tuple[int, str]]:
    return [(line, problem) for line, _, problem in found if problem]


def refusal_of(content: bytes, name: str, column: str = "url", key_column: str | None = None) -> str:
    with pytest.raises(InvalidInputError, match=rf"^the manifest {name} .*; nothing was sent") as refused:
        entries_of(content, name, column, key_column)
    return str(refused.value)


def test_a_list_is_its_own_manifest() -> None:
    manifest = list_manifest(["a", None])
    for _ in range(2):
        assert list(manifest()) == [Entry(1, "a"), Entry(2, None)]


def test_an_entry_does_not_print_its_url() -> None:
    assert "hunter2" not in repr(Entry(1, "https://h/?sig=hunter2"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_each_reading_begins_at_the_first_entry_even_after_one_that_was_given_up(pack: Callable[[bytes], bytes]) -> None:
    lines = [f"http://h/{number}" for number in range(30_000)]  # more than what is read at a time
    source = io.BytesIO(pack("\n".join(lines).encode()))
    manifest = spooled_manifest(source, "u.txt", "url")
    source.close()
    given_up = manifest()
    for _ in range(15_000):
        next(given_up)
    assert [entry.url for entry in manifest()] == lines


def test_the_copy_is_there_for_as_long_as_it_is_read_and_then_closed(recwarn: pytest.WarningsRecorder) -> None:
    before = set(os.listdir("/proc/self/fd"))
    manifest = spooled_manifest(io.BytesIO(b"http://h/1"), "u.txt", "url")
    reading = manifest()
    del manifest
    gc.collect()
    assert [entry.url for entry in reading] == ["http://h/1"]
    del reading
    gc.collect()
    assert not set(os.listdir("/proc/self/fd")) - before
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]


# --- Formats -----------------------------------------------------------------------------------------------------------------


def test_text_has_a_url_a_line_and_may_have_blanks_and_comments() -> None:
    assert read(b"\xef\xbb\xbfhttp://h/1\r\n\n  # note\n http://h/2 \nhttp://h/\xc3\xa9") == [
        (1, "http://h/1", ""), (4, "http://h/2", ""), (5, "http://h/é", ""),
    ]  # fmt: skip


TEXT = b"http://h/1\nhttp://h/2\n"
CSV = b"id,url\n1,http://h/1\n2,http://h/2\n"
JSON = b'{"url": "http://h/1"}\n"http://h/2"\n'
UNNAMED = ["urls", "urls.txt", "urls.dat.gz", "/data/urls.d/urls", "urls.TXT", "urls.parquet"]


@pytest.mark.parametrize("name", UNNAMED)
@pytest.mark.parametrize("before", [b"", b"\n \n# a note\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n#x\n"])
@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        CSV,
        CSV.replace(b",", b"\t"),
        CSV.replace(b",", b";"),
        b'"id","url"\n1,http://h/1\n2,http://h/2',
        b'"url"\nhttp://h/1\nhttp://h/2',
        JSON,
        b'"http://h/1"\n{"url": "http://h/2"}',
    ],
)
def test_a_name_that_does_not_say_leaves_the_format_to_the_content(name: str, before: bytes, content: bytes) -> None:
    assert urls_of(before + content, name) == URLS


@pytest.mark.parametrize("name", ["URLS.CSV", "urls.Csv.GZ", "urls.csv.gzip", "urls.tsv", "u.TAB"])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_the_delimiter_of_a_csv_is_the_one_with_which_its_header_holds_the_column(name: str, delimiter: str) -> None:
    content = f" URL {delimiter}Id\nhttp://h/1{delimiter}7\n".encode()
    assert entries_of(content, name, "url", "id") == [Entry(2, "http://h/1", "", "7")]


@pytest.mark.parametrize("name", ["urls.jsonl", "urls.NDJSON.gz", "urls.json"])
def test_json_lines_are_objects_with_a_named_key_or_strings(name: str) -> None:
    content = b'{"url": "http://h/1"}\n\n{"url": 5}\n{broken\n[1]\n{"x": 1}\n"http://h/2"\n7\n{"url": "\xff"}\n' + b"[" * 60_000
    assert read(content, name) == [
        (1, "http://h/1", ""),
        (3, 5, ""),
        (4, None, "the line is not JSON"),
        (5, None, "the line has no key 'url'"),
        (6, None, "the line has no key 'url'"),
        (7, "http://h/2", ""),
        (8, None, "the line has no key 'url'"),
        (9, "\udcff", ""),  # no URL, as its validation finds
        (10, None, "the line is not JSON"),
    ]


@pytest.mark.parametrize("name", ["urls.json", "urls.jsonl", "urls", "urls.txt.gz"])
@pytest.mark.parametrize(
    "content", [b'["http://h/1", "http://h/2"]', b'\n[\n  "http://h/1"\n]\n', b"\xef\xbb\xbf[]", b"[" * 300_000]
)
def test_a_json_array_is_refused_with_what_to_write(name: str, content: bytes) -> None:
    assert "is a JSON array: write JSON Lines, one object or string a line, or pass the list as urls" in refusal_of(content, name)


@pytest.mark.parametrize("name", [*UNNAMED[:3], "u.csv", "u.json"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n"])
def test_a_file_without_a_line_has_no_entries(name: str, content: bytes) -> None:
    assert read(content, name) == []


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (b"id;link\n1;http://h/1\n", "'id', 'link'"),
        (b"Source (old)\tname\n", "'source (old)', 'name'"),
        (b'"id","link"\n1,http://h/1\n', "'id', 'link'"),
        (b"url,URL \n", "'url', 'url'"),
        (b"not-a-url\nhttp://h/1\n", "'not-a-url'"),
        (b"<!DOCTYPE html>\n", "none"),
        (b'"a" b,url\n', "none"),
        (b"u:hunter2@h/1,h/?sig=hunter2,7\n", "'7'"),
        (b"//u:hunter2@h/1\n", "none"),
        (b'"http://u:hunter2@h/1","1"\n', "'1'"),
    ],
)
@pytest.mark.parametrize("name", ["urls", "urls.csv.gz"])
def test_what_begins_like_no_format_is_refused_with_its_columns_unless_they_look_like_urls(
    content: bytes, columns: str, name: str
) -> None:
    refused = refusal_of(content, name)
    assert "is neither JSON Lines, nor text with a URL a line, nor CSV whose header names the column 'url' once" in refused
    known = f"set url_column or key_column to one of its columns, which are {columns};"
    assert (known if columns != "none" else "its first line is no header;") in refused
    assert "hunter2" not in refused


def test_a_csv_whose_first_line_is_a_url_or_that_lacks_the_key_column_is_refused() -> None:
    assert "which are '1';" in refusal_of(b"http://h/?sig=hunter2,1", "urls.csv")
    assert "nor CSV whose header names the column 'key' once" in refusal_of(b"url,id\n", "urls.csv", key_column="key")


@pytest.mark.parametrize("end", [",1", ";1", ",", ",x=1", ";a;b"])
@pytest.mark.parametrize("name", ["urls", "urls.txt"])
def test_a_csv_without_a_header_is_refused_once_it_is_read(end: str, name: str) -> None:
    lines = "".join(f"https://e.example/a{number}{end}\n" for number in range(3))
    refused = refusal_of(lines.encode(), name)
    assert "looks like CSV without a header, because each line has a value after" in refused
    assert "add a header with the column 'url'" in refused
    assert "JSON Lines" in refused
    assert "e.example" not in refused


@pytest.mark.parametrize(
    "lines",
    [
        ["https://e.example/a,1"],
        ["https://e.example/a,1", "https://e.example/b"],
        ["https://e.example/a,1", "https://e.example/b;1"],
        ["https://e.example/w_1,h_1/a", "https://e.example/w_1,h_1/b"],
    ],
)
def test_text_whose_urls_hold_delimiters_is_text(lines: list[str]) -> None:
    assert urls_of("\n".join(lines).encode(), "urls.txt") == lines


def test_text_has_no_column_for_a_key() -> None:
    assert "is text with a URL a line, which has no column 'id'" in refusal_of(TEXT, "urls", key_column="id")


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize(
    ("name", "content"), [("u.txt", TEXT), ("u.csv", CSV), ("u.jsonl", JSON), ("u", TEXT), ("u", CSV), ("u", JSON)]
)
def test_lines_end_in_any_way(end: bytes, name: str, content: bytes) -> None:
    for written in (content, content.replace(b"\n", b"\n\n"), b"\n" * 3 + content.rstrip()):
        found = read(written.replace(b"\n", end), name)
        assert [url for _, url, _ in found] == URLS
        assert found == read(written, name)


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
@pytest.mark.parametrize("block", [8 * 1024, 256 * 1024], ids=["read at a time", "copied at a time"])
def test_a_line_end_may_be_cut_by_a_block(block: int, end: bytes) -> None:
    before = (b"#" * 1023 + b"\n") * (block // 1024 - 1)
    for ends_at in range(block - 2, block + 2):
        first = b"http://h/1".ljust(ends_at - len(before), b"x")
        assert read(before + first + end + b"http://h/2", "u.txt") == [
            (block // 1024, first.decode(), ""),
            (block // 1024 + 1, "http://h/2", ""),
        ]


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04\x14\0..", b"\xfd7zXZ\x00..", "http://h/1".encode("utf-16"), "http://h/1".encode("utf-16-le"),
        b"\xd0\xcf\x11\xe0\0\0\0\0", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0),
    ],
    ids=["zip", "xz", "UTF-16", "UTF-16LE", "Excel", "gzip in gzip"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["urls.csv", "urls.txt"])
def test_a_binary_file_is_refused(content: bytes, name: str) -> None:
    assert "is binary or UTF-16: a manifest is UTF-8 text, CSV or JSON Lines, plain or gzip" in refusal_of(content, name)


@pytest.mark.parametrize("content", [b"\x28\xb5\x2f\xfd..", b"BZh91AY", b"PAR1...."], ids=["zstandard", "bzip2", "Parquet"])
@pytest.mark.parametrize("name", ["urls.csv", "urls.txt"])
def test_a_file_of_another_format_is_refused(content: bytes, name: str) -> None:
    assert "is neither JSON Lines, nor text with a URL a line, nor CSV" in refusal_of(content, name)


@pytest.mark.parametrize("name", ["urls.txt.gz", "urls.csv.gz", "urls.jsonl", "urls"])
def test_a_truncated_gzip_is_refused(name: str) -> None:
    lines = b"".join(b'"http://h/%d"\n' % (number * 7919) for number in range(2_000))
    whole = gzip.compress(b"url\n" + lines if "csv" in name or name == "urls" else lines)
    for content in (whole[:-4], whole[: len(whole) // 2], whole[:-8] + b"12345678"):
        assert "is gzip, but damaged or cut short" in refusal_of(content, name)


# --- CSV ---------------------------------------------------------------------------------------------------------------------


def test_csv_has_a_named_column_and_quoted_line_breaks() -> None:
    content = b'id,link\n1,http://h/1\n2,"http://h/2"\n3,\n"4\n\n""4",http://h/4\n5\n'
    assert read(content, "urls.csv", "link") == [
        (2, "http://h/1", ""),
        (3, "http://h/2", ""),
        (4, None, "the line has no value in column 'link'"),
        (5, "http://h/4", ""),
        (8, None, "the line has no value in column 'link'"),
    ]
    assert [entry.key for entry in entries_of(content, "urls.csv", "link", "id")] == ["1", "2", "3", '4\n\n"4', "5"]


@pytest.mark.parametrize("content", [b"# exported today\n\n#url,other\nid,url\n1,http://h/1\n", b"id,#url\n1,http://h/1\n"])
def test_comments_may_precede_the_header_of_a_csv(content: bytes) -> None:
    assert urls_of(content, "u.csv", "#url" if b",#url" in content else "url") == ["http://h/1"]


@pytest.mark.parametrize(
    ("delimiter", "header", "row", "fields"),
    [
        (",", "id,url", "1,http://h/w_1,h_1/x.png", "3 fields and the header 2"),
        (",", "url,id", "http://h/?sig=a,b,1", "3 fields and the header 2"),
        (",", "url", "http://h/1,", "2 fields and the header 1"),
        (",", "id,url", "1,http://h/1,,x", "4 fields and the header 2"),
        (",", "id,url", '1,"http://h/1","2",', "4 fields and the header 2"),
        ("\t", "id,url", "1,http://h/1,2", "3 fields and the header 2"),
        (";", "id,url", "1,http://h/1,2", "3 fields and the header 2"),
    ],
)
def test_a_row_with_more_fields_than_the_header_is_a_bad_line_and_no_cut_url(
    delimiter: str, header: str, row: str, fields: str
) -> None:
    good = header.replace("url", "http://h/0").replace("id", "0")
    content = "\n".join([header, row, good]).replace(",", delimiter)
    problem = f"the line has {fields}: quote values that hold the delimiter"
    assert read(content.encode(), "urls.csv") == [(2, None, problem), (3, "http://h/0", "")]


def test_empty_fields_at_the_end_of_a_row_pass_where_no_url_can_have_been_cut() -> None:
    content = b'url,id\nhttp://h/1,1,,\nhttp://h/2\n"http://h/w_1,h_1",3\n'
    assert urls_of(content, "urls.csv") == ["http://h/1", "http://h/2", "http://h/w_1,h_1"]


INVALID = "is not valid CSV (RFC 4180) in line 6:"
SWALLOWED = "has a quote in line 6 that is closed only in line 71, with rows in between"
TOO_LONG = "row in line 6 that is longer than 128 KiB, or a quote"


@pytest.mark.parametrize(
    ("fifth", "last", "words"),
    [
        ('5,"http://h/5', '70,http://h/70"', SWALLOWED),
        ('5,"http://h/5' + 99_999 * "x", "70,http://h/70" + 99_999 * "x", TOO_LONG),
        ('"5,http://h/5', '7"0,http://h/70', INVALID),
        ('5,"http://h/5', "70,http://h/70", INVALID),
        ('5,"http://h/"5', "70,http://h/70", INVALID),
        ('5,"http://h/"5""', "70,http://h/70", INVALID),
        ('5,http://h/?q="a"', "70,http://h/70", INVALID),
        ('5, "http://h/5"', "70,http://h/70", INVALID),
        ('5,"http://h/5" ', "70,http://h/70", INVALID),
        ('12",http://h/5', '12",http://h/70', INVALID),
    ],
)
def test_a_stray_quote_swallows_no_rows(fifth: str, last: str, words: str) -> None:
    rows = [f"{number},http://h/{number}" for number in range(1, 101)]
    rows[4], rows[69] = fifth, last
    assert words in refusal_of("\n".join(["id,url", *rows]).encode(), "urls.csv")


@pytest.mark.parametrize(("header", "rest"), [("id,url", ""), ("id,url,a", ",x")])
def test_rows_inside_a_quoted_value_are_found_even_if_half_of_their_fields_are_missing(header: str, rest: str) -> None:
    content = f'{header}\n1,"http://h/1\nhttp://h/2{rest}"{"," * (header.count(",") - 1)}\n'
    words = "has a quote in line 2 that is closed only in line 3, with rows in between"
    assert words in refusal_of(content.encode(), "urls.csv")


@pytest.mark.parametrize("row", [b'"' * 131_000 + b",x", b'""' * 65_000 + b'"a"', b'"a",' * 32_000 + b'x"y"', b'a"' * 65_000])
def test_quotes_take_no_more_time_than_their_number(row: bytes) -> None:
    started = time.process_time()
    with suppress(InvalidInputError):
        entries_of(b"url\n" + row + b"\n", "urls.csv")
    assert time.process_time() - started < 2


# --- Limits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "before", "after"), [("u.txt", b"", b""), ("u.jsonl", b'{"url": "', b'"}'), ("u", b"", b"")])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_line_of_more_than_128_kib_is_a_bad_line(name: str, before: bytes, after: bytes, end: bytes) -> None:
    good = before + b"http://h/1" + after
    longest = before + b"http://h/1".ljust(MAX_LINE_LENGTH - 1 - len(before + after), b"x") + after
    lines = [good, longest, longest + b" ", longest * 5, good]
    assert len(longest + b"\n") == 131_072
    found = read(end.join(lines), name)
    assert problems_of(found) == [(3, "the line is longer than 128 KiB"), (4, "the line is longer than 128 KiB")]
    assert [len(found[index][1]) for index in (0, 1, 4)] == [10, MAX_LINE_LENGTH - 1 - len(before + after), 10]


def test_a_row_of_more_than_128_kib_refuses_a_csv() -> None:
    longest = b"http://h/1".ljust(MAX_LINE_LENGTH - 3, b"x")
    for quoted in (longest + b"xx", b'"' + longest + b'"'):
        assert len(urls_of(b"url\n" + quoted + b"\nhttp://h/1", "u.csv")) == 2
    for too_long in (longest + b"xxx", b'"' + longest + b'x"', b'"a\n' + longest[:-1] + b'"'):
        assert "has a row in line 2 that is longer than 128 KiB" in refusal_of(b"url\n" + too_long + b"\nhttp://h/1", "u.csv")


@pytest.mark.parametrize(
    ("name", "start", "repeated", "is_refused"),
    [
        ("u.txt", b"http://h/1\n", b"x", False), ("u.jsonl", b'"http://h/1"\n', b"x", False), ("u.csv", b"url\n", b"x", True),
        ("u.csv", b'url\n"', b"\n", True), ("u.txt", b"", b"x", True), ("u", b"http://h/1\n", b" ", False),
    ],
)  # fmt: skip
def test_a_line_without_end_takes_no_memory(name: str, start: bytes, repeated: bytes, is_refused: bool) -> None:
    packed = gzip.compress(start + repeated * (16 * 1024 * 1024), compresslevel=1)
    entries = spooled_manifest(io.BytesIO(packed), name, "url")()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError) if is_refused else nullcontext():
            assert len(list(entries)) <= 2
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "header", "last"),
    [("u.txt", b"", b"http://h/1"), ("u.jsonl", b"", b'"http://h/1"'), ("u.csv", b"url\n", b"http://h/1")],
)
def test_any_number_of_blank_lines_is_passed_over(name: str, header: bytes, last: bytes) -> None:
    ((line, url, _),) = read(header + b"\n" * 10_000 + last, name)
    assert (line, url) == (10_001 + header.count(b"\n"), "http://h/1")
