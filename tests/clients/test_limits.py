"""The time limit, forks and interruptions: the same for both clients and for downloads."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.messages import FailureKind
from airflow_provider_cloudstore.protocol.operations import DELETE_FOLDER
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.clients.conftest import CHUNKED, HOST, OK, WAYS, Send, Serve, Way, bodies, send_in, stay_open
from tests.raw_server import RawServer
from tests.support import settings

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


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Have the name of the tests' host lead to several ports of this machine, in this order, as to several addresses."""
    real = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != HOST:
            return real(host, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def timed(send: Send, own: Any) -> tuple[Any, float]:
    """The outcome of one request, and how many seconds it took."""
    began = time.monotonic()
    (outcome,) = send(own)
    return outcome, time.monotonic() - began


def test_dead_addresses_behind_one_name_take_no_longer_than_the_limit(
    send: Send, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, dead, dead, dead, dead)
    outcome, seconds = timed(send, settings(f"http://{HOST}", timeout=2))
    assert seconds < 3
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "timed out" in outcome.reason


def test_an_address_that_answers_behind_a_dead_one_is_found_within_the_limit(
    send: Send, serve: Serve, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(OK)
    resolve_to(monkeypatch, dead, server.port)
    outcome, seconds = timed(send, settings(f"http://{HOST}", timeout=3))
    assert bodies([outcome]) == [b"{}"]
    assert len(server.requests) == 1
    assert seconds < 3


def test_a_name_whose_look_up_hangs_takes_no_longer_than_the_limit(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()

    def look_up(*args: Any, **kwargs: Any) -> Any:
        hanging.wait(4)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    threading.Timer(1.8, hanging.set).start()  # for the end of the event loop, which waits for its threads
    outcome, _ = timed(send, settings(f"http://{HOST}", timeout=1))
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "timed out" in outcome.reason


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("response", FailureKind.OUTCOME_UNKNOWN),
        ("handshake", FailureKind.NEVER_SENT),
        ("proxy", FailureKind.NEVER_SENT),
    ],
)
def test_a_server_that_goes_silent_takes_no_longer_than_the_limit(
    send: Send, serve: Serve, stage: str, kind: FailureKind
) -> None:
    def go_silent(_: RawServer, connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    url = serve(handler=go_silent).url
    own = {
        "response": settings(url, timeout=1),
        "handshake": settings(url.replace("http:", "https:"), timeout=1),
        "proxy": settings(f"https://{HOST}", timeout=1, proxy=Secret(url)),
    }[stage]
    outcome, seconds = timed(send, own)
    assert seconds < 2
    assert outcome.kind is kind


TRICKLES = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "interim": (b"", b"HTTP/1.1 102 P\r\n\r\n"),
    "chunk-size": (CHUNKED + b"5;x=", b"x"),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
}


@pytest.mark.parametrize(
    ("way", "start", "piece"),
    [
        pytest.param(way, *trickle, id=f"{name}-{what}")
        for name, way in WAYS.items()
        for what, trickle in TRICKLES.items()
        if (name, what) != ("download", "body")  # each piece of it is progress
    ],
)
def test_a_server_that_trickles_takes_no_longer_than_the_limit(way: Way, serve: Serve, start: bytes, piece: bytes) -> None:
    def pieces() -> Iterator[bytes]:
        yield start
        for _ in range(30):
            time.sleep(0.1)
            yield piece

    outcome, seconds = timed(lambda own: send_in(way, own), settings(serve(pieces).url, timeout=1))
    assert seconds < 2
    assert outcome.kind is FailureKind.OUTCOME_UNKNOWN
    assert outcome.reason.startswith("no complete response within 1 s")


def test_a_forked_process_opens_a_connection_of_its_own(way: Way, serve: Serve) -> None:
    server = serve(OK, then=stay_open)
    own = settings(server.url)
    with way(own) as sender:
        assert bodies([sender.send(DELETE_FOLDER, "d1")]) == [b"{}"]
        child = os.fork()
        if not child:
            # An event loop does not survive a fork, so there the child opens a session as well.
            with way(own) if way is WAYS["asynchronous"] else contextlib.nullcontext(sender) as childs:
                os._exit(0 if bodies([childs.send(DELETE_FOLDER, "d2")]) == [b"{}"] else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert bodies([sender.send(DELETE_FOLDER, "d3")]) == [b"{}"]
    assert (len(server.requests), server.connections) == (3, 2)


def test_another_thread_opens_a_connection_of_its_own(serve: Serve) -> None:
    server = serve(OK, then=stay_open)
    with WAYS["blocking"](settings(server.url)) as sender:
        sender.send(DELETE_FOLDER, "d1")
        thread = threading.Thread(target=sender.send, args=(DELETE_FOLDER, "d2"))
        thread.start()
        thread.join()
        sender.send(DELETE_FOLDER, "d3")
    assert (len(server.requests), server.connections) == (3, 2)


class Alarm(BaseException):
    """As Airflow's ``AirflowTaskTimeout``: raised by a signal, anywhere."""


@pytest.mark.parametrize("after", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("name", ["blocking", "download"])
def test_an_alarm_passes_through_and_the_next_request_works_on_a_connection_of_its_own(
    serve: Serve, name: str, after: float
) -> None:
    slow = iter([0.4, 0.4, 0.0])

    def pieces() -> Iterator[bytes]:
        pause = next(slow, 0.0)
        time.sleep(pause)
        yield OK[:30]
        time.sleep(pause)
        yield OK[30:]

    def ring(*_: Any) -> None:
        raise Alarm

    server = serve(pieces, then=stay_open)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with WAYS[name](settings(server.url)) as sender:
            signal.setitimer(signal.ITIMER_REAL, after)
            with pytest.raises(Alarm):
                sender.send(DELETE_FOLDER, "d1")
            assert bodies([sender.send(DELETE_FOLDER, "d2"), sender.send(DELETE_FOLDER, "d3")]) == [b"{}", b"{}"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert server.connections == 2
