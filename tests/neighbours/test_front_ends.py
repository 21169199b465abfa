"""Both clients through front ends and a forward proxy that people really run.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from tests.neighbours.servers import PROXY_LOGIN, FrontEnd, Haproxy, Nginx, Squid
from tests.support import eventually, store_file

pytestmark = pytest.mark.slow

URL = "https://source.example/1?sig=a%2Bb"


def _blocking() -> str:
    with CloudStoreHook() as hook:
        hook.upload_from_url(URL)
        link = hook.create_download_link("f1")
        hook.delete_folder("staging")
    return link.token


def _asynchronous() -> str:
    async def run() -> str:
        async with CloudStoreAsyncHook() as hook:
            await hook.upload_from_url(URL)
            link = await hook.create_download_link("f1")
            await hook.delete_folder("staging")
        return link.token

    return asyncio.run(run())


@pytest.fixture(params=[_blocking, _asynchronous], ids=["hook", "async_hook"])
def three_operations(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Upload, link and delete through one of the clients; returns the link's token."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose uploads stay queued, with the file f1."""
    with Emulator(fetch_delay=3600) as running:
        store_file(running)
        yield running


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """A private CA; its certificate is in ``ca.pem``, that of 127.0.0.1 in ``server.pem``."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    return authority


def connect(monkeypatch: pytest.MonkeyPatch, emulator: Emulator, url: str, **extra: Any) -> None:
    connection = json.loads(emulator.connection) | {"host": url, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))


def nginx_with_tls(emulator: Emulator, folder: Path) -> str:
    return f"""
    server {{
      listen 127.0.0.1:{{port}} ssl;
      ssl_certificate {folder}/server.pem;
      ssl_certificate_key {folder}/server.pem;
      location / {{ proxy_pass {emulator.url}; proxy_set_header Host $http_host; }}
    }}"""


def assert_each_happened_once(emulator: Emulator, token: str) -> None:
    state = emulator.state()
    assert state["requests"] == {"upload": 1, "link": 1, "delete": 1}
    assert state["effects"] == {"upload": 1, "link": 1, "delete": 1}
    assert len(token) > 20


def test_nginx_with_a_private_ca(
    three_operations: Callable[[], str],
    emulator: Emulator,
    authority: trustme.CA,
    run_neighbour: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    nginx: FrontEnd = run_neighbour(lambda: Nginx(nginx_with_tls(emulator, tmp_path)))
    connect(monkeypatch, emulator, f"https://127.0.0.1:{nginx.port}", verify=str(tmp_path / "ca.pem"))
    assert_each_happened_once(emulator, three_operations())
    log = nginx.folder / "access.log"
    eventually(lambda: log.read_text().count('" 200 ') == 3)


def test_nginx_after_a_reload(
    three_operations: Callable[[], str],
    emulator: Emulator,
    authority: trustme.CA,
    run_neighbour: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each client opens its connections after the reload. Those that it keeps across one are another matter."""
    nginx: FrontEnd = run_neighbour(lambda: Nginx("server { listen 127.0.0.1:{port}; return 503; }"))
    nginx.reload(nginx_with_tls(emulator, tmp_path))
    connect(monkeypatch, emulator, f"https://127.0.0.1:{nginx.port}", verify=str(tmp_path / "ca.pem"))
    assert_each_happened_once(emulator, three_operations())


def test_haproxy(
    three_operations: Callable[[], str], emulator: Emulator, run_neighbour: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = emulator.url.removeprefix("http://")
    sections = f"frontend f\n  bind 127.0.0.1:{{port}}\n  default_backend b\nbackend b\n  server s {address}\n"
    haproxy: FrontEnd = run_neighbour(lambda: Haproxy(sections))
    connect(monkeypatch, emulator, f"http://127.0.0.1:{haproxy.port}")
    assert_each_happened_once(emulator, three_operations())
    haproxy.stop()
    haproxy.start()
    haproxy.reload(sections + "  option httpclose\n")


def test_squid_with_the_right_credentials_for_http(
    three_operations: Callable[[], str], emulator: Emulator, squid: Squid, proxy_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, emulator, emulator.url, proxy=proxy_url)
    assert_each_happened_once(emulator, three_operations())
    eventually(lambda: len([one for one in squid.requests() if one[2] == PROXY_LOGIN]) == 3)


def test_squid_with_the_right_credentials_for_a_tunnel_to_nginx(
    three_operations: Callable[[], str],
    emulator: Emulator,
    authority: trustme.CA,
    squid: Squid,
    proxy_url: str,
    run_neighbour: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    nginx: FrontEnd = run_neighbour(lambda: Nginx(nginx_with_tls(emulator, tmp_path)))
    connect(monkeypatch, emulator, f"https://127.0.0.1:{nginx.port}", verify=str(tmp_path / "ca.pem"), proxy=proxy_url)
    assert_each_happened_once(emulator, three_operations())
    eventually(lambda: ("CONNECT", f"127.0.0.1:{nginx.port}", PROXY_LOGIN) in squid.requests())
