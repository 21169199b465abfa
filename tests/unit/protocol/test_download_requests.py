from __future__ import annotations

import gzip
import hashlib
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol import meanings
from airflow_provider_cloudstore.protocol.download_requests import MAX_REDIRECTS, Download
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.results import DownloadLink
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


def rest(start: int, total: int, **headers: str) -> Response:
    """A response with the bytes from ``start`` on."""
    own = {"content_range": f"bytes {start}-{total - 1}/{total}", "content_length": str(total - start), "etag": ETAG}
    return head(206, **(own | headers))


def started(**more: Any) -> Download:
    """A download whose first request is on its way."""
    download = Download("f1", settings(), **more)
    download.start_attempt(link())
    return download


def interrupted(headers: dict[str, str] | None = None, *, total: int = 10, received: bytes = b"01234") -> Download:
    """A download that broke after ``received``."""
    download = started()
    download.accept_head(head(200, content_length=str(total), **(headers or {"etag": ETAG})))
    download.accept_body(received)
    with pytest.raises(exceptions.TransientServiceError) as broken:
        download.accept_body(TransportFailure(meanings.IN_DOUBT, "connection reset"))
    assert broken.value.retried
    return download


def test_a_download_resumes_by_a_strong_etag_alone() -> None:
    request = interrupted().start_attempt(link())
    assert (request.headers["Range"], request.headers["If-Range"]) == ("bytes=5-", ETAG)
    date = {"last_modified": "Thu, 01 Jan 2026 00:00:00 GMT", "date": "Thu, 01 Jan 2026 00:00:09 GMT"}
    for headers in (date, {"etag": 'W/"v1"'}, {"etag": '""'}):
        download = interrupted(headers)
        assert "Range" not in download.start_attempt(link()).headers
        assert download.position == 0


@pytest.mark.parametrize(
    "response",
    [
        rest(6, 10),
        rest(5, 11),
        rest(5, 10, content_range="bytes 5-8/10"),
        rest(5, 10, etag='"v2"'),
        rest(5, 10, content_range=""),
        rest(5, 10, content_length="10"),
        rest(5, 10, content_encoding="gzip"),
        head(416, content_range="bytes */4"),
    ],
)
def test_what_is_not_the_rest_of_the_same_version_makes_the_download_start_over(response: Response) -> None:
    download = interrupted()
    download.start_attempt(link())
    with pytest.raises(exceptions.FileChangedError) as changed:
        download.accept_head(response)
    assert changed.value.retried
    assert "Range" not in download.start_attempt(link()).headers
    assert download.position == 0


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_rejected_link_is_an_attempt_and_loses_no_bytes(status: int) -> None:
    download = interrupted()
    download.start_attempt(link())
    with pytest.raises(exceptions.RequestRejectedError, match="rejected the link") as refused:
        download.accept_head(head(status))
    assert refused.value.retried
    assert download.attempts.count == 2
    assert download.start_attempt(link()).headers["Range"] == "bytes=5-"


def test_attempts_are_counted_since_the_last_bytes_came() -> None:
    download = interrupted(total=10**6, received=b"x" * 70_000)
    for _ in range(12):
        assert not download.attempts.exhausted
        download.start_attempt(link())
        download.accept_head(rest(download.position, 10**6))
        download.accept_body(b"x" * 70_000)
        with pytest.raises(exceptions.TransientServiceError):
            download.accept_body(b"")
        assert download.attempts.count == 1
    for _ in range(3):
        assert not download.attempts.exhausted
        download.start_attempt(link())
        with pytest.raises(exceptions.TransientServiceError):
            download.accept_body(b"")
    assert download.attempts.exhausted


def test_bytes_that_come_once_more_are_no_progress() -> None:
    download = interrupted({"date": "none"}, total=10**6, received=b"x" * 500_000)
    for count in (400_000, 300_000, 450_000):
        assert not download.attempts.exhausted
        download.start_attempt(link())
        download.accept_head(head(200, content_length="1000000"))
        assert download.position == 0
        download.accept_body(b"x" * count)
        with pytest.raises(exceptions.TransientServiceError):
            download.accept_body(b"")
    assert download.attempts.exhausted


@pytest.mark.parametrize(
    ("response", "kind", "again"),
    [
        (head(429, retry_after="7"), exceptions.RateLimitError, True),
        (head(503, retry_after="7"), exceptions.RateLimitError, True),
        (head(500), exceptions.TransientServiceError, True),
        (head(400), exceptions.BadRequestError, False),
        (head(204), exceptions.InvalidResponseError, False),
        (head(200, content_length="3, 4"), exceptions.InvalidResponseError, False),
        (head(200), exceptions.InvalidResponseError, False),
    ],
)
def test_every_other_response_is_an_error_that_says_whether_to_try_again(response: Response, kind: Any, again: bool) -> None:
    download = started()
    with pytest.raises(kind) as failed:
        download.accept_head(response)
    assert failed.value.retried is again
    assert failed.value.retry_after == (7.0 if response.headers.get("retry-after") == "7" else None)
    assert "t0ken" not in str(failed.value)


def test_a_download_host_that_cannot_be_reached_is_named_in_the_advice() -> None:
    with pytest.raises(exceptions.ServiceUnreachableError, match="download host"):
        started().accept_head(TransportFailure(meanings.UNREACHABLE, "connection refused"))


def test_a_body_without_an_end_of_its_own_is_taken_where_its_checksum_is_known() -> None:
    download = started(expected_sha256=hashlib.sha256(b"abc").hexdigest().upper())
    download.accept_head(head(200))
    download.accept_body(b"ab")
    download.accept_body(b"")
    with pytest.raises(exceptions.ChecksumError, match="2 bytes"):
        download.result("")
    download.accept_body(b"c")
    assert download.result("").bytes == 3
    assert started(expected_sha256=" ").result("").bytes == 0


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
    download = started()
    download.accept_head(head(200, content_length="0", content_disposition=header))
    assert download.result("/target").name == name


def test_the_files_own_name_is_that_of_the_version_which_was_downloaded() -> None:
    download = interrupted({"etag": ETAG, "content_disposition": "attachment; filename=old"})
    download.start_attempt(link())
    download.accept_head(rest(5, 10))
    assert download.result("").name == "old"
    download.accept_head(head(200, content_length="0", content_disposition="attachment; filename=new"))
    assert download.result("").name == "new"
    download.accept_head(head(200, content_length="0", content_type="text/html"))
    assert download.result("").to_dict() == {
        "file_id": "f1", "path": "", "name": None, "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()
    }  # fmt: skip


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


def downloaded(body: bytes, headers: dict[str, str], *, url: str = URL, target: str = "/in/f1", **more: Any) -> Any:
    """The result of a download that breaks in the middle and continues."""
    download = Download("f1", settings(), **more)
    download.start_attempt(link(url))
    download.accept_head(head(200, content_length=str(len(body)), etag=ETAG, **headers))
    download.accept_body(body[:10])
    with pytest.raises(exceptions.TransientServiceError):
        download.accept_body(b"")
    download.start_attempt(link(url))
    download.accept_head(rest(10, len(body)))
    download.accept_body(body[10:])
    download.accept_body(b"")
    return download.result(target)


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


def test_a_page_that_a_redirect_leads_to_is_no_file_whatever_its_url() -> None:
    download = started()
    assert download.accept_head(head(302, location="/login.html"))
    download.accept_head(head(200, content_length=str(len(PAGE)), content_type="text/html"))
    download.accept_body(PAGE)
    download.accept_body(b"")
    with pytest.raises(exceptions.InvalidResponseError, match="a web page in place of the file"):
        download.result("/in/f1")


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


def test_a_chunked_body_ends_with_its_last_chunk_whatever_content_length_says() -> None:
    download = started()
    download.accept_head(head(200, transfer_encoding="chunked", content_length="2"))
    download.accept_body(b"abc")
    download.accept_body(b"")
    assert download.result("").bytes == 3


def test_a_few_redirects_are_followed_and_the_next_attempt_begins_at_the_link_again() -> None:
    download = started()
    for location in ("https://other.example.org/x", *["/elsewhere?sig=1#part"] * (MAX_REDIRECTS - 1)):
        request = download.accept_head(head(302, location=location))
    assert request is not None
    assert request.url == "https://other.example.org/elsewhere?sig=1"
    with pytest.raises(exceptions.BadRequestError, match="more than 5 redirects"):
        download.accept_head(head(302, location="/x"))
    assert download.start_attempt(link()).url == URL


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://cdn.example.com/x", "plain http"),
        ("http://127.0.0.1/x", "plain http"),
        ("https://user:hunter2@cdn.example.com/x", "user name or password"),
        ("https://[::1/x", "no valid host"),
    ],
)
def test_a_redirect_is_followed_over_https_only(location: str, problem: str) -> None:
    with pytest.raises(exceptions.BadRequestError, match=problem) as refused:
        started().accept_head(head(302, location=location))
    assert "hunter2" not in str(refused.value)
    assert not refused.value.retried


def test_a_redirect_over_plain_http_is_followed_where_the_connection_allows_it() -> None:
    download = Download("f1", settings(allow_http=True))
    download.start_attempt(link("http://files.internal/d?t=1"))
    for location in ("/same-host", "http://files.internal:8080/x", "http://cdn.internal/x"):
        request = download.accept_head(head(302, location=location))
    assert request is not None
    assert request.url == "http://cdn.internal/x"
    with pytest.raises(exceptions.BadRequestError, match="scheme 'ftp'"):
        download.accept_head(head(302, location="ftp://cdn.internal/x"))


def test_a_download_url_in_plain_http_leads_to_this_machine_or_is_allowed_and_without_one_the_error_names_the_extra() -> None:
    elsewhere, here = link("http://cdn.example.com/t0ken"), link("http://127.0.0.1/x")
    assert Download("f1", settings(allow_http=True)).start_attempt(elsewhere).url == elsewhere.url_with_token
    assert Download("f1", settings()).start_attempt(here).url == here.url_with_token
    for refused, says in ((elsewhere, "plain http"), (link(None), "'download_url'")):
        with pytest.raises(exceptions.ConfigurationError, match=says) as error:
            Download("f1", settings()).start_attempt(refused)
        assert "t0ken" not in str(error.value)


def test_what_no_url_may_hold_is_encoded_before_it_is_sent() -> None:
    request = Download("f1", settings()).start_attempt(link("https://bücher.example/é?ü=%C3%A9"))
    assert request.url == "https://bücher.example/%C3%A9?%C3%BC=%C3%A9"
