from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.operators.arguments import parse_urls


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        ('["http://h/1", "http://h/2"]', ["http://h/1", "http://h/2"]), (' ["a", null] ', ["a", None]), ("[]", []), ([], []),
        (("a", "b"), ["a", "b"]), ("s3://bucket/urls.txt", None), ("/path/[1].txt", None), ("urls.csv", None),
    ],
)  # fmt: skip
def test_urls_are_a_list_or_a_list_rendered_as_json_or_a_path(urls: Any, found: Any) -> None:
    assert parse_urls(urls) == found


@pytest.mark.parametrize(
    "urls",
    [
        None, 5, {"a": 1}, b"x", "", " ", "None", "null", "[https://h/?sig=hunter2, https://h/2]", "https://h/a?sig=hunter2",
        "('https://h/?sig=hunter2',)", '"https://h/?sig=hunter2"', "a,https://h/?sig=hunter2", "https:/h/?sig=hunter2",
        "['https://h/?sig=hunter2']", '{"url": "https://h/?sig=hunter2"}',
        "ftp://u:hunter2@h/a", "https://h/?sig=hunter2\nhttps://h/2", "[" * 5000,
    ],
)  # fmt: skip
def test_what_is_neither_is_refused_without_being_shown(urls: Any) -> None:
    with pytest.raises(ValueError, match=r"^urls ") as refused:
        parse_urls(urls)
    assert "hunter2" not in str(refused.value)
