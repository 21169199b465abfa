from __future__ import annotations

import gzip
import hashlib
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.download_requests import BEGINNING, MAX_REDIRECTS, Download
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure
from airflow_provider_cloudstore.results import DownloadedFile, DownloadLink
from tests.support import TOKEN, settings

URL = "https://cdn.example.com/d/t0ken-of-a-link?sig=a%2Bb"
ETAG = '"v1"'
NOW = pendulum.datetime(2026, 1, 1)


def link(url: str | None = URL) -> DownloadLink:
    return DownloadLink("f1", "t0ken-of-a-link", url, NOW, None)


def head(status: int, **headers: str) -> Response:
    return Response(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, b"", NOW.timestamp(), NOW.timestamp()
    )


def rest(**headers: str) -> Response:
    """The bytes from 5 on of a file of 10."""
    return head(206, **({"content_range": "bytes 5-9/10", "content_length": "5", "etag": ETAG} | headers))


def interrupted(**headers: str) -> Download:
    """A download of 10 bytes that broke after 5."""
    download = Download("f1", settings())
    assert download.accept(head(200, content_length="10", **(headers or {"etag": ETAG}))) == 0
    download.add(b"12345")
    with pytest.raises(exceptions.TransientServiceError) as broken:
        download.check_end()
    assert broken.value.retried
    assert download.without_response(TransportFailure(True, "connection reset")).retried
    return download


def ended(download: Download, body: bytes, url: str = URL, target: str = "") -> DownloadedFile:
    download.add(body)
    download.check_end()
    return download.result(link(url), target, body[:BEGINNING])


def downloaded(body: bytes, headers: dict[str, str], *, url: str = URL, target: str = "/in/f1", **more: Any) -> DownloadedFile:
    download = Download("f1", settings(), **more)
    download.accept(head(200, content_length=str(len(body)), **headers))
    return ended(download, body, url, target)


def test_a_download_resumes_by_a_strong_etag_alone() -> None:
    request = interrupted().request(URL)
    assert (request.headers["Range"], request.headers["If-Range"]) == ("bytes=5-", ETAG)
    assert interrupted().accept(rest()) == 5
    for headers in ({"last_modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, {"etag": 'W/"v1"'}, {"etag": '""'}):
        assert "Range" not in interrupted(**headers).request(URL).headers


@pytest.mark.parametrize(
    "response",
    [
        rest(content_range="bytes 6-9/10"),
        rest(content_range="bytes 5-10/11"),
        rest(content_range="bytes 5-8/10"),
        rest(content_range=""),
        rest(etag='"v2"'),
        head(416, content_range="bytes */4"),
    ],
)
def test_what_is_not_the_rest_of_the_same_version_makes_the_download_start_over(response: Response) -> None:
    download = interrupted()
    with pytest.raises(exceptions.TransientServiceError, match="in place of the rest of the file") as changed:
        download.accept(response)
    assert changed.value.retried
    assert "Range" not in download.request(URL).headers
    assert download.accept(head(200, content_length="3")) == 0
    assert ended(download, b"new").bytes == 3


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_rejected_link_is_an_attempt_and_loses_no_bytes(status: int) -> None:
    download = interrupted()
    with pytest.raises(exceptions.TransientServiceError, match="rejected the link") as refused:
        download.accept(head(status))
    assert refused.value.retried
    assert download.request(URL).headers["Range"] == "bytes=5-"


@pytest.mark.parametrize(
    ("response", "kind", "again"),
    [
        (head(429, retry_after="7"), exceptions.RateLimitError, True),
        (head(503, retry_after="7"), exceptions.TransientServiceError, True),
        (head(500), exceptions.TransientServiceError, True),
        (head(400), exceptions.BadRequestError, False),
        (head(204), exceptions.InvalidResponseError, False),
        (head(200, content_length="3, 4"), exceptions.InvalidResponseError, False),
        (head(200), exceptions.InvalidResponseError, False),
    ],
)
def test_every_other_response_is_an_error_that_says_whether_to_try_again(response: Response, kind: Any, again: bool) -> None:
    with pytest.raises(kind) as failed:
        Download("f1", settings()).accept(response)
    assert failed.value.retried is again
    assert failed.value.retry_after == (7.0 if response.headers.get("retry-after") == "7" else None)


def test_a_body_of_unknown_length_needs_chunks_or_a_checksum() -> None:
    assert Download("f1", settings()).accept(head(200, transfer_encoding="chunked")) == 0
    for expected, content in ((b"abc", b"ab"), (b"abc", b"abc")):
        download = Download("f1", settings(), expected_sha256=hashlib.sha256(expected).hexdigest().upper())
        download.accept(head(200))
        if content == expected:
            assert ended(download, content).bytes == 3
        else:
            with pytest.raises(exceptions.ChecksumError, match="2 bytes"):
                ended(download, content)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("attachment; filename=report 2026.csv", "report 2026.csv"),
        ("inline; FileName=a.csv; size=3", "a.csv"),
        ('attachment; filename="a;b\\"c.csv"', 'a;b"c.csv'),
        ("attachment; filename=\"e.csv\"; filename*=UTF-8''%E2%82%AC%20b.csv", "e.csv"),
        ("attachment; filename*=iso-8859-1'en'%A3.csv; filename=l.csv", "l.csv"),
        ('attachment; filename="€ ü.csv"'.encode().decode("latin-1"), "€ ü.csv"),
        ('attachment; filename="../../etc/passwd"', "passwd"),
        ('attachment; filename="C:\\\\exports\\\\a.csv"', "a.csv"),
        ("attachment; filename*=UTF-8''..%2Fb%00%0Ac.csv", "bc.csv"),
        (f'attachment; filename="{TOKEN}-t0ken-of-a-link.csv"', "***-***.csv"),
        ('attachment; filename="a/.."', None),
        ("attachment", None),
        ("", None),
    ],
)
def test_the_files_own_name_is_the_last_part_of_the_one_that_the_host_gives(header: str, name: str | None) -> None:
    assert downloaded(b"", {"content_disposition": header}).name == name


PAGE = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>"
ERROR = b'{"_status": "error", "response": "link t0ken-of-a-link expired"}'
NO_FILES = {
    "a page": (PAGE, {"content_type": "text/html; charset=utf-8"}),
    "a page that is no HTML": (b"Please sign in", {"content_type": "TEXT/HTML"}),
    "a page without a type": (b"\xef\xbb\xbf\n<HTML lang=en>" + b"x" * 100_000, {}),
    "a page of another type": (b'<?xml version="1.0"?>\n' + PAGE, {"content_type": "application/octet-stream"}),
    "a compressed page": (gzip.compress(PAGE), {"content_encoding": "gzip"}),
    "an error": (ERROR, {}),
    "a compressed error": (gzip.compress(ERROR), {"content_encoding": "gzip", "content_type": "application/json"}),
}


@pytest.mark.parametrize(("body", "headers"), NO_FILES.values(), ids=NO_FILES)
def test_a_page_or_an_error_is_the_file_only_where_something_says_so(body: bytes, headers: dict[str, str]) -> None:
    for more in ({}, {"target": "/in/html"}, {"target": "s3://bucket/f.csv", "url": "https://h/json?name=a.html&b=c.json"}):
        with pytest.raises(exceptions.InvalidResponseError, match=r"in place of the file.*\n.*expected_sha256") as failed:
            downloaded(body, headers, **more)
        assert (failed.value.status, failed.value.retried) == (200, False)
        assert "t0ken" not in str(failed.value)
    assert downloaded(body, headers, expected_sha256=hashlib.sha256(body).hexdigest())
    assert downloaded(body, headers | {"content_disposition": "attachment"})


@pytest.mark.parametrize("ending", [".html", ".HTM", ".json"])
@pytest.mark.parametrize("place", ["target", "url"])
def test_a_page_or_an_error_is_the_file_where_a_name_says_so(ending: str, place: str) -> None:
    wanted: Any = {"target": f"s3://bucket/f{ending}"} if place == "target" else {"url": f"https://h/f{ending}?sig=1"}
    page, error = NO_FILES["a page"], NO_FILES["an error"]
    same, other = (error, page) if ending == ".json" else (page, error)
    assert downloaded(*same, **wanted).bytes == len(same[0])
    with pytest.raises(exceptions.InvalidResponseError):
        downloaded(*other, **wanted)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'<?xml version="1.0"?><html-export/>', {"content_type": "application/xml"}),
        (b"<svg/>" + PAGE, {}),
        (b'{"status": "done", "rows": [{"error": "x"}]}', {}),
        (ERROR + b" " * 2**16, {}),
        (ERROR + b"\n" + ERROR, {}),
        *[(b"\x1f\x8b" + b"x" * 100, {"content_encoding": coding}) for coding in ("gzip", "br", "UTF-8")],
    ],
)
def test_what_is_neither_a_page_nor_an_error_is_the_file(body: bytes, headers: dict[str, str]) -> None:
    assert downloaded(body, headers).sha256 == hashlib.sha256(body).hexdigest()


def test_the_words_of_an_error_in_place_of_the_file_are_shown_without_the_links_token() -> None:
    with pytest.raises(exceptions.InvalidResponseError, match=r"an error in place of the file: link \*\*\* expired"):
        downloaded(ERROR, {})
    with pytest.raises(exceptions.InvalidResponseError, match="an error in place of the file: 404"):
        downloaded(b'{"code": 404, "hint": ""}', {})


def test_a_few_redirects_are_followed() -> None:
    download = Download("f1", settings())
    assert download.redirect(head(200), URL, 0) == ""
    moved = head(302, location="/elsewhere é?sig=1#part")
    url = download.redirect(moved, URL, MAX_REDIRECTS - 1)
    assert download.request(url).url == "https://cdn.example.com/elsewhere%20%C3%A9?sig=1"
    with pytest.raises(exceptions.BadRequestError, match="more than 5 redirects"):
        download.redirect(moved, URL, MAX_REDIRECTS)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://cdn.example.com/x", "plain http"),
        ("https://user:hunter2@cdn.example.com/x", "user name or password"),
        ("https://[::1/x", "no valid host"),
        ("ftp://cdn.example.com/x", "scheme 'ftp'"),
    ],
)
def test_a_url_in_plain_http_leads_to_this_machine_or_is_allowed(url: str, problem: str) -> None:
    for found in (Download("f1", settings()).redirect(head(302, location=url), URL, 0), url):
        with pytest.raises(exceptions.BadRequestError, match=problem) as refused:
            Download("f1", settings()).request(found)
        assert "hunter2" not in str(refused.value)
        assert not refused.value.retried
    assert Download("f1", settings()).request("http://127.0.0.1/x")
    assert Download("f1", settings(allow_http=True)).request("http://cdn.example.com/x")


def test_a_link_without_a_url_names_the_extra_and_what_no_url_may_hold_is_encoded() -> None:
    download = Download("f1", settings())
    with pytest.raises(exceptions.ConfigurationError, match="'download_url'") as error:
        download.url_of(link(None))
    assert "t0ken" not in str(error.value)
    assert download.url_of(link("https://bücher.example/é?ü=%C3%A9")) == "https://bücher.example/%C3%A9?%C3%BC=%C3%A9"
