from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.operator import parse_urls
from airflow_provider_cloudstore.operators.cloudstore import DeleteFolderOperator, DownloadLinkOperator, RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

ONE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        (' ["http://h/1", null] ', ["http://h/1", None]), ("[]", []), (("a", "b"), ["a", "b"]),
        ("s3://bucket/urls.txt", None), ("/path/[1].txt", None),
    ],
)  # fmt: skip
def test_urls_are_a_list_or_a_list_rendered_as_json_or_a_path(urls: Any, found: Any) -> None:
    assert parse_urls(urls) == found


@pytest.mark.parametrize(
    "urls",
    [
        5, {"a": 1}, b"x", "", None, "[https://h/?sig=hunter2]", '{"url": "https://h/?sig=hunter2"}', "[" * 5000,
        "https://h/a?sig=hunter2", "a,https://h/?sig=hunter2", "https:/h/?sig=hunter2", "ftp://u:hunter2@h/a",
    ],
)  # fmt: skip
def test_what_is_neither_is_refused_without_being_shown(urls: Any) -> None:
    with pytest.raises(ValueError, match=r"^urls ") as refused:
        parse_urls(urls)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", ["no", 1])
def test_what_is_no_bool_is_no_flag(value: Any) -> None:
    """``retry_unknown_outcome="no"`` would be true in Python, and resend uploads that may have arrived."""
    with pytest.raises(ValueError, match="retry_unknown_outcome must be True or False"):
        RemoteUrlUploadOperator(task_id="t", url="https://h/f", retry_unknown_outcome=value)
    with pytest.raises(ValueError, match="ignore_missing must be True or False"):
        DeleteFolderOperator(task_id="t", folder_id="d1", ignore_missing=value)


def test_what_is_no_number_of_seconds_is_refused_in_words_of_our_own() -> None:
    for value in ("60", 0, math.nan, math.inf, -ONE):
        with pytest.raises(ValueError, match="timeout must be a number above 0"):
            DownloadLinkOperator(task_id="link", file_id="f1", timeout=value)


def test_a_duration_is_seconds_or_a_timedelta() -> None:
    link = DownloadLinkOperator(task_id="link", file_id="f1", timeout=30 * ONE, poll_interval=ONE)
    assert (link.timeout, link.poll_interval) == (1800.0, 60.0)
    sensor = FileAvailableSensor(task_id="sensor", file_id="f1", timeout=30 * ONE, poke_interval=ONE)
    assert (sensor.timeout, sensor.poke_interval) == (1800.0, 60.0)
