"""What a download does on the wire, against a server of raw bytes."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.clients.downloads import DownloadClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import RawServer, Serve
from tests.support import TOKEN, settings

LINK_TOKEN = "link+token/=%"
DATA = bytes(range(256)) * 1024


class Target(bytearray):
    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear


class Minter:
    """Makes a link to each of ``urls`` in turn; the last one again and again."""

    def __init__(self, *urls: str) -> None:
        self.urls, self.made = list(urls), 0

    def __call__(self, file_id: str) -> DownloadLink:
        url = self.urls[min(self.made, len(self.urls) - 1)]
        self.made += 1
        return DownloadLink(file_id, LINK_TOKEN, url, pendulum.now("UTC"), None)


def response(status: str, *headers: str, body: bytes = b"", length: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, *([f"Content-Length: {len(body)}"] if length else [])]
    return "\r\n".join([*lines, "", ""]).encode() + body


def cut(body: bytes, at: int, *headers: str, status: str = "200 OK") -> bytes:
    whole = response(status, *headers, body=body)
    return whole[: len(whole) - len(body) + at]


def download(
    mint: Minter, own: Settings | None = None, target: Target | None = None, *, seconds: float = math.inf, **more: Any
) -> bytes:
    own, target = own or settings(timeout=2), Target() if target is None else target
    one = Download("f1", own, **more)
    with DownloadClient(own, mint, time_left=lambda: seconds) as client:
        client.run(one, target, on_retry=logging.getLogger(__name__).warning)
    assert one.result("").bytes == len(target)
    return bytes(target)


def requests(server: RawServer) -> list[str]:
    return [request.decode("latin-1") for request in server.requests]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_cloudstore.protocol.calls._MAX_BACKOFF", 0.01)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which take no time: the clock is set forward."""
    pauses: list[float] = []
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + sum(pauses))
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def test_the_bytes_come_and_neither_the_access_token_nor_a_cookie_goes(serve: Serve) -> None:
    server = serve(response("200 OK", "Set-Cookie: a=b", body=DATA))
    assert download(Minter(f"{server.url}/d/{LINK_TOKEN}?a=b")) == DATA
    (request,) = requests(server)
    assert request.startswith(f"GET /d/{LINK_TOKEN}?a=b HTTP/1.1\r\n")
    assert TOKEN not in request
    assert "authorization" not in request.lower()


def test_a_download_through_three_lost_connections_and_an_ended_link_is_whole(serve: Serve) -> None:
    tag = 'ETag: "v1"'
    part = "206 Partial Content"

    def rest(start: int) -> str:
        return f"Content-Range: bytes {start}-{len(DATA) - 1}/{len(DATA)}"

    server = serve(
        cut(DATA, 1000, tag),
        cut(DATA[1000:], 99_000, tag, rest(1000), status=part),
        cut(DATA[100_000:], 1, tag, rest(100_000), status=part),
        response("403 Forbidden"),
        response(part, tag, rest(100_001), body=DATA[100_001:]),
    )
    mint = Minter(server.url + "/old", server.url + "/new")
    assert download(mint) == DATA
    sent = requests(server)
    assert [one.split()[1] for one in sent] == ["/old", "/old", "/old", "/old", "/new"]
    assert "Range" not in sent[0]
    starts = [line for one in sent for line in one.splitlines() if line.startswith("Range")]
    assert starts == ["Range: bytes=1000-", "Range: bytes=100000-", "Range: bytes=100001-", "Range: bytes=100001-"]
    assert all('If-Range: "v1"' in one for one in sent[1:])
    assert mint.made == 2


def test_a_file_that_was_replaced_meanwhile_is_not_mixed(serve: Serve) -> None:
    other = DATA[::-1]
    server = serve(cut(DATA, 70_000, 'ETag: "v1"'), response("200 OK", 'ETag: "v2"', body=other))
    assert download(Minter(server.url)) == other
    lying = serve(
        cut(DATA, 70_000, 'ETag: "v1"'),
        response("206 Partial Content", 'ETag: "v2"', "Content-Range: bytes 70000-262143/262144", body=other[70_000:]),
        response("200 OK", 'ETag: "v2"', body=other),
    )
    assert download(Minter(lying.url)) == other


def test_a_host_without_parts_is_asked_for_all_of_it_again(serve: Serve) -> None:
    server = serve(cut(DATA, 70_000), response("200 OK", body=DATA))
    assert download(Minter(server.url)) == DATA
    assert not [one for one in requests(server) if "Range" in one]


def test_chunks_are_taken_and_a_chunk_that_is_cut_off_is_no_end(serve: Serve) -> None:
    chunked = response("200 OK", "Transfer-Encoding: chunked", length=False)
    server = serve(chunked + b"5\r\nhello\r\n5\r\nwor", chunked + b"5\r\nhello\r\n0\r\n\r\n")
    assert download(Minter(server.url)) == b"hello"
    assert len(server.requests) == 2


def test_interim_responses_are_passed_over(serve: Serve) -> None:
    server = serve(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + response("200 OK", body=b"abc"))
    assert download(Minter(server.url)) == b"abc"


def test_a_redirect_to_another_port_is_followed_without_a_secret_of_ours(serve: Serve) -> None:
    other = serve(response("200 OK", body=b"abc"))
    server = serve(response("302 Found", f"Location: {other.url}/there?sig=1"))
    assert download(Minter(f"{server.url}/{LINK_TOKEN}")) == b"abc"
    (request,) = requests(other)
    assert request.startswith("GET /there?sig=1 HTTP/1.1")
    assert TOKEN not in request
    assert LINK_TOKEN not in request
    assert "referer" not in request.lower()


@pytest.mark.parametrize("location", ["http://files.example.com/x", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_to_elsewhere_ends_the_download_and_spends_no_attempt(serve: Serve, location: str) -> None:
    server = serve(response("302 Found", f"Location: {location}"))
    with pytest.raises(errors.RedirectError):
        download(Minter(server.url))
    assert len(server.requests) == 1


def test_a_redirect_loop_ends(serve: Serve) -> None:
    server = serve(response("302 Found", "Location: /again"))
    with pytest.raises(errors.RedirectError, match="more than 5 redirects"):
        download(Minter(server.url))
    assert len(server.requests) == 6


def test_a_host_that_refuses_every_link_is_asked_a_bounded_number_of_times(serve: Serve) -> None:
    server = serve(response("410 Gone"))
    mint = Minter(server.url)
    with pytest.raises(errors.DownloadLinkRejectedError) as refused:
        download(mint)
    assert len(server.requests) == mint.made == 4
    assert refused.value.permanent


def test_a_host_that_fails_is_asked_as_often_as_the_connection_says(serve: Serve) -> None:
    server = serve(response("500 Oops", body=LINK_TOKEN.encode()))
    with pytest.raises(errors.TransientServiceError, match="HTTP 500") as failed:
        download(Minter(server.url), settings(max_attempts=3))
    assert len(server.requests) == 3
    assert LINK_TOKEN not in str(failed.value)


def test_a_host_that_goes_silent_in_the_middle_is_left_after_the_timeout(serve: Serve) -> None:
    over = threading.Event()
    server = serve(cut(DATA, 10), then=lambda _: bool(over.wait(30)) and None)
    try:
        with pytest.raises(errors.TransientServiceError, match=r"no complete response within 0\.3 s at byte 10 of 262,144"):
            download(Minter(server.url), settings(timeout=0.3, max_attempts=2))
    finally:
        over.set()


@pytest.mark.parametrize("response_start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n5;x="])
def test_a_response_that_trickles_does_not_outlast_the_timeout(serve: Serve, response_start: bytes) -> None:
    over = threading.Event()

    def trickle() -> Iterator[bytes]:
        yield response_start
        for _ in range(100):
            if over.wait(0.05):
                return
            yield b"x"
        pytest.fail("the client outlasted the trickle")

    server = serve(trickle)
    try:
        with pytest.raises(errors.TransientServiceError, match=r"within 0\.4 s"):
            download(Minter(server.url), settings(timeout=0.4, max_attempts=1))
    finally:
        over.set()


def test_a_part_that_was_not_requested_is_an_invalid_response_and_no_changed_file(serve: Serve) -> None:
    server = serve(response("206 Partial Content", 'ETag: "v1"', "Content-Range: bytes 0-2/3", body=b"abc"))
    with pytest.raises(errors.InvalidResponseError, match="to a request for the whole file"):
        download(Minter(server.url))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "changed",
    [
        response("412 Precondition Failed"),
        response("416 Range Not Satisfiable", "Content-Range: bytes */1000"),
        response("416 Range Not Satisfiable", "Content-Range: bytes */0"),
    ],
)
def test_a_resume_that_the_host_rejects_as_changed_starts_over(serve: Serve, changed: bytes) -> None:
    other = DATA[::-1]
    server = serve(cut(DATA, 70_000, 'ETag: "v1"'), changed, response("200 OK", 'ETag: "v2"', body=other))
    assert download(Minter(server.url), settings(max_attempts=3)) == other
    assert ["Range:" in one for one in requests(server)] == [False, True, False]


def test_a_host_that_rejects_every_resume_uses_up_the_attempts(serve: Serve) -> None:
    broken, rejected = cut(DATA, 70_000, 'ETag: "v1"'), response("412 Precondition Failed")
    server = serve(broken, rejected, broken, rejected, broken)
    with pytest.raises(errors.FileChangedError):
        download(Minter(server.url), settings(max_attempts=4))
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", ["412 Precondition Failed", "416 Range Not Satisfiable"])
def test_a_rejected_request_for_the_whole_file_is_permanent(serve: Serve, status: str) -> None:
    server = serve(response(status))
    with pytest.raises(errors.RequestRejectedError, match=f"HTTP {status[:3]}"):
        download(Minter(server.url))
    assert len(server.requests) == 1


def test_a_host_that_is_not_there_is_named_as_such_and_its_link_is_not(serve: Serve) -> None:
    with pytest.raises(errors.ServiceUnreachableError) as failed:
        download(Minter(f"http://127.0.0.1:9/{LINK_TOKEN}"), settings(max_attempts=2))
    assert "Check the port of the download host" in str(failed.value)
    assert LINK_TOKEN not in str(failed.value)


def test_what_makes_no_link_is_not_tried_again_by_the_download(serve: Serve) -> None:
    asked = []

    def fail(file_id: str) -> DownloadLink:
        asked.append(file_id)
        raise errors.TransientServiceError("HTTP 500", operation="download link", subject=file_id, status=500)

    with pytest.raises(errors.TransientServiceError), DownloadClient(settings(), fail) as client:
        client.run(Download("f1", settings()), Target(), on_retry=print)
    assert asked == ["f1"]


def test_an_error_of_the_target_ends_the_download_as_it_is(serve: Serve) -> None:
    class Full(Target):
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    server = serve(response("200 OK", body=DATA))
    with pytest.raises(OSError, match="No space left"), DownloadClient(settings(), Minter(server.url)) as client:
        client.run(Download("f1", settings()), Full(), on_retry=print)
    assert len(server.requests) == 1


def test_a_proxy_gets_the_whole_address_and_its_own_credentials_alone(serve: Serve) -> None:
    proxy = serve(response("200 OK", body=b"abc"))
    own = settings(proxy=Secret(f"http://user:pass@127.0.0.1:{proxy.port}"))
    assert download(Minter("http://localhost:1/d?t=1"), own) == b"abc"
    (request,) = requests(proxy)
    assert request.startswith("GET http://localhost:1/d?t=1 HTTP/1.1\r\n")
    assert "proxy-authorization: basic dxnlcjpwyxnz" in request.lower()
    assert TOKEN not in request


def test_a_proxy_of_the_environment_is_that_of_the_downloads_host(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(response("200 OK", body=b"abc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    own = settings(proxy=Secret("http://127.0.0.1:9"), proxy_is_inherited=True)
    assert download(Minter(server.url), own) == b"abc"


def test_no_log_line_of_a_library_shows_a_link(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    other = serve(cut(DATA, 70_000, 'ETag: "v1"'), response("404 Not Found"), response("200 OK", body=DATA))
    server = serve(response("302 Found", f"Location: {other.url}/{LINK_TOKEN}?s={LINK_TOKEN}"))
    assert download(Minter(f"{server.url}/{LINK_TOKEN}?t={LINK_TOKEN}")) == DATA
    assert "urllib3" in {record.name.partition(".")[0] for record in caplog.records}
    assert "link+token" not in caplog.text
    assert "?" not in caplog.text


def asked_to_wait(seconds: int, form: str, status: str = "429 Too Many Requests") -> Callable[[], list[bytes]]:
    """A response with ``Retry-After``, in seconds or as a date."""

    def answer() -> list[bytes]:
        date = formatdate(time.time() + seconds + 1, usegmt=True)  # is rounded down
        return [response(status, f"Retry-After: {seconds if form == 'seconds' else date}")]

    return answer


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable", "500 Oops"])
@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("seconds", [100_000, 10**9])
def test_a_pause_of_hours_is_left_to_airflows_retry(
    serve: Serve, slept: list[float], status: str, form: str, seconds: int
) -> None:
    server = serve(asked_to_wait(seconds, form, status), response("200 OK", body=DATA))
    with pytest.raises(errors.CloudStoreError) as failed:
        download(Minter(server.url))
    assert (slept, len(server.requests)) == ([], 1)
    assert failed.value.retry_after_too_long
    assert failed.value.retry_after is not None
    assert failed.value.retry_after >= 86_400


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize(("time_left", "limit"), [(100, 100), (math.inf, 300)])
def test_a_pause_is_begun_only_if_it_fits_into_the_time_that_is_left(
    serve: Serve, slept: list[float], form: str, time_left: float, limit: int
) -> None:
    fits = serve(asked_to_wait(limit - 2, form), response("200 OK", body=DATA))
    assert download(Minter(fits.url), seconds=time_left) == DATA
    assert slept == [pytest.approx(limit - 2, abs=1.1)]
    slept.clear()
    too_long = serve(asked_to_wait(limit + 1, form), response("200 OK", body=DATA))
    with pytest.raises(errors.RateLimitError) as failed:
        download(Minter(too_long.url), seconds=time_left)
    assert failed.value.retry_after_too_long
    assert slept == []


def test_pauses_count_towards_five_minutes_without_progress(serve: Serve, slept: list[float]) -> None:
    server = serve(asked_to_wait(100, "seconds"))
    with pytest.raises(errors.RateLimitError) as failed:
        download(Minter(server.url), settings(max_attempts=100))
    assert failed.value.retry_after_too_long
    assert slept == [100, 100]


def test_pauses_without_a_retry_after_count_as_well(serve: Serve, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_cloudstore.protocol.calls._MAX_BACKOFF", 60)
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    server = serve(cut(DATA, 1000, 'ETag: "v1"'), response("500 Oops"))
    with pytest.raises(errors.TransientServiceError, match="HTTP 500"):
        download(Minter(server.url), settings(max_attempts=100))
    assert 240 <= sum(slept) <= 300


def test_a_download_that_makes_progress_takes_as_long_as_it_needs(serve: Serve, slept: list[float]) -> None:
    tag, part = 'ETag: "v1"', "206 Partial Content"

    def rest(start: int) -> str:
        return f"Content-Range: bytes {start}-{len(DATA) - 1}/{len(DATA)}"

    class SlowTarget(Target):
        def write(self, data: bytes) -> None:
            super().write(data)
            time.sleep(1000)

    server = serve(
        cut(DATA, 80_000, tag),
        asked_to_wait(200, "seconds"),
        cut(DATA[80_000:], 80_000, tag, rest(80_000), status=part),
        asked_to_wait(200, "seconds"),
        response(part, tag, rest(160_000), body=DATA[160_000:]),
    )
    assert download(Minter(server.url), target=SlowTarget()) == DATA
    assert slept.count(200) == 2
    assert slept.count(1000) >= 3


def test_execution_timeout_ends_a_download_that_flows_and_is_named_with_byte_and_speed(serve: Serve) -> None:
    over = threading.Event()

    def flow() -> Iterator[bytes]:
        yield cut(DATA, 70_000)
        for byte in DATA[70_000:]:
            if over.wait(0.01):
                return
            yield bytes([byte])

    server = serve(flow)
    try:
        with pytest.raises(errors.CloudStoreError) as failed:
            download(Minter(server.url), settings(timeout=30), seconds=0.5)
    finally:
        over.set()
    assert re.fullmatch(
        r"download 'f1': the task's execution_timeout ended it at byte 70,0\d\d of 262,144, "
        r"after 0\.\d s at 1\d\d kB/s; increase it\.",
        str(failed.value),
    )
    assert not failed.value.permanent
    assert len(server.requests) == 1


def test_a_retry_says_whether_it_resumes_starts_over_or_takes_another_link(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    rest = f"Content-Range: bytes 70000-{len(DATA) - 1}/{len(DATA)}"
    server = serve(
        response("500 Oops"),
        cut(DATA, 70_000),
        cut(DATA, 70_000, 'ETag: "v1"'),
        response("410 Gone"),
        response("206 Partial Content", 'ETag: "v1"', rest, body=DATA[70_000:]),
    )
    assert download(Minter(server.url)) == DATA
    lines = [re.sub(r"in \d\.\d s", "in N s", record.message) for record in caplog.records if record.levelname == "WARNING"]
    broken = "the response ended early at byte 70,000 of 262,144"
    assert lines == [
        "download 'f1': attempt 1 of 4 failed (HTTP 500); retrying in N s",
        f"download 'f1': attempt 1 of 4 failed ({broken}); starting over in N s",
        f"download 'f1': attempt 2 of 4 failed ({broken}); resuming in N s",
        "download 'f1': HTTP 410: the download host rejected the link; creating another",
    ]
