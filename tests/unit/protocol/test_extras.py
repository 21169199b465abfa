from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.extras import Number
from airflow_provider_cloudstore.protocol.paths import Condition, Paths
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.services import SERVICES
from airflow_provider_cloudstore.protocol.settings import EXTRAS, Settings
from tests.support import connected

# As JSON, and as the text of a form.
VALUES: list[tuple[str, Any, Any]] = [
    ("timeout", "60.5", 60.5),
    ("max_attempts", "1", 1),
    ("verify", "false", False),
    ("verify", "/etc/ca.pem", "/etc/ca.pem"),
    ("proxy", "u:p@proxy:3128", Secret("http://u:p@proxy:3128")),
    ("allow_http", "TRUE", True),
    ("protected_folder_ids", [" root ", 7, "/archive/"], {"0", "/", "root", "7", "archive"}),
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


def value_of(settings: Settings, key: str) -> Any:
    if key == "service":
        return next(name for name, row in SERVICES.items() if row == settings.service)
    return getattr(settings if hasattr(settings, key) else settings.service, key)


@pytest.mark.parametrize(("key", "written", "value"), VALUES)
def test_an_extra_is_read(key: str, written: Any, value: Any) -> None:
    assert value_of(connected({key: written}), key) == value


@pytest.mark.parametrize("key", EXTRAS)
def test_an_extra_that_is_absent_null_or_empty_has_its_default(key: str) -> None:
    empty: list[dict[str, Any]] = [{}, {key: None}, {key: ""}]
    assert [value_of(connected(extra), key) for extra in empty] == [EXTRAS[key].default] * len(empty)
    assert value_of(Settings("https://h", Secret("t")), key) == EXTRAS[key].default


NUMBERS = {key: extra.parse for key, extra in EXTRAS.items() if isinstance(extra.parse, Number)}


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_beyond_its_bounds_is_refused_with_them(key: str) -> None:
    lowest, highest = NUMBERS[key].lowest, NUMBERS[key].highest
    assert [value_of(connected({key: bound}), key) for bound in (lowest, highest)] == [lowest, highest]
    for beyond in (lowest - 1, highest + 1):
        with pytest.raises(ConfigurationError, match=f"^extra '{key}' .* number from {lowest:g} to {highest:g}"):
            connected({key: beyond})


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
        connected(extra)
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    ["a, b", '"a"', '["a"', ["a*"], "None", "{{ var.value.ids }}", '{"a": 1}', [""], ["a", None], ["a\uff0cb"], [[]], [True], 5],
    ids=str,
)  # fmt: skip
def test_a_value_that_may_protect_less_than_was_meant_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="'protected_folder_ids' of the connection must be a list of folder ids"):
        connected({"protected_folder_ids": value})
