"""Which proxy a request takes, and which certificates are trusted: those that ``requests`` takes and trusts."""

from __future__ import annotations

import os
from pathlib import Path

import certifi
import pytest
import trustme

from airflow_provider_cloudstore.clients.route import ca_bundle, proxy_for
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.support import settings

P = "http://proxy:3128"


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith(("_proxy", "_ca_bundle")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": P}, P),
        ({"HTTP_PROXY": P}, None),
        ({"ALL_PROXY": "user:p%40ss@proxy:3128"}, "http://user:p%40ss@proxy:3128"),
        ({"HTTPS_PROXY": P, "NO_PROXY": "other, example.com"}, None),
    ],
)
def test_the_environments_proxy_is_the_one_that_requests_takes(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(settings(), "https://files.example.com") == (Secret(expected) if expected else None)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "127.1.2.3", "localhost:8080", "LOCALHOST", "a.localhost", "[::1]:8080"])
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", [P, "socks5h://proxy:1080"])
def test_the_environments_proxy_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str, name: str, proxy: str
) -> None:
    monkeypatch.setenv(name, proxy)
    for scheme in ("http", "https"):
        assert proxy_for(settings(), f"{scheme}://{host}/x") is None


def test_a_proxy_that_is_not_supported_is_refused_without_its_password_and_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:hunter2@proxy:1080")
    words = (
        r"(?s)the environment defines must be http or https with a host.*"
        "Set extra 'proxy' .* To bypass the proxy, add files.example.com to NO_PROXY in the environment"
    )
    with pytest.raises(ConfigurationError, match=words) as failed:
        proxy_for(settings(), "https://files.example.com:8443/x?sig=hunter2")
    assert "hunter2" not in str(failed.value)


def test_the_bundle_is_the_connections_else_the_environments_else_certifis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, of_environment = str(tmp_path / "own.pem"), str(tmp_path / "environment.pem")
    for bundle in (own, of_environment):
        trustme.CA().cert_pem.write_to_path(bundle)
    assert ca_bundle(settings()) == certifi.where()
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, of_environment)
        assert ca_bundle(settings()) == of_environment
        assert ca_bundle(settings(verify=own)) == own
        assert ca_bundle(settings(verify=False)) is False
        monkeypatch.delenv(name)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bundle_that_cannot_be_used_is_an_error_that_says_what_to_set(tmp_path: Path, content: str | None) -> None:
    bundle = tmp_path / "ca.pem"
    if content:
        bundle.write_text(content)
    with pytest.raises(ConfigurationError, match=r"(?s)ca\.pem cannot be read.*Extra 'verify' names it"):
        ca_bundle(settings(verify=str(bundle)))
