"""What the doctor reports of certificates, directly and through a proxy."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.raw_server import RawServer
from tests.wire.doctor.services import AS_ASSUMED, CONTRADICTS, NOT_TRIED, connect

ISSUER, HOST = "Example Authority", "files.test"
Serve = Callable[[float], Emulator]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(organization_name=ISSUER)


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.fixture
def serve(authority: trustme.CA) -> Iterator[Serve]:
    """Start the emulator with a certificate that is valid for so many days."""
    with ExitStack() as servers:

        def start(days: float) -> Emulator:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ends = datetime.now(UTC) + timedelta(days=days, minutes=5)
            authority.issue_cert("127.0.0.1", HOST, not_before=ends - timedelta(days=90), not_after=ends).configure_cert(context)
            return servers.enter_context(Emulator(tls=context))

        yield start


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy_to() -> Iterator[Callable[[Emulator], RawServer]]:
    """Start an HTTP proxy, all of whose tunnels lead to one emulator."""
    with ExitStack() as proxies:

        def start(emulator: Emulator) -> RawServer:
            def tunnel(server: RawServer, connection: socket.socket) -> None:
                server.read_request(connection)
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                with socket.create_connection(("127.0.0.1", int(emulator.url.rpartition(":")[2]))) as target:
                    back = threading.Thread(target=pump, args=(target, connection), daemon=True)
                    back.start()
                    pump(connection, target)
                    back.join()

            proxy = RawServer(tunnel)
            proxies.callback(proxy.close)
            return proxy

        yield start


def test_a_trusted_certificate_is_reported_with_its_issuer_and_its_days(
    serve: Serve, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = serve(60)
    connect(monkeypatch, emulator.url, emulator.access_token, verify=bundle)
    report = diagnose(upload=f"{emulator.url}/_emulator/sources/report.csv", wait=1)
    assert report["certificate"].verdict is AS_ASSUMED
    assert report["certificate"].seen == f"issued by {ISSUER}, valid for 60 more days"
    assert report["address"].verdict is AS_ASSUMED
    assert report["time"].seen.startswith("connected in ")


@pytest.mark.parametrize(("days", "shown"), [(3, "3 more days"), (1, "1 more day"), (13.9, "13 more days")])
def test_a_certificate_that_expires_soon_is_reported_while_tasks_still_work(
    days: float, shown: str, serve: Serve, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = serve(days)
    connect(monkeypatch, emulator.url, emulator.access_token, verify=bundle)
    report = diagnose()
    assert report["certificate"].verdict is CONTRADICTS
    assert report["certificate"].seen == f"issued by {ISSUER}, valid for {shown}"
    assert "Renew the certificate" in report["certificate"].meaning
    assert report.usable


def test_two_weeks_are_enough(serve: Serve, bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = serve(14)
    connect(monkeypatch, emulator.url, emulator.access_token, verify=bundle)
    assert diagnose()["certificate"].verdict is AS_ASSUMED


@pytest.mark.parametrize(("days", "words"), [(60, "'verify'"), (-1, "expired")], ids=["unknown-issuer", "expired"])
def test_a_certificate_that_is_not_trusted_ends_the_checks(
    days: int, words: str, serve: Serve, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = serve(days)
    connect(monkeypatch, emulator.url, emulator.access_token, **({"verify": bundle} if days < 0 else {}))
    report = diagnose(wrong_token=True, requests=3)
    assert report["address"].verdict is CONTRADICTS
    assert words in f"{report['address'].seen} {report['address'].meaning}"
    assert report["certificate"].verdict is NOT_TRIED
    assert report["rate limit"].meaning == "not reached: see the rows above"
    assert not report.usable
    assert emulator.state()["requests"] == {}


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_without_verification_the_connection_is_doubtful(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = serve(60)
    connect(monkeypatch, emulator.url, emulator.access_token, verify=False)
    report = diagnose()
    assert report["certificate"].verdict is NOT_TRIED
    assert report["certificate"].meaning == "extra 'verify' is false"
    assert report["connection"].verdict is CONTRADICTS
    assert "does not verify certificates" in report["connection"].seen


def test_through_a_proxy_the_certificate_is_that_of_the_service(
    serve: Serve, bundle: str, proxy_to: Callable[[Emulator], RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = serve(60)
    proxy = proxy_to(emulator)
    url = f"http://us%40er:p%2Fw@127.0.0.1:{proxy.port}"
    connect(monkeypatch, f"https://{HOST}", emulator.access_token, verify=bundle, proxy=url)
    report = diagnose(wrong_token=True)
    assert report["certificate"].seen == f"issued by {ISSUER}, valid for 60 more days"
    assert report["address"].seen == f"https://{HOST} through the proxy http://***@127.0.0.1:{proxy.port}"
    assert report.usable
    assert report.kept == ["proxy"]
    assert all(request.startswith(f"CONNECT {HOST}:443 ".encode()) for request in proxy.requests)
    assert all(b"Proxy-Authorization: Basic dXNAZXI6cC93" in request for request in proxy.requests)
    assert not any(secret in report.text() for secret in ("us%40er", "us@er", "p%2Fw", "p/w"))


def test_a_proxy_that_refuses_ends_the_checks(bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(server: RawServer, connection: socket.socket) -> None:
        server.read_request(connection)
        connection.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")

    with ExitStack() as opened:
        proxy = RawServer(refuse)
        opened.callback(proxy.close)
        connect(monkeypatch, f"https://{HOST}", verify=bundle, proxy=f"http://127.0.0.1:{proxy.port}")
        report = diagnose()
    assert report["address"].verdict is CONTRADICTS
    assert "HTTP 407" in report["address"].seen
    assert "Set extra 'proxy'" in report["address"].meaning
    assert not report.usable
    assert len(proxy.requests) == 1
