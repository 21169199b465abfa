from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.operators.base import validate_columns, validate_limits


@pytest.mark.parametrize("limits", [(1, None, None, 0), (500, 0.5, 1, 1_000_000), (16, 100, 100, 0)])
def test_limits_in_their_range_pass(limits: Any) -> None:
    validate_limits(*limits)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ((0, None, None, 0), "max_concurrency must be a whole number from 1 to 500, not 0"),
        ((501, None, None, 0), "max_concurrency must be a whole number from 1 to 500, not 501"),
        ((True, None, None, 0), "max_concurrency must be a whole number from 1 to 500, not True"),
        ((None, None, None, 0), "max_concurrency must be"),
        ((1, 0, None, 0), "requests_per_second must be a number above 0 or None, not 0"),
        ((1, float("nan"), None, 0), "requests_per_second must be"),
        ((1, True, None, 0), "requests_per_second must be"),
        ((1, None, 0, 0), "max_consecutive_failures must be a whole number of at least 1, not 0"),
        ((1, None, True, 0), "max_consecutive_failures must be"),
        ((1, None, None, -1), "allowed_failures must be a whole number of at least 0, not -1"),
        ((1, None, None, False), "allowed_failures must be"),
        ((1, None, None, None), "allowed_failures must be"),
        ((1, None, None, 0.1), "allowed_failures must be"),
    ],
)
def test_a_limit_out_of_its_range_is_refused_by_name(limits: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        validate_limits(*limits)


def test_a_column_is_a_name_and_the_one_of_the_key_may_be_missing() -> None:
    validate_columns(url_column="url", key_column=None)
    validate_columns(url_column="url", key_column="id")
    for wrong in ("", " ", 5):
        with pytest.raises(ValueError, match="url_column must be the name of a column"):
            validate_columns(url_column=wrong, key_column=None)
        with pytest.raises(ValueError, match="key_column must be the name of a column"):
            validate_columns(url_column="url", key_column=wrong)
    with pytest.raises(ValueError, match="url_column must be the name of a column, not None"):
        validate_columns(url_column=None, key_column=None)
