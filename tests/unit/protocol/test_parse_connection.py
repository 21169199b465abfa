from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.parse_connection import read_extra
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import connected


def read(host: str | None = "files.example.com", password: str | None = "token", **more: Any) -> Settings:
    fields = {name: more.pop(name, None) for name in ("conn_type", "schema", "port")}
    return connected(more, host, password, **fields)


@pytest.mark.parametrize(
    ("host", "more", "base_url"),
    [
        ("files.example.com:8443/a/b/", {}, "https://files.example.com:8443/a/b"),
        ("files.example.com", {"port": 0}, "https://files.example.com"),
        ("files.example.com/a", {"port": 8443}, "https://files.example.com:8443/a"),
        ("files.example.com:1", {"port": 8443}, "https://files.example.com:1"),
        ("http://[::1]", {"port": 80, "schema": "HTTP"}, "http://[::1]:80"),
        ("localhost", {"conn_type": "HTTP"}, "http://localhost"),
        ("http://files.example.com", {"allow_http": "TRUE"}, "http://files.example.com"),
        ("https://files.example.com/cloud/api/v2", {}, "https://files.example.com"),
    ],
)
def test_the_host_is_a_base_url_with_or_without_scheme_port_and_prefix(host: str, more: dict[str, Any], base_url: str) -> None:
    assert read(host, **more).base_url == base_url


NOT_A_TOKEN = "^the access token in the connection's .*\nSet the password to the token alone"


@pytest.mark.parametrize(
    ("host", "more", "says"),
    [
        ("host", {"password": None}, "^the connection has no password.*\nSet it to the service's access token"),
        *[("host", {"password": f"hunter2{end}"}, NOT_A_TOKEN) for end in (" words", "\nbreak", "\x00", "\u00a0break", "\ud800")],
        (None, {}, r"^the connection has no host\.\nSet the host to the base URL, such as https"),
        ("https://", {}, r"^the connection's host \*\*\* has no valid host, .*\.\nSet the host to the base URL"),
        ("host", {"schema": "hunter2"}, "https://host contradicts the connection's schema"),
        ("host", {"port": "hunter2"}, "not a number from 1 to 65535"),
        ("zero\u200bwidth", {}, "invisible character"),
        ("https://user:hunter2@host", {}, r"^the connection's host https://\*\*\*@host contains a user name or password"),
        ("https://host?token=hunter2", {}, "contains a query"),
        ("http://files.example.com", {}, 'exposes the token in transit\\.\n.*needs extra "allow_http": true'),
        ("http://notlocalhost", {}, "exposes the token"),
    ],
)
def test_a_host_or_token_of_no_use_is_refused_with_what_to_write(host: str | None, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        read(host, **more)
    assert "hunter2" not in str(refused.value)
    assert refused.value.permanent


@pytest.mark.parametrize(
    "text", ["[1]", "hunter2", f'{{"timeout": {"9" * 5000}}}', "[" * 100_000, 5], ids=lambda text: str(text)[:20]
)
def test_an_extra_that_is_no_json_object_is_refused_without_being_shown(text: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^the connection\'s extra must be a JSON object, such as") as refused:
        read_extra(text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["protectedFolderIds", "Pretected_folder_ids", "protected_ids", "folder_ids"])
def test_a_misspelling_of_protected_folder_ids_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"^extra '{name}' of the connection is unknown, and resembles 'protected_folder"
    ):
        read(**{name: "x"})


@pytest.mark.parametrize("name", ["extra__http__scheme", "do_not_delete", "timeuot", "region"])
def test_any_other_unknown_extra_has_no_effect(name: str) -> None:
    assert read(**{name: "x"}) == read()
    assert [name in warning for warning in read(**{name: "x"}).warnings] == [True]


def test_the_test_button_of_airflow_2_sends_each_field_twice() -> None:
    assert read_extra('{"timeout": 5, "extra__cloudstore__timeout": 5}') == {"timeout": 5}


def test_settings_show_no_credential_and_list_those_of_the_proxy() -> None:
    own = read(password="hunter2", proxy="http://etl:p%40ss@proxy:3128")
    assert "hunter2" not in repr(own)
    assert "p%40ss" not in repr(own)
    assert {secret.reveal() for secret in own.secrets} == {"hunter2", "etl:p%40ss", "etl:p@ss", "p%40ss", "p@ss"}
    assert {secret.reveal() for secret in read(proxy="http://proxy:3128").secrets} == {"token"}
