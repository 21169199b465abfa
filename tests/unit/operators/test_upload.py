from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import TaskDeferred

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowException, AirflowFailException, AirflowTaskTimeout
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol import file_wait
from tests.dag_runs import succeed
from tests.dags import operator_dags as dags
from tests.support import store_file
from tests.unit.operators.tries import SOURCE, Store, Task, uploads


def waiting_task(store: Store | None = None, **arguments: Any) -> Task:
    return Task(store, **{"wait_for_file": True, "poll_interval": 0.05, "timeout": 0.2} | arguments)


@pytest.mark.usefixtures("airflow_db")
def test_uploads_that_wait_succeed_when_their_files_are_there_mapped_and_not(emulator: Emulator) -> None:
    sources = [emulator.serve(b"%d" % number, str(number)) for number in range(2)]
    run = succeed(dags.uploads_that_wait, {"sources": sources})
    stored = {one["file_id"]: one["state"] for one in emulator.state()["files"]}
    returned = [run.values["single"], run.values["mapped[0]"], run.values["mapped[1]"]]
    assert sorted(returned) == sorted(stored)
    assert set(stored.values()) == {"stored"}


@pytest.mark.usefixtures("airflow_db")
def test_every_wait_that_is_deferred_ends_well_in_dag_test_which_forgets_what_it_was_deferred_with(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_wait, "SETTLE_SECONDS", 0.0)
    polled, poll = set[str](), CloudStoreHook.poll_file

    def poll_late(hook: CloudStoreHook, file_id: str) -> Any:
        if file_id in polled:  # not the first time: that is too early
            return poll(hook, file_id)
        polled.add(file_id)
        return exceptions.NotFoundError("not yet")

    monkeypatch.setattr(CloudStoreHook, "poll_file", poll_late)
    for file_id in ("f1", "f2", "f3"):
        store_file(emulator, file_id=file_id)
    run = succeed(dags.deferred, {"source": emulator.serve(b"x"), "target": str(tmp_path / "file")})
    assert {run.values["upload"], run.values["mapped[0]"], "f1", "f2", "f3"} < polled
    assert run.values["sensor"] == "f1"
    assert run.values["unpushed"] is run.values["each[0]"] is None
    assert emulator.state()["requests"]["upload"] == 4


def test_a_retry_goes_on_waiting_with_what_is_left_of_the_time_whatever_the_url_renders_to(
    emulator: Emulator,
) -> None:
    task = waiting_task(Store(), timeout=timedelta(minutes=30), retries=2)
    emulator.fault("status", status=401, operation="link")
    with pytest.raises(exceptions.AuthenticationError):
        task.attempt()
    began = datetime.now(UTC) - timedelta(minutes=29, seconds=59)
    task.store.record["result"]["requested_at"] = began.isoformat()
    with pytest.raises(exceptions.FileWaitTimeoutError, match="within 1800 s"):
        task.attempt(SOURCE + "4")
    assert uploads(emulator) == 1
    emulator.put_file(b"x", task.pushed["upload"]["file_id"])
    task.attempt()
    assert uploads(emulator) == 1


def test_what_is_deferred_is_the_id_and_the_time_of_the_upload(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    task = waiting_task(Store(), deferrable=True, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        task.attempt()
    assert emulator.state()["requests"] == {"upload": 1, "link": 1}
    upload, trigger = task.pushed["upload"], deferred.value.trigger.serialize()[1]
    assert trigger["began"] == upload["requested_at"].replace("Z", "+00:00")
    assert "hunter" not in json.dumps([deferred.value.kwargs, trigger])
    event = {"status": "available", "file_id": trigger["file_id"]}
    assert task.operator().execute_complete({}, event) == upload["file_id"]
    assert uploads(emulator) == 1


def test_without_an_id_there_is_nothing_to_wait_for_and_the_error_says_that_the_upload_is_queued(emulator: Emulator) -> None:
    emulator.fault("status", status=200, body='{"ok": true}', operation="upload")
    task = waiting_task(retries=2)
    with pytest.raises(AirflowFailException, match="the response has no file id to wait for") as caught:
        task.attempt()
    assert "The upload is queued. FileAvailableSensor only waits" in str(caught.value)
    assert "file_id_path" in str(caught.value)
    assert emulator.state()["requests"] == {"upload": 1}


ENDED: dict[str, Any] = {
    "timed out": (None, exceptions.FileWaitTimeoutError),
    "refused token": ({"status": 401}, exceptions.PermanentError),
    "web page": ({"status": 200, "body": "<html>"}, exceptions.PermanentError),
}


@pytest.mark.parametrize("ended", ENDED)
def test_without_a_store_whatever_ends_the_wait_is_permanent_and_names_the_sensor(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    monkeypatch.setattr(file_wait, "INCONCLUSIVE_SECONDS", 0.05)
    fault, kind = ENDED[ended]
    if fault:
        emulator.fault("status", **fault, operation="link", times=0)
    task = waiting_task(retries=2)
    with pytest.raises(kind) as caught:
        task.attempt()
    assert_names_the_sensor(caught.value, task.pushed["upload"]["file_id"])
    assert "clearing this task uploads again" in str(caught.value)
    assert "Airflow's retries" not in str(caught.value)
    assert uploads(emulator) == 1


@pytest.mark.parametrize("error", [AirflowTaskTimeout("execution_timeout"), ConnectionError("the API server, with a secret")])
def test_so_is_what_ends_it_from_outside(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def end(*_: Any) -> None:
        raise error

    monkeypatch.setattr(CloudStoreHook, "poll_file", end)
    task = waiting_task(retries=2)
    with pytest.raises(exceptions.PermanentError, match=f"the task ended with {type(error).__name__}") as caught:
        task.attempt()
    assert "secret" not in str(caught.value)
    assert_names_the_sensor(caught.value, task.pushed["upload"]["file_id"])
    recorded = waiting_task(Store(), retries=2)
    with pytest.raises(type(error)):
        recorded.attempt()


EVENT: dict[str, Any] = {"status": "failed", "file_id": "f1", "error": exceptions.AuthenticationError("refused").to_dict()}


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("execute_complete", {"event": EVENT}),
        ("execute_complete", {"event": {"status": "?", "file_id": "f1"}}),
        ("__fail__", {"error": "Trigger timeout"}),
        ("__fail__", {"error": "Trigger failure", "traceback": ["x"]}),
    ],
)
def test_so_is_what_ends_it_after_a_deferral(emulator: Emulator, method: str, given: Any) -> None:
    task: Any = waiting_task(retries=2).operator()
    with pytest.raises(exceptions.PermanentError) as caught:
        task.resume_execution(method, given, {})
    assert_names_the_sensor(caught.value, "f1" if method == "execute_complete" else "")
    with pytest.raises((exceptions.AuthenticationError, AirflowException)) as retried:
        task.resume_execution(method, given, {"task_state_store": Store()})
    assert not isinstance(retried.value, AirflowFailException)


def assert_names_the_sensor(error: BaseException, file_id: str) -> None:
    as_file = f" as file '{file_id}'" if file_id else ""
    assert isinstance(error, AirflowFailException)
    assert f"The upload is queued{as_file}. FileAvailableSensor only waits" in str(error)


def test_no_constructor_refuses_a_wait_that_has_retries() -> None:
    for more in ({"retries": 2}, {"default_args": {"retries": 2}}):
        assert waiting_task(**more).operator().retries == 2
