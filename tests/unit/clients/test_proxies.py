"""Which proxy a request takes."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.proxies import Proxy, environment_proxy
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.messages import FailureKind
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import validate_proxy

P = "http://proxy:3128"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": P}, P),
        ({"https_proxy": P, "HTTPS_PROXY": "http://upper:1"}, P),
        ({"HTTP_PROXY": P}, None),
        ({"ALL_PROXY": P}, P),
        ({"HTTPS_PROXY": P, "ALL_PROXY": "http://all:1"}, P),
        ({"HTTPS_PROXY": "user:p%40ss@proxy:3128"}, "http://user:p%40ss@proxy:3128"),
        ({"HTTPS_PROXY": P, "NO_PROXY": "other, example.com"}, None),
        ({"HTTPS_PROXY": P, "NO_PROXY": "other"}, P),
    ],
)
def test_the_environments_proxy_is_the_one_that_requests_takes(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy("https://files.example.com") == (Secret(expected) if expected else None)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4", "ftp"])
def test_a_proxy_that_is_not_supported_is_refused_by_where_it_was_given(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://me:hunter2@proxy:1080")
    with pytest.raises(ConfigurationError, match=r"the environment defines has the scheme .*must be http or https") as failed:
        environment_proxy("https://files.example.com")
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    "value",
    [5, None, True, [], "", " ", "http://", "http://[bad", "proxy:port", "proxy:99999", "proxy:0", "a b", "http://a\\b", "p\tq"],
)
def test_what_is_no_proxys_url_is_refused_and_not_repeated(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s) to http://user:password@proxy"):
        validate_proxy(value)


def test_a_proxys_address_holds_no_credentials_and_its_header_does() -> None:
    proxy = Proxy.of(Secret("http://us%40er:p%2Fw%C3%A9@proxy:3128"))
    assert proxy is not None
    assert proxy.url == "http://proxy:3128"
    assert proxy.headers == {"Proxy-Authorization": "Basic " + base64.b64encode("us@er:p/w\u00e9".encode()).decode()}
    assert "Basic" not in repr(proxy)
    assert Proxy.of(Secret(P)) == Proxy(P, {})
    assert Proxy.of(None) is None


def test_a_proxy_that_opens_no_tunnel_is_told_from_one_that_refuses_the_credentials() -> None:
    assert connect_refused(407).kind is FailureKind.PROXY_REFUSED
    assert connect_refused(502).kind is FailureKind.PROXY
    assert "502" in connect_refused(502).reason
