from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlUploadOperator
from airflow_provider_cloudstore.operators.send_once import STATE_KEY, UploadRecord, UploadState, url_digest
from airflow_provider_cloudstore.protocol import calls
from tests.support import error_envelope

SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"
SHOWN = "ftp://***@127.0.0.1:9/file?***"


class Killed(BaseException):
    """The process is gone: no handler of the task sees it."""


class Store:
    """A task's state store, as Airflow 3.3's, over the tries of one task."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.calls: list[str] = []
        self.away: set[str] = set()
        self.kill_after: str | None = None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.away:
            raise ConnectionError("https://api-server/store?secret")

    def _done(self, name: str) -> None:
        if name == self.kill_after:
            raise Killed

    def get(self, key: str, default: Any = None) -> Any:
        self._call("get")
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        name = f"set {value['state']}"
        self._call(name)
        self.values[key] = json.dumps(value)
        self._done(name)

    def delete(self, key: str) -> None:
        self._call("delete")
        self.values.pop(key, None)
        self._done("delete")

    @property
    def state(self) -> str | None:
        return str(json.loads(self.values[STATE_KEY])["state"]) if STATE_KEY in self.values else None


class Task:
    """One task over its tries: Airflow's retries, and a user who clears it."""

    def __init__(self, store: Store | None, retries: int = 2) -> None:
        self.store, self.retries = store, retries
        self.number, self.max_tries = 0, retries

    def attempt(self, url: str = SOURCE, **more: Any) -> Any:
        self.number += 1
        operator = RemoteUrlUploadOperator(task_id="upload", url=url, **more)
        operator.render_template_fields({})
        return operator.execute(self.context)

    @property
    def context(self) -> Any:
        store = {"task_state_store": self.store} if self.store else {}
        return {"ti": SimpleNamespace(try_number=self.number, max_tries=self.max_tries, xcom_push=lambda **given: None), **store}

    def clear(self) -> None:
        self.max_tries = self.number + self.retries


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def task(store: Store) -> Task:
    return Task(store)


def uploads(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


@pytest.fixture
def killed_while_sending(emulator: Emulator, task: Task, store: Store) -> Task:
    """A task whose first try was killed once it had recorded that it sends, and maybe had sent."""
    store.kill_after = "set sending"
    with pytest.raises(Killed):
        task.attempt()
    store.kill_after = None
    assert store.state == "sending"
    return task


def test_an_upload_is_recorded_before_it_is_sent_and_when_it_is_queued(emulator: Emulator, task: Task, store: Store) -> None:
    assert task.attempt()["url"] == SHOWN
    assert store.calls == ["get", "set sending", "set queued"]
    assert "hunter" not in str(store.values)
    assert uploads(emulator) == 1


def test_a_retry_after_a_kill_while_sending_ends_as_unknown_and_sends_nothing(
    emulator: Emulator, killed_while_sending: Task, store: Store
) -> None:
    for _ in range(2):  # also when this one is killed before Airflow knows how it ended
        with pytest.raises(exceptions.OutcomeUnknownError) as ended:
            killed_while_sending.attempt()
        assert isinstance(ended.value, AirflowFailException)
        assert str(ended.value).startswith(f"remote upload '{SHOWN}': try 1 ended while sending this upload (at 20")
        assert "Check in the service" in str(ended.value)
        assert ended.value.sent
    assert uploads(emulator) == 0


def test_a_retry_after_a_kill_sends_again_where_that_was_allowed(
    emulator: Emulator, killed_while_sending: Task, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert killed_while_sending.attempt(retry_unknown_outcome=True)["url"] == SHOWN
    assert "resending it because retry_unknown_outcome=True" in caplog.text
    assert uploads(emulator) == 1


def test_who_clears_a_task_that_was_killed_for_good_is_told_to_look_first(emulator: Emulator, store: Store) -> None:
    task = Task(store, retries=0)
    store.kill_after = "set sending"
    with pytest.raises(Killed):
        task.attempt()
    store.kill_after = None
    task.clear()
    with pytest.raises(exceptions.OutcomeUnknownError):
        task.attempt()
    task.clear()
    assert task.attempt()["url"] == SHOWN
    assert uploads(emulator) == 1


def test_a_try_that_was_killed_after_the_upload_was_queued_hands_its_result_to_the_retry(
    emulator: Emulator, task: Task, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    first = task.attempt()  # and killed before Airflow knew of its success
    with caplog.at_level(logging.INFO):
        assert task.attempt() == first
    assert "Try 1 queued the upload of ftp://***@127.0.0.1:9/file?*** before it was killed" in caplog.text
    assert uploads(emulator) == 1


@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 403}, error_envelope("no"), {"kind": "status", "status": 302}],
)
def test_after_a_failure_that_certainly_queued_nothing_a_retry_sends_again(
    emulator: Emulator, task: Task, store: Store, fault: dict[str, Any]
) -> None:
    emulator.fault(**fault)
    with pytest.raises(exceptions.CloudStoreError):
        task.attempt()
    assert store.values == {}
    task.attempt()
    assert uploads(emulator) == 2


def test_an_unknown_outcome_is_recorded_also_for_who_opted_in_to_resending(
    emulator: Emulator, task: Task, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.01)
    emulator.fault("drop_after", times=0)
    with pytest.raises(exceptions.TransientServiceError, match="may or may not have been queued"):
        task.attempt(retry_unknown_outcome=True)
    assert store.state == "unknown"


def test_an_outcome_that_is_unknown_stays_so_for_a_retry_and_not_for_who_clears_the_task(
    emulator: Emulator, task: Task, store: Store
) -> None:
    emulator.fault("drop_after")
    with pytest.raises(exceptions.OutcomeUnknownError):
        task.attempt()
    assert store.state == "unknown"
    with pytest.raises(exceptions.OutcomeUnknownError):  # killed between the error and Airflow's knowledge of it
        task.attempt()
    task.clear()
    task.attempt()
    assert uploads(emulator) == 2


@pytest.mark.parametrize("call", ["get", "set sending"])
def test_without_the_store_nothing_is_sent_and_airflow_tries_again(
    emulator: Emulator, task: Task, store: Store, call: str
) -> None:
    store.away = {call}
    with pytest.raises(ConnectionError):
        task.attempt()
    assert uploads(emulator) == 0
    store.away = set()
    task.attempt()
    assert uploads(emulator) == 1


def test_with_a_record_that_it_cannot_read_nothing_is_sent(emulator: Emulator, task: Task, store: Store) -> None:
    store.values[STATE_KEY] = '{"of": "another version"}'
    with pytest.raises(KeyError):
        task.attempt()
    assert uploads(emulator) == 0


def test_a_store_that_fails_after_the_upload_was_queued_fails_nothing(
    emulator: Emulator, task: Task, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.away = {"set queued"}
    with caplog.at_level(logging.WARNING):
        assert task.attempt()["url"] == SHOWN
    assert "Could not record the outcome of the upload" in caplog.text
    assert uploads(emulator) == 1


def test_before_airflow_3_3_there_is_no_record(emulator: Emulator) -> None:
    task = Task(None)
    task.attempt()
    task.attempt()
    assert uploads(emulator) == 2


RECORD = UploadRecord(url_digest(SOURCE), try_number=1, max_tries=2, sent_at="2026-01-01T00:00:00Z")
RETRY = replace(RECORD, try_number=2)
CLEARED = replace(RECORD, try_number=2, max_tries=3)


@pytest.mark.parametrize("state", UploadState)
def test_a_record_settles_a_retry_of_the_same_upload_and_a_cleared_task_only_if_nobody_was_told(state: UploadState) -> None:
    record = replace(RECORD, state=state)
    assert record.settles(RETRY)
    assert record.settles(CLEARED) is (state is UploadState.SENDING)
    assert not record.settles(replace(RETRY, digest=url_digest(SOURCE + "4")))
