from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.errors import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings, is_loopback


def read(host: str | None = "files.example.com", password: str | None = "token", **more: Any) -> Settings:
    schema, port = more.pop("schema", None), more.pop("port", None)
    return Settings.from_connection(host=host, schema=schema, port=port, password=password, extra=more)


@pytest.mark.parametrize(
    ("host", "more", "base_url"),
    [
        ("files.example.com", {}, "https://files.example.com"),
        ("https://files.example.com/", {}, "https://files.example.com"),
        ("  files.example.com  ", {}, "https://files.example.com"),
        ("files.example.com:8443/a/b/", {}, "https://files.example.com:8443/a/b"),
        ("files.example.com:", {"port": 8443}, "https://files.example.com:8443"),
        ("files.example.com", {"port": 0}, "https://files.example.com:0"),
        ("files.example.com/a", {"port": 8443}, "https://files.example.com:8443/a"),
        ("files.example.com:1", {"port": 8443}, "https://files.example.com:1"),
        ("[::1]", {"port": 80, "schema": "http"}, "http://[::1]:80"),
        ("http://localhost:8080", {}, "http://localhost:8080"),
        ("http://127.8.9.1", {}, "http://127.8.9.1"),
        ("http://files.example.com", {"allow_http": True}, "http://files.example.com"),
        ("http://files.example.com", {"allow_http": "TRUE"}, "http://files.example.com"),
    ],
)
def test_the_host_is_a_base_url_with_or_without_scheme_port_and_prefix(host: str, more: dict[str, Any], base_url: str) -> None:
    assert read(host, **more).base_url == base_url


@pytest.mark.parametrize(
    ("host", "more", "says"),
    [
        (None, {}, "^the connection has no host: set it to the service's base URL, such as https"),
        ("   ", {}, "no host"),
        ("https://", {}, "^the connection's host is no URL: write it like https"),
        ("https://host:port", {}, "is no URL"),
        ("https://host:99999", {}, "is no URL"),
        ("https://[bad", {}, "is no URL"),
        ("two words", {}, "is no URL"),
        (
            "https://user:hunter2@host",
            {},
            r"^the connection's host https://\*\*\*@host holds .* password, and a base URL has no query",
        ),
        ("https://host?token=hunter2", {}, "no query"),
        ("https://host#hunter2", {}, "no query"),
        ("ftp://host", {}, "use https"),
        ("host", {"schema": "prefix"}, "use https"),
        ("http://files.example.com", {}, '^the connection.* or set extra "allow_http": true if'),
        ("http://files.example.com", {"allow_http": False}, "allow_http"),
        ("https://files.example.com/cloud/api/v2", {}, "must end before"),
    ],
)
def test_a_host_that_cannot_be_used_is_refused_with_what_to_write(host: str | None, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        read(host, **more)
    assert "hunter2" not in str(refused.value)
    assert refused.value.permanent
    assert not refused.value.sent


@pytest.mark.parametrize("password", [None, "", "two words", "line\nbreak", "tab\t", "trailing ", "nul\x00", "no\u00a0break"])
def test_a_token_that_cannot_be_one_is_refused_without_being_shown(password: str | None) -> None:
    says = (
        "^the connection has no password" if not password else "^the access token in the connection's password .*: copy it again"
    )
    with pytest.raises(ConfigurationError, match=says) as refused:
        read(password=password)
    assert not password or password not in str(refused.value)


def test_defaults_hold_where_the_extra_says_nothing() -> None:
    settings = read(timeout=None, max_attempts="", verify=None, proxy="", token_path="")
    assert settings.timeout == 30
    assert settings.max_attempts == 4
    assert settings.verify is True
    assert settings.proxy is None
    assert settings.protected_folder_ids == {"0", "/"}
    assert settings.token_path == ()


def test_extras_are_read_as_json_and_as_the_text_of_a_form(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    settings = read(
        timeout="2.5", max_attempts="7", verify=str(bundle), proxy="http://u:p@proxy:3128", protected_folder_ids=["root", 7],
        token_path="data.link.0.key",
    )  # fmt: skip
    assert settings.timeout == 2.5
    assert settings.max_attempts == 7
    assert settings.verify == str(bundle)
    assert settings.proxy == Secret("http://u:p@proxy:3128")
    assert settings.protected_folder_ids == {"root", "7"}
    assert settings.token_path == ("data", "link", "0", "key")
    assert read(proxy="https://proxy:3128").proxy == Secret("https://proxy:3128")
    assert read(proxy="proxy:3128").proxy == Secret("http://proxy:3128")
    assert read(password="abc").access_token == Secret("abc")
    assert read(verify="false").verify is False
    assert read(verify="True").verify is True
    assert read(protected_folder_ids="a, b").protected_folder_ids == {"a", "b"}
    assert read(protected_folder_ids=[]).protected_folder_ids == frozenset()


@pytest.mark.parametrize(
    "extra",
    [
        {"timeout": 0}, {"timeout": -1}, {"timeout": "soon"}, {"timeout": "nan"}, {"timeout": "inf"}, {"timeout": True},
        {"timeout": []}, {"timeout": 86_401}, {"max_attempts": 0}, {"max_attempts": "many"}, {"verify": 1},
        {"verify": "/no/such/bundle.pem"}, {"allow_http": "perhaps"}, {"allow_http": 1}, {"proxy": "proxy:port"},
        {"proxy": "socks5://proxy"}, {"proxy": 5}, {"proxy": "http://"}, {"proxy": "http://[bad"},
        {"protected_folder_ids": 5}, {"protected_folder_ids": [None]}, {"token_path": 5}, {"token_path": "data..key"},
        {"token_path": ".key"},
    ],
)  # fmt: skip
def test_an_extra_that_makes_no_sense_is_refused_by_its_name(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"^extra '{next(iter(extra))}' of the connection "):
        read(**extra)


def test_limits_of_numbers_are_inclusive() -> None:
    assert read(timeout=86_400).timeout == 86_400
    assert read(timeout=0.001).timeout == 0.001
    assert read(max_attempts=1).max_attempts == 1


def test_settings_print_neither_token_nor_proxy() -> None:
    shown = repr(read(password="hunter2", proxy="http://u:pass-of-proxy@proxy:3128"))
    assert "hunter2" not in shown
    assert "pass-of-proxy" not in shown


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("a.localhost", True), ("127.0.0.1", True), ("::1", True), ("notlocalhost", False),
     ("10.0.0.1", False), ("localhost.example.com", False)],
)  # fmt: skip
def test_loopback_is_this_machine_and_nothing_else(host: str, own: bool) -> None:
    assert is_loopback(host) is own
