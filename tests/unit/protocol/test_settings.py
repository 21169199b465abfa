from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.parse_connection import read_extra
from airflow_provider_cloudstore.protocol.paths import Condition, Paths
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.services import SERVICES
from airflow_provider_cloudstore.protocol.settings import EXTRAS, Settings
from tests.support import connected


def read(host: str | None = "files.example.com", password: str | None = "token", **more: Any) -> Settings:
    fields = {name: more.pop(name, None) for name in ("conn_type", "schema", "port")}
    return connected(more, host, password, **fields)


def value_of(settings: Settings, key: str) -> Any:
    if key == "service":
        return next(name for name, row in SERVICES.items() if connected(row).service == settings.service)
    return getattr(settings if hasattr(settings, key) else settings.service, key)


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


# As JSON, and as the text of a form.
VALUES: list[tuple[str, Any, Any]] = [
    ("timeout", "60.5", 60.5),
    ("max_attempts", "1", 1),
    ("verify", "false", False),
    ("verify", "/etc/ca.pem", "/etc/ca.pem"),
    ("proxy", "u:p@proxy:3128", Secret("http://u:p@proxy:3128")),
    ("allow_http", "TRUE", True),
    ("protected_folder_ids", [" root ", 7], {"0", "/", "root", "7"}),
    ("protected_folder_ids", '["My Folder (2024)", "é/b-c_d.e~f"]', {"0", "/", "My Folder (2024)", "é/b-c_d.e~f"}),
    ("protected_folder_ids", [], {"0", "/"}),
    ("service", "yetishare", "yetishare"),
    ("api_path", "/api/v2/", "/api/v2"),
    ("parameters", '{"account_id": 7}', {"account_id": "7"}),
    ("token_path", "data.link.0.key", Paths((("data", "link", "0", "key"),))),
    ("success_when", "ocs.meta.status=ok", {"": Condition.parse("ocs.meta.status=ok")}),
    ("success_when", '{"delete": "done"}', {"delete": Condition.parse("done")}),
    ("not_found_pattern", "no such (folder|file)", re.compile("no such (folder|file)", re.IGNORECASE)),
    ("download_url", " http://dl.example.com/{token}/x ", "http://dl.example.com/{token}/x"),
]


@pytest.mark.parametrize(("key", "written", "value"), VALUES)
def test_an_extra_is_read(key: str, written: Any, value: Any) -> None:
    assert value_of(read(**{key: written}), key) == value


@pytest.mark.parametrize("key", EXTRAS)
def test_an_extra_that_is_absent_null_or_empty_has_its_default(key: str) -> None:
    empty: list[dict[str, Any]] = [{}, {key: None}, {key: ""}]
    assert [value_of(read(**extra), key) for extra in empty] == [EXTRAS[key].default] * len(empty)
    assert value_of(Settings("https://h", Secret("t")), key) == EXTRAS[key].default


@pytest.mark.parametrize("key", ["timeout", "max_attempts"])
def test_a_number_beyond_its_bounds_is_refused_with_them(key: str) -> None:
    lowest, highest = (EXTRAS[key].kind.schema[bound] for bound in ("minimum", "maximum"))
    assert [getattr(read(**{key: bound}), key) for bound in (lowest, highest)] == [lowest, highest]
    for beyond in (lowest / 2, highest + 1):
        with pytest.raises(ConfigurationError, match=f"^extra '{key}' .* number from {lowest:g} to {highest:g}"):
            read(**{key: beyond})


@pytest.mark.parametrize(
    "extra",
    [
        {"timeout": "hunter2"}, {"timeout": "nan"}, {"timeout": True}, {"timeout": []}, {"timeout": 10**400},
        {"timeout": "9" * 5000}, {"max_attempts": 2.5}, {"verify": 1}, {"allow_http": "perhaps"}, {"proxy": "proxy:70000"},
        {"proxy": "http://u:hunter2/x@proxy:3128"}, {"proxy": "http://proxy/hunter2"}, {"proxy": "socks5://proxy"},
        {"token_path": 5}, {"token_path": "data..key"}, {"service": "v3"}, {"service": ["x"]}, {"api_path": "https://h/x"},
        {"parameters": ["a"]}, {"parameters": "hunter2"}, {"parameters": {"overwrite": True}},
        {"parameters": {"Access_Token": "hunter2"}},
        {"success_when": "status=1|"}, {"success_when": True},
        {"not_found_pattern": "no such ("}, {"not_found_pattern": 5}, {"not_found_pattern": ".*"},
        {"download_url": "https://dl.example.com/"}, {"download_url": "https://dl.example.com/{token}/{token}"},
        {"download_url": "https://u:hunter2@dl.example.com/{token}"}, {"file_page_url": "https://h/files"},
    ],
)  # fmt: skip
def test_an_extra_that_makes_no_sense_is_refused_by_its_name(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"^extra '{next(iter(extra))}' of the connection ") as refused:
        read(**extra)
    assert "hunter" not in str(refused.value)


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


@pytest.mark.parametrize(
    "value",
    ["a, b", '"a"', '["a"', ["a*"], "None", "{{ var.value.ids }}", '{"a": 1}', [""], ["a", None], ["a\uff0cb"], [[]], [True], 5],
    ids=str,
)  # fmt: skip
def test_a_value_that_may_protect_less_than_was_meant_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="'protected_folder_ids' of the connection must be a list of folder ids"):
        read(protected_folder_ids=value)


def test_settings_show_no_credential_and_list_those_of_the_proxy() -> None:
    own = read(password="hunter2", proxy="http://etl:p%40ss@proxy:3128")
    assert "hunter2" not in repr(own)
    assert "p%40ss" not in repr(own)
    assert {secret.reveal() for secret in own.secrets} == {"hunter2", "etl:p%40ss", "etl:p@ss", "p%40ss", "p@ss"}
    assert {secret.reveal() for secret in read(proxy="http://proxy:3128").secrets} == {"token"}
