"""The time limit, proxies, forks and interruptions: what both clients promise beside the answer itself."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import DeleteFolder
from airflow_provider_cloudstore.protocol.failures import CallContext, classify_failure
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response
from airflow_provider_cloudstore.protocol.operations import DELETE_FOLDER
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import TOKEN, settings

pytestmark = pytest.mark.slow  # make test-in-time

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HOST = "files.test"


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

    async def resolve(self: Any, host: str, port: int = 0, family: int = 0) -> Any:
        return [
            {
                "hostname": host,
                "host": "127.0.0.1",
                "port": each,
                "family": socket.AF_INET,
                "proto": 6,
                "flags": socket.AI_NUMERICHOST,
            }
            for each in ports
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr("aiohttp.resolver.ThreadedResolver.resolve", resolve)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_dead_addresses_behind_one_name_take_no_longer_than_the_limit_and_are_never_sent(
    send: Any, dead: int, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    resolve_to(monkeypatch, dead, dead, dead, dead)
    began = time.monotonic()
    outcome = send(settings(f"{scheme}://{HOST}", timeout=2))[0]
    assert time.monotonic() - began < 3
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "timed out" in outcome.reason


def test_an_address_that_answers_behind_dead_ones_is_found_within_the_limit(
    send: Any, serve: Any, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(OK)
    resolve_to(monkeypatch, dead, dead, server.port)
    outcome = send(settings(f"http://{HOST}", timeout=3))[0]
    assert isinstance(outcome, Response)
    assert len(server.requests) == 1


def test_a_name_whose_look_up_hangs_takes_no_longer_than_the_limit_and_is_never_sent(
    send: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()

    def look_up(*args: Any, **kwargs: Any) -> Any:
        hanging.wait(4)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    threading.Timer(1.8, hanging.set).start()  # for the end of the event loop, which waits for its threads
    began = time.monotonic()
    outcome = send(settings(f"http://{HOST}", timeout=1))[0]
    assert time.monotonic() - began < 3
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "timed out" in outcome.reason


@pytest.mark.parametrize("stage", ["handshake", "answer"])
def test_a_server_that_goes_silent_takes_no_longer_than_the_limit(send: Any, serve: Any, stage: str) -> None:
    def go_silent(own: Any, connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    server = serve(handler=go_silent)
    own = settings(server.url.replace("http:", "https:") if stage == "handshake" else server.url, timeout=1)
    began = time.monotonic()
    outcome = send(own)[0]
    assert time.monotonic() - began < 2
    assert outcome.kind is (FailureKind.NEVER_SENT if stage == "handshake" else FailureKind.OUTCOME_UNKNOWN)


@pytest.mark.parametrize("stage", ["head", "body", "interim"])
def test_a_server_that_trickles_takes_no_longer_than_the_limit(send: Any, serve: Any, stage: str) -> None:
    start = {"head": b"HTTP/1.1 200 OK\r\nX: ", "body": b"HTTP/1.1 200 OK\r\n\r\n", "interim": b""}[stage]

    def pieces() -> Iterator[bytes]:
        yield start
        while True:
            time.sleep(0.1)
            yield b"HTTP/1.1 102 P\r\n\r\n" if stage == "interim" else b"x"

    began = time.monotonic()
    outcome = send(settings(serve(pieces).url, timeout=1))[0]
    assert time.monotonic() - began < 2
    assert (outcome.kind, outcome.reason) == (FailureKind.OUTCOME_UNKNOWN, "no complete response within 1 s")


def proxy_of(port: int, userinfo: str = "us%40er:p%2Fw%20d%C3%A9") -> Secret:
    return Secret(f"http://{userinfo}@127.0.0.1:{port}")


AUTHORIZATION = b"Proxy-Authorization: Basic " + base64.b64encode("us@er:p/w dé".encode())


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
            FailureKind.PROXY_REFUSED,
            "HTTP 407",
        ),
        (b"HTTP/1.1 403 us@er p/w d\xe9\r\nContent-Length: 4\r\n\r\nhttp", FailureKind.NEVER_SENT, "the proxy answered HTTP 403"),
        (b"HTTP/1.1 502 Bad\r\n\r\n", FailureKind.NEVER_SENT, "the proxy answered HTTP 502"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[x\r\n\r\n", FailureKind.NEVER_SENT, "the proxy answered HTTP 302"),
        (b"garbage\r\n\r\n", FailureKind.NEVER_SENT, "not valid HTTP"),
        (b"", FailureKind.NEVER_SENT, "without a response"),
    ],
)
def test_a_proxy_that_opens_no_tunnel_says_why_and_means_never_sent(
    send: Any, serve: Any, answer: bytes, kind: FailureKind, words: str
) -> None:
    proxy = serve(answer)
    outcome = send(settings(f"https://{HOST}", proxy=proxy_of(proxy.port)))[0]
    assert outcome.kind is kind
    assert words in outcome.reason
    assert len(proxy.requests) == 1
    assert proxy.requests[0].startswith(f"CONNECT {HOST}:443 ".encode())
    assert AUTHORIZATION in proxy.requests[0]
    assert TOKEN.encode() not in proxy.requests[0]
    assert not any(secret in outcome.reason for secret in ("us@er", "us%40er", "p/w", "p%2Fw"))


def test_credentials_that_a_proxy_refuses_are_a_permanent_matter_of_configuration(serve: Any) -> None:
    proxy = serve(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
    own = settings(f"https://{HOST}", proxy=proxy_of(proxy.port))
    with BlockingClient(own, lambda: own) as client, pytest.raises(errors.ConfigurationError, match="407") as failed:
        client.perform(DeleteFolder("d1", own))
    assert (failed.value.permanent, failed.value.sent, failed.value.attempts) == (True, False, 1)


def test_a_proxy_gets_a_plain_request_whole_and_with_its_credentials(send: Any, serve: Any) -> None:
    proxy = serve(OK)
    assert isinstance(send(settings(f"http://{HOST}:8080/pre", proxy=proxy_of(proxy.port)))[0], Response)
    lines = proxy.requests[0].split(b"\r\n")
    assert lines[0] == f"POST http://{HOST}:8080/pre/cloud/api/v2/folder/delete HTTP/1.1".encode()
    assert AUTHORIZATION in lines
    assert f"Host: {HOST}:8080".encode() in lines
    assert f"Authorization: Bearer {TOKEN}".encode() in lines


def test_a_tunnel_carries_the_request_and_only_the_proxy_gets_its_credentials(send: Any, serve: Any, tmp_path: Any) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def tunnel(own: Any, connection: socket.socket) -> None:
        own.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with tls.wrap_socket(connection, server_side=True) as inside:
            while own.read_request(inside):
                inside.sendall(OK)

    proxy = serve(handler=tunnel)
    outcomes = send(settings(f"https://{HOST}", proxy=proxy_of(proxy.port), verify=str(tmp_path / "ca.pem")), 2)
    assert [outcome.body for outcome in outcomes] == [b"{}", b"{}"]
    assert [request.split(b" ")[0] for request in proxy.requests] == [b"CONNECT", b"POST", b"POST"]
    assert proxy.connections == 1
    assert [b"Proxy-Authorization" in request for request in proxy.requests] == [True, False, False]


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_reset_is_no_end_of_a_body_over_tls_either_and_a_close_is_one_without_close_notify(
    send: Any, serve: Any, tmp_path: Any, reset: bool
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def answer(own: Any, connection: socket.socket) -> None:
        inside = tls.wrap_socket(connection, server_side=True)
        own.read_request(inside)
        inside.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}")
        with socket.socket(fileno=inside.detach()) as raw:
            if reset:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    server = serve(handler=answer)
    outcome = send(settings(f"https://localhost:{server.port}", verify=str(tmp_path / "ca.pem")))[0]
    assert outcome.reason == "connection reset" if reset else outcome.body == b"{}"


def test_a_client_that_was_forked_opens_its_own_connection(send: Any, serve: Any) -> None:
    server = serve(OK, then=lambda connection: None)
    own = settings(server.url)
    with BlockingClient(own, lambda: own) as client:
        assert isinstance(client._send(DELETE_FOLDER.request("d1", own), 5), Response)
        child = os.fork()
        if not child:
            outcome = client._send(DELETE_FOLDER.request("d2", own), 5)
            os._exit(0 if isinstance(outcome, Response) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(client._send(DELETE_FOLDER.request("d3", own), 5), Response)
    assert (len(server.requests), server.connections) == (3, 2)


def test_sessions_of_a_forked_process_are_its_own(serve: Any) -> None:
    server = serve(OK, then=lambda connection: None)
    own = settings(server.url)

    async def reload() -> Settings:
        return own

    async def once() -> bool:
        async with shared_session(own) as session:
            return isinstance(await AsyncClient(own, reload, session)._send(DELETE_FOLDER.request("d1", own), 5), Response)

    async def parent() -> None:
        async with shared_session(own) as session:
            client = AsyncClient(own, reload, session)
            assert isinstance(await client._send(DELETE_FOLDER.request("d1", own), 5), Response)
            child = os.fork()
            if not child:
                asyncio._set_running_loop(None)
                os._exit(0 if asyncio.run(once()) else 1)
            assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
            assert isinstance(await client._send(DELETE_FOLDER.request("d1", own), 5), Response)

    asyncio.run(parent())
    assert (len(server.requests), server.connections) == (3, 2)
    assert not asynchronous._shared


class Alarm(BaseException):
    """As Airflow's ``AirflowTaskTimeout``: raised by a signal, anywhere."""


@pytest.mark.parametrize("after", [0.05, 0.3, 0.6])
def test_an_alarm_passes_through_and_the_next_call_works_on_a_connection_of_its_own(serve: Any, after: float) -> None:
    slow = iter([0.4, 0.4, 0.0])

    def pieces() -> Iterator[bytes]:
        pause = next(slow, 0.0)
        time.sleep(pause)
        yield OK[:30]
        time.sleep(pause)
        yield OK[30:]

    def ring(*_: Any) -> None:
        raise Alarm

    server = serve(pieces, then=lambda connection: None)
    own = settings(server.url)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with BlockingClient(own, lambda: own) as client:
            signal.setitimer(signal.ITIMER_REAL, after)
            with pytest.raises(Alarm):
                client._send(DELETE_FOLDER.request("d1", own), 5)
            for _ in range(2):
                assert client._send(DELETE_FOLDER.request("d2", own), 5).body == b"{}"  # type: ignore[union-attr]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert server.connections == 2


def test_a_cancelled_request_leaves_a_session_that_works(serve: Any) -> None:
    def pieces() -> Iterator[bytes]:
        yield OK[:30]
        time.sleep(0.3)
        yield OK[30:]

    server = serve(pieces, then=lambda connection: None)
    own = settings(server.url)

    async def reload() -> Settings:
        return own

    async def run() -> None:
        async with shared_session(own) as session:
            client = AsyncClient(own, reload, session)
            task = asyncio.create_task(client._send(DELETE_FOLDER.request("d1", own), 5))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert isinstance(await client._send(DELETE_FOLDER.request("d2", own), 5), Response)

    asyncio.run(run())
    assert server.connections == 2


@pytest.mark.parametrize(
    "error", [LookupError, UnicodeError, RecursionError, AttributeError, AssertionError, MemoryError, ValueError]
)
@pytest.mark.parametrize("sent", [True, False])
def test_whatever_a_library_raises_ends_in_the_client_with_a_reason(
    send: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, error: type[Exception], sent: bool
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error(f"https://h/?access_token={TOKEN}")

    own = settings(serve(OK).url)
    if sent:
        monkeypatch.setattr("http.client.HTTPResponse.begin", fail)
        monkeypatch.setattr("aiohttp.ClientResponse.start", fail)
    else:
        monkeypatch.setattr("socket.getaddrinfo", fail)
        monkeypatch.setattr("aiohttp.TCPConnector._resolve_host", fail)
    outcome = send(own)[0]
    assert outcome.kind is (FailureKind.OUTCOME_UNKNOWN if sent else FailureKind.NEVER_SENT)
    assert error.__name__ in outcome.reason
    assert TOKEN not in outcome.reason
    kind = classify_failure(CallContext(DELETE_FOLDER), outcome, "").error
    assert kind is (errors.TransientServiceError if sent else errors.ServiceUnreachableError)
