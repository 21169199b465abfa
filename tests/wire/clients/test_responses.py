"""What comes of raw bytes, for both clients and for downloads: what is unclear is an unknown outcome, or no download."""

from __future__ import annotations

import gzip
import itertools
import time
import tracemalloc
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.calls import CreateDownloadLink, UploadFromUrl
from tests.raw_server import HEAD, OK, slowly, stay_open
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import LINK_TOKEN, WAYS, Send, Serve, Way, send_once

SECRETS = (TOKEN, LINK_TOKEN, "link%2Btoken", "hunter2", "hunter3", "access_token", "Bearer")
SUBJECT = "https://user:hunter2@h/f?sig=hunter3"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = HEAD + b"Content-Encoding: gzip\r\n"


def in_gzip(body: bytes) -> bytes:
    packed = gzip.compress(body, mtime=0)
    return GZIP + f"Content-Length: {len(packed)}\r\n\r\n".encode() + packed


ALL, NONE, ASYNCHRONOUS, CALLS = set(WAYS), set[str](), {"asynchronous"}, {"blocking", "asynchronous"}
# Who takes it for a response with the body {}; for the others it is an unknown outcome, or no download.
RAW = {
    "chunks with extension and trailer": (CHUNKED + b"2;a=b\r\n{}\r\n0\r\nT: x\r\n\r\n", ALL),
    "after 100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, ALL),
    "after 102 Processing": (b"HTTP/1.1 102 Processing\r\n\r\n" + OK, ASYNCHRONOUS),
    "after 103 Early Hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, ASYNCHRONOUS),
    "a blank behind chunked": (HEAD + b"Transfer-Encoding: chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n", ASYNCHRONOUS),
    "two codings": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", ASYNCHRONOUS),
    "neither length nor chunks": (HEAD + b"\r\n{}", CALLS),
    "too few bytes": (HEAD + b"Content-Length: 3\r\n\r\n{}", NONE),
    "no last chunk": (CHUNKED + b"2\r\n{}\r\n", NONE),
    "a chunk without a size": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", NONE),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}}", NONE),
    "no HTTP": (b"nonsense\r\n\r\n", NONE),
    "gzip": (in_gzip(b"{}"), CALLS),
    "gzip that is none": (GZIP + b"Content-Length: 2\r\n\r\n{}", NONE),
    "a coding that nobody knows": (HEAD + b"Content-Encoding: x\r\nContent-Length: 2\r\n\r\n{}", NONE),
}


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("client", WAYS)
def test_a_raw_response_is_read_once_and_what_is_unclear_is_unknown(serve: Serve, client: str, name: str) -> None:
    response, understood = RAW[name]
    server = serve(response)
    outcome = send_once(WAYS[client], settings(server.url), UploadFromUrl, SUBJECT)
    assert len(server.requests) == 1
    if client in understood:
        assert outcome == "{}"
    else:
        assert isinstance(outcome, exceptions.CloudStoreError)
        assert outcome.sent is True


@pytest.mark.parametrize("first", ["after 102 Processing", "a blank behind chunked", "a chunk without a size"])
@pytest.mark.parametrize("client", ["blocking", "download"])
def test_a_connection_with_an_unclear_response_is_not_used_again(serve: Serve, client: str, first: str) -> None:
    server = serve(RAW[first][0], HEAD + b"Content-Length: 1\r\n\r\n7", then=stay_open)
    with WAYS[client](settings(server.url, max_attempts=1)) as send:
        assert isinstance(send(), exceptions.CloudStoreError)
        assert send() == "7"
    assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.parametrize(("kind", "subject"), [(CreateDownloadLink, "f1"), (UploadFromUrl, SUBJECT)])
@pytest.mark.parametrize("header", [b"X: y", f"{TOKEN} {LINK_TOKEN} hunter3".encode()], ids=["clear", "unparsed-header"])
def test_no_log_shows_a_token_a_query_or_a_header_that_repeats_one(
    send: Send, serve: Serve, kind: Any, subject: str, header: bytes, logged: pytest.LogCaptureFixture
) -> None:
    server = serve(HEAD + b"Content-Length: 2\r\n" + header + b"\r\n\r\n{}")
    outcome = send(settings(server.url), kind, subject)
    assert logged.records
    assert not any(secret in logged.text + str(outcome) for secret in SECRETS)


ENDLESS = {
    "header": (HEAD + b"X: ", b"x" * 65536),
    "interim": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 3000),
    "body": (HEAD + b"\r\n", b"x" * 65536),
    "redirect-body": (b"HTTP/1.1 302 Found\r\nLocation: ftp://h/x\r\n\r\n", b"x" * 65536),
}


@pytest.mark.parametrize(("head", "piece"), ENDLESS.values(), ids=ENDLESS)
def test_no_response_costs_more_memory_than_its_limit(way: Way, serve: Serve, head: bytes, piece: bytes) -> None:
    send_once(way, settings(serve(OK).url))  # what is loaded once is not what a response costs
    server = serve(lambda: itertools.chain([head], itertools.repeat(piece)))
    tracemalloc.start()
    outcome = send_once(way, settings(server.url, timeout=2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(outcome, exceptions.CloudStoreError)
    assert peak < 16 * 1024**2
    assert len(server.requests) == 1


def test_a_body_that_grows_when_it_is_decoded_ends_at_the_same_limit(call_way: Way, serve: Serve) -> None:
    server = serve(in_gzip(bytes(256 * 1024**2)))
    tracemalloc.start()
    outcome = send_once(call_way, settings(server.url), UploadFromUrl, SUBJECT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(outcome, exceptions.OutcomeUnknownError)
    assert "more than 1 MiB" in outcome.reason
    assert peak < 16 * 1024**2
    assert len(server.requests) == 1


def test_a_body_that_trickles_ends_with_the_timeout(call_way: Way, serve: Serve) -> None:
    server = serve(slowly(0.1, HEAD + b"\r\n", *[b"x"] * 30))
    began = time.monotonic()
    error = send_once(call_way, settings(server.url, timeout=0.5))
    assert time.monotonic() - began < 2
    assert "no complete response within 0.5 s" in error.reason
