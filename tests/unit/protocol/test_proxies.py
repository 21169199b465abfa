"""Which proxy a request takes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.messages import FailureKind
from airflow_provider_cloudstore.protocol.proxies import Proxy, environment_proxy, validate_proxy
from airflow_provider_cloudstore.protocol.secrets import Secret

P = "http://proxy:3128"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": P}, P),
        ({"https_proxy": P, "HTTPS_PROXY": "http://upper:1"}, P),
        ({"https_proxy": "", "HTTPS_PROXY": P}, None),
        ({"https_proxy": "", "ALL_PROXY": P}, P),
        ({"HTTP_PROXY": P}, None),
        ({"ALL_PROXY": P}, P),
        ({"HTTPS_PROXY": P, "ALL_PROXY": "http://all:1"}, P),
        ({"HTTPS_PROXY": "proxy:3128"}, P),
        ({"HTTPS_PROXY": "user:p%40ss@proxy:3128"}, "http://user:p%40ss@proxy:3128"),
        ({"HTTPS_PROXY": "https://proxy"}, "https://proxy"),
    ],
)
def test_the_environments_proxy_is_that_of_the_scheme_else_that_of_all(environ: dict[str, str], expected: str | None) -> None:
    assert environment_proxy("https://files.example.com", environ) == (Secret(expected) if expected else None)


def test_a_plain_service_takes_the_plain_proxy() -> None:
    environ = {"HTTP_PROXY": P, "HTTPS_PROXY": "http://other:1"}
    assert environment_proxy("http://files.example.com", environ) == Secret(P)


@pytest.mark.parametrize(
    ("base_url", "no_proxy", "excluded"),
    [
        ("https://files.example.com", "*", True),
        ("https://files.example.com", "files.example.com", True),
        ("https://files.example.com", "FILES.Example.com", True),
        ("https://files.example.com", "other, example.com ,x", True),
        ("https://files.example.com", ".example.com", True),
        ("https://files.example.com", "files.example.com:443", True),
        ("https://files.example.com:8443", "example.com:8443", True),
        ("https://files.example.com:8443", "example.com:443", False),
        ("https://files.example.com", "les.example.com", False),
        ("https://files.example.com", "10.0.0.0/8", False),
        ("https://files.example.com", "", False),
        ("https://files.example.com", " , .", False),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://11.1.2.3", "10.0.0.0/8", False),
        ("https://10.1.2.3", "2.3", False),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://[fd00::1]", "fd00::1", True),
        ("https://[fd00::1]:8443", "[fd00::1]:8443", True),
    ],
)
def test_no_proxy_names_hosts_domains_ports_and_networks(base_url: str, no_proxy: str, excluded: bool) -> None:
    found = environment_proxy(base_url, {"ALL_PROXY": P, "NO_PROXY": no_proxy})
    assert found == (None if excluded else Secret(P))


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4", "ftp"])
def test_a_proxy_that_is_not_supported_is_refused_by_where_it_was_given(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ALL_PROXY has the scheme .*must be http or https") as failed:
        environment_proxy("https://files.example.com", {"ALL_PROXY": f"{scheme}://me:hunter2@proxy:1080"})
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    "value",
    [5, None, True, [], "", " ", "http://", "http://[bad", "proxy:port", "proxy:99999", "proxy:0", "a b", "http://a\\b", "p\tq"],
)
def test_what_is_no_proxys_url_is_refused_and_not_repeated(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)^extra 'proxy' .*such as http://user:password@proxy"):
        validate_proxy(value, "extra 'proxy'")


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
    assert connect_refused(502).kind is FailureKind.NEVER_SENT
    assert "502" in connect_refused(502).reason
