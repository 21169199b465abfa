from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.batch.tries import FORMAT, Try
from airflow_provider_cloudstore.protocol import errors

SCOPE = ("dag", "run", "task", "-1")


def test_a_try_accepts_its_own_mark_and_that_of_an_older_one() -> None:
    writer = Try(SCOPE, 3)
    for mark in (None, writer.to_mark(), Try(SCOPE, 2).to_mark()):
        for begins in (False, True):
            writer.validate(mark, "the folder", begins=begins)


@pytest.mark.parametrize("begins", [False, True])
def test_a_try_stops_at_the_mark_of_a_newer_one(begins: bool) -> None:
    with pytest.raises(errors.BatchInterruptedError) as stopped:
        Try(SCOPE, 3).validate(Try(SCOPE, 4).to_mark(), "the folder", begins=begins)
    assert stopped.value.cause == "superseded"
    assert stopped.value.reason == "try 3 found the mark of try 4, which has taken over"


def test_the_same_try_in_another_process_takes_over_when_it_begins_and_stops_the_first() -> None:
    first, second = Try(SCOPE, 3), Try(SCOPE, 3)
    assert first.process != second.process
    second.validate(first.to_mark(), "the folder", begins=True)
    with pytest.raises(errors.BatchInterruptedError) as stopped:
        first.validate(second.to_mark(), "the folder")
    assert stopped.value.cause == "superseded"


@pytest.mark.parametrize(
    "mark",
    [
        "none",
        7,
        [],
        {},
        {"format": FORMAT},
        {"format": FORMAT, "number": "3"},
        {"format": FORMAT, "number": True},
        {"format": FORMAT - 1, "number": 3},
        {"format": FORMAT + 1, "number": 3},
        {"number": 3},
    ],
)
def test_a_mark_of_another_format_is_an_error_that_says_what_to_do(mark: Any) -> None:
    with pytest.raises(errors.BatchStoppedError) as stopped:
        Try(SCOPE, 3).validate(mark, "the folder", begins=True)
    assert stopped.value.cause == "format"
    assert stopped.value.reason.startswith("the folder holds progress of this batch in a format")
    assert "clear the task" in stopped.value.advice


def test_the_id_of_a_batch_is_short_and_differs_with_each_part_of_its_scope() -> None:
    scopes = [
        SCOPE,
        ("dag", "run", "task", "0"),
        ("dag", "run", "task"),
        ("dagrun", "task", "-1"),
        ("dag", "run", "tas", "k-1"),
        (),
    ]
    ids = {Try(scope).batch for scope in scopes}
    assert len(ids) == len(scopes)
    assert {len(one) for one in ids} == {12}
    assert Try(SCOPE, 1).batch == Try(SCOPE, 2).batch
    assert Try(SCOPE).batch == "9d424c85b7c1"
