from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowFailException
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.unit.operators.tries import SHOWN, SOURCE, Store, Task, uploads


class Killed(BaseException):
    """The process is gone: no handler of the task sees it."""


@pytest.fixture
def task() -> Task:
    return Task(Store())


@pytest.fixture
def killed_while_sending(emulator: Emulator, task: Task, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task whose first try was killed once it had recorded that it sends, and maybe had sent."""

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CloudStoreHook, "upload_from_url", kill)
        with pytest.raises(Killed):
            task.attempt()
    return task


def test_an_upload_is_recorded_before_it_is_sent_and_when_it_is_queued(emulator: Emulator, task: Task) -> None:
    assert task.attempt()["url"] == SHOWN
    assert task.store.calls == ["get", "set sending", "set queued"]
    assert "hunter" not in str(task.store.values)
    assert uploads(emulator) == 1


def test_a_connection_that_cannot_be_read_is_no_upload_that_may_have_been_sent(
    emulator: Emulator, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the API server is away")

    with monkeypatch.context() as patch:
        patch.setattr(CloudStoreHook, "get_connection", fail)
        with pytest.raises(RuntimeError):
            task.attempt()
    assert task.attempt()["url"] == SHOWN
    assert uploads(emulator) == 1


def test_a_retry_after_a_kill_while_sending_ends_as_unknown_whatever_the_url_renders_to_until_the_task_is_cleared(
    emulator: Emulator, killed_while_sending: Task
) -> None:
    for url in (SOURCE, SOURCE + "4"):  # the second, if the first was killed before Airflow knew how it ended
        with pytest.raises(exceptions.OutcomeUnknownError) as ended:
            killed_while_sending.attempt(url)
        assert isinstance(ended.value, AirflowFailException)
        assert str(ended.value).startswith(f"remote upload '{SHOWN}': an earlier try ended while sending this upload (at 20")
        assert "Check in the service" in str(ended.value)
    assert uploads(emulator) == 0
    killed_while_sending.clear()
    killed_while_sending.attempt()
    assert uploads(emulator) == 1


def test_a_retry_after_a_kill_sends_again_where_that_was_allowed(
    emulator: Emulator, killed_while_sending: Task, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert killed_while_sending.attempt(retry_unknown_outcome=True)["url"] == SHOWN
    assert "resending it because retry_unknown_outcome=True" in caplog.text
    assert uploads(emulator) == 1


def test_a_try_that_was_allowed_and_had_no_effect_leaves_the_earlier_one_in_doubt(
    emulator: Emulator, killed_while_sending: Task
) -> None:
    emulator.fault("status", status=400, operation="upload")
    with pytest.raises(exceptions.BadRequestError):
        killed_while_sending.attempt(retry_unknown_outcome=True)
    with pytest.raises(exceptions.OutcomeUnknownError):
        killed_while_sending.attempt()
    assert uploads(emulator) == 1


def test_a_try_that_was_killed_after_the_upload_was_queued_hands_its_result_to_the_retry(
    emulator: Emulator, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    first = task.attempt()  # and killed before Airflow knew of its success
    with caplog.at_level(logging.INFO):
        assert task.attempt() == first
    assert "An earlier try queued the upload of ftp://***@127.0.0.1:9/file?***; it is not sent again" in caplog.text
    assert task.attempt(SOURCE + "4") == first  # a template may sign its URL anew
    assert uploads(emulator) == 1
    task.clear()
    task.attempt()
    assert uploads(emulator) == 2


def test_after_a_failure_that_certainly_queued_nothing_a_retry_sends_again(emulator: Emulator, task: Task) -> None:
    emulator.fault("status", status=403)
    with pytest.raises(exceptions.PermissionDeniedError):
        task.attempt()
    assert task.store.values == {}
    task.attempt()
    assert uploads(emulator) == 2


def test_an_outcome_that_is_unknown_stays_so_for_a_retry_and_not_for_who_clears_the_task(emulator: Emulator, task: Task) -> None:
    emulator.fault("drop_after")
    for _ in range(2):  # the first was killed between the error and Airflow's knowledge of it
        with pytest.raises(exceptions.OutcomeUnknownError):
            task.attempt()
    assert uploads(emulator) == 1
    task.clear()
    task.attempt()
    assert uploads(emulator) == 2


@pytest.mark.parametrize("call", ["get", "set sending"])
def test_without_the_store_nothing_is_sent_and_airflow_tries_again(emulator: Emulator, task: Task, call: str) -> None:
    task.store.away = {call}
    with pytest.raises(ConnectionError):
        task.attempt()
    assert uploads(emulator) == 0
    task.store.away = set()
    task.attempt()
    assert uploads(emulator) == 1


def test_a_store_that_fails_after_the_upload_was_queued_fails_nothing(
    emulator: Emulator, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    task.store.away = {"set queued"}
    with caplog.at_level(logging.WARNING):
        assert task.attempt()["url"] == SHOWN
    assert "Could not record the outcome of the upload" in caplog.text
    assert uploads(emulator) == 1


def test_before_airflow_3_3_there_is_no_record(emulator: Emulator) -> None:
    task = Task(None)
    task.attempt()
    task.attempt()
    assert uploads(emulator) == 2
