"""The time limit, forks and interruptions: the same for both clients and for downloads."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.raw_server import RawServer
from tests.support import settings
from tests.wire.clients.conftest import CHUNKED, HOST, OK, WAYS, Send, Serve, Way, send_once, slowly, stay_open

pytestmark = pytest.mark.slow  # make test-in-time


@pytest.fixture
def dead() -> Iterator[int]:
    """A port on loopback where the kernel answers nobody: its backlog is full, so that a connection is never made."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        time.sleep(0.05)
        yield listening.getsockname()[1]


def timed(send: Send, own: Any) -> tuple[Any, float]:
    """The outcome of one request, and how many seconds it took."""
    began = time.monotonic()
    return send(own), time.monotonic() - began


@pytest.mark.parametrize("found", [False, True], ids=["dead", "found"])
def test_dead_addresses_behind_one_name_take_no_longer_than_the_limit(
    send: Send, serve: Serve, dead: int, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    ports = [dead, serve(OK).port] if found else [dead] * 4
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *more, **other: addresses if host == HOST else real(host, *more, **other)
    )
    outcome, seconds = timed(send, settings(f"http://{HOST}", timeout=2.5))
    assert seconds < 3
    if found:
        assert outcome.body == b"{}"
    else:
        assert "timed out" in outcome.reason
        assert not outcome.sent


@pytest.mark.parametrize("stage", ["look-up", "handshake", "proxy", "response", "body"])
def test_silence_takes_no_longer_than_the_limit(send: Send, serve: Serve, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def go_silent(_: RawServer, connection: socket.socket) -> None:
        if stage == "body":
            connection.sendall(OK[:-1])
        while connection.recv(65536):
            pass

    def look_up(*_: Any, **__: Any) -> Any:
        time.sleep(1.5)  # the event loop waits for its threads when it closes
        raise socket.gaierror

    url = serve(handler=go_silent).url
    if stage == "look-up":
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
    own = {
        "look-up": settings(f"http://{HOST}", timeout=1),
        "handshake": settings(url.replace("http:", "https:"), timeout=1),
        "proxy": settings(f"https://{HOST}", timeout=1, proxy=Secret(url)),
    }.get(stage, settings(url, timeout=1))
    error, seconds = timed(send, own)
    assert seconds < 2
    assert error.sent is (stage in ("response", "body"))
    assert "timed out" in error.reason or "within 1 s" in error.reason


TRICKLES = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "interim": (b"", b"HTTP/1.1 102 P\r\n\r\n"),
    "chunk-size": (CHUNKED + b"5;x=", b"x"),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
}


@pytest.mark.parametrize("what", TRICKLES)
@pytest.mark.parametrize("name", WAYS)
def test_a_server_that_trickles_takes_no_longer_than_the_limit(serve: Serve, name: str, what: str) -> None:
    start, piece = TRICKLES[what]

    def pieces() -> Iterator[bytes]:
        yield start
        for _ in range(30):
            time.sleep(0.1)
            yield piece

    error, seconds = timed(lambda own: send_once(WAYS[name], own), settings(serve(pieces).url, timeout=1))
    assert seconds < 2
    assert error.sent is True
    # A download rejects a body without a length at once, and takes each piece of another one for progress.
    assert (name, what) == ("download", "body") or error.reason.startswith("no complete response within 1 s")


def test_a_forked_process_opens_a_connection_of_its_own(way: Way, serve: Serve) -> None:
    server = serve(OK, then=stay_open)
    own = settings(server.url)
    with way(own) as send:
        assert send().body == b"{}"
        child = os.fork()
        if not child:
            # An event loop does not survive a fork, so there the child opens a session as well.
            with way(own) if way is WAYS["asynchronous"] else contextlib.nullcontext(send) as childs:
                os._exit(0 if childs().body == b"{}" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert send().body == b"{}"
    assert (len(server.requests), server.connections) == (3, 2)


class Alarm(BaseException):
    """As Airflow's ``AirflowTaskTimeout``: raised by a signal, anywhere."""


@pytest.mark.parametrize("after", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("name", ["blocking", "download"])
def test_an_alarm_passes_through_and_its_connection_is_not_used_again(serve: Serve, name: str, after: float) -> None:
    def ring(*_: Any) -> None:
        raise Alarm

    server = serve(slowly(0.4), then=stay_open)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with WAYS[name](settings(server.url)) as send:
            signal.setitimer(signal.ITIMER_REAL, after)
            with pytest.raises(Alarm):
                send()
            assert [send().body, send().body] == [b"{}", b"{}"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert server.connections == 2
