"""What comes of raw bytes, for both clients and for downloads: what is unclear is an unknown outcome, or no download."""

from __future__ import annotations

import gzip
import itertools
import time
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, UploadFromUrl
from tests.raw_server import HEAD, OK, slowly, stay_open
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import LINK_TOKEN, WAYS, Send, Serve, Way, send_once

SECRETS = (TOKEN, LINK_TOKEN, "link%2Btoken", "hunter2", "hunter3", "access_token", "Bearer")
SUBJECT = "https://user:hunter2@h/f?sig=hunter3"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = HEAD + b"Content-Encoding: gzip\r\n"


# What else is unclear is in the failure table.
UNCLEAR = {
    "no last chunk": CHUNKED + b"2\r\n{}\r\n",
    "a chunk without a size": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
}


def test_a_response_in_gzip_is_read(call_way: Way, serve: Serve) -> None:
    body = gzip.compress(b"{}")
    assert send_once(call_way, settings(serve(GZIP + b"Content-Length: %d\r\n\r\n" % len(body) + body).url)) == "{}"


@pytest.mark.parametrize("response", UNCLEAR.values(), ids=UNCLEAR)
def test_an_unclear_response_is_an_unknown_outcome_or_no_download(send: Send, serve: Serve, response: bytes) -> None:
    server = serve(response)
    outcome = send(settings(server.url), UploadFromUrl, SUBJECT)
    assert isinstance(outcome, exceptions.CloudStoreError)
    assert (outcome.sent, len(server.requests)) == (True, 1)


@pytest.mark.parametrize("first", [b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, UNCLEAR["a chunk without a size"]])
@pytest.mark.parametrize("client", ["blocking", "download"])
def test_a_connection_with_an_interim_or_unclear_response_is_not_used_again(serve: Serve, client: str, first: bytes) -> None:
    server = serve(first, HEAD + b"Content-Length: 1\r\n\r\n7", then=stay_open)
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
    assert server.requests
    assert not any(secret in logged.text + str(outcome) for secret in SECRETS)


def test_a_body_without_end_is_cut_off(call_way: Way, serve: Serve) -> None:
    server = serve(lambda: itertools.chain([HEAD + b"\r\n"], itertools.repeat(b"x" * 65536)))
    assert "more than 1 MiB" in send_once(call_way, settings(server.url, timeout=2), UploadFromUrl, SUBJECT).reason


def test_a_body_that_trickles_ends_with_the_timeout(call_way: Way, serve: Serve) -> None:
    server = serve(slowly(0.1, HEAD + b"\r\n", *[b"x"] * 30))
    began = time.monotonic()
    error = send_once(call_way, settings(server.url, timeout=0.5))
    assert time.monotonic() - began < 2
    assert "no complete response within 0.5 s" in error.reason
