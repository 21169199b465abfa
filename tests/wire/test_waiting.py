"""The same wait on a worker and in the triggerer: the same XCom, the same sentences in the log, the same errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    BaseOperator,
    TaskDeferred,
)

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators import waiting as operators_waiting
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator
from airflow_provider_cloudstore.protocol import waiting
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger
from tests.support import store_file

pytestmark = pytest.mark.slow  # make test-in-time

QUICK: dict[str, Any] = {"poll_interval": 0.05}


@dataclass
class Outcome:
    """What came of a task: its return value, its XComs, the kind and text of its error, and what it logged."""

    value: Any = None
    xcoms: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    lines: list[str] = field(default_factory=list)
    deferred: bool = False
    timeout: timedelta | None = None

    def push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


class Worker:
    """Runs a task as Airflow does: on the worker, in the triggerer if it defers, and on the worker again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        for seconds in ("ON_WORKER_SECONDS", "SETTLE_SECONDS"):
            monkeypatch.setattr(waiting, seconds, 0.0)
        logger = logging.Logger("task")
        logger.addFilter(self._note)
        for kind in (BaseOperator, FileAvailableTrigger):
            monkeypatch.setattr(kind, "log", logger)

    def _note(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        if not any(airflows in line for airflows in ("cannot be called outside", "Success criteria met")):
            self.lines.append(line)
        return False

    def run(self, task: BaseOperator) -> Outcome:
        outcome = Outcome(lines=self.lines)
        ti = SimpleNamespace(
            start_date=pendulum.now("UTC"),
            xcom_push=outcome.push,
            get_first_reschedule_date=lambda context: None,
            **dict.fromkeys(("dag_id", "task_id", "run_id"), "t"),
            **dict.fromkeys(("map_index", "max_tries"), 0),
        )
        context: Any = {"ti": ti, "task": task}
        try:
            outcome.value = self._run(task, context, outcome)
        except Exception as error:  # noqa: BLE001  (the outcome is what is tested)
            outcome.error = error
        return outcome

    def _run(self, task: BaseOperator, context: Any, outcome: Outcome) -> Any:
        try:
            return task.execute(context)
        except TaskDeferred as deferred:
            outcome.deferred = True
            again = FileAvailableTrigger(**deferred.trigger.serialize()[1])
            outcome.timeout = deferred.timeout

        async def wait() -> list[Any]:
            return [event.payload async for event in again.run()]

        (event,) = asyncio.run(wait())
        return task.resume_execution("execute_complete", {"event": event}, context)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


Make = Callable[..., BaseOperator]


def link(deferrable: bool, **more: Any) -> BaseOperator:
    return DownloadLinkOperator(
        task_id="t", file_id="f1", wait_for_file=True, deferrable=deferrable, **{**QUICK, "timeout": 20.0, **more}
    )


def sensor(deferrable: bool, **more: Any) -> BaseOperator:
    return FileAvailableSensor(
        task_id="t", file_id="f1", deferrable=deferrable, **{"poke_interval": 0.05, "timeout": 20.0, **more}
    )


@pytest.fixture(params=[False, True], ids=["on-the-worker", "deferred"])
def deferrable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[link, sensor], ids=["operator", "sensor"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def distinct(lines: list[str]) -> list[str]:
    """The sentences without repetition and without the moment of the deadline, which differs from run to run."""
    return list(dict.fromkeys(line.split(" until ")[0] for line in lines))


def test_a_file_that_is_there_already_costs_no_deferral(worker: Worker, emulator: Emulator, make: Make, deferrable: bool) -> None:
    store_file(emulator)
    outcome = worker.run(make(deferrable))
    assert outcome.error is None
    assert not outcome.deferred
    assert emulator.state()["requests"] == {"link": 1}


def test_a_file_that_comes_later_is_waited_for(worker: Worker, emulator: Emulator, make: Make, deferrable: bool) -> None:
    store_file(emulator)
    emulator.fault("status", status=404, body="Could not find the file", times=3)
    outcome = worker.run(make(deferrable))
    assert outcome.error is None
    assert outcome.deferred is deferrable
    assert type(outcome.timeout) is (timedelta if deferrable else type(None))  # Airflow 3 sends no other kind to its supervisor
    last = "File 'f1' is available" if make is sensor else "Created download link for file 'f1' (expires "
    lines = distinct(outcome.lines)
    assert lines[0] == "File 'f1' is not available yet (HTTP 404: Could not find the file); polling every 0.05 s"
    assert lines[1].startswith(last)
    assert len(lines) == 2
    if make is link:
        tokens = [token["token"] for token in emulator.state()["tokens"]]
        assert outcome.value == tokens[-1]
        assert outcome.xcoms["download_link"]["token"] == tokens[-1]
        assert len(tokens) == (2 if deferrable else 1)  # deferred: the one that proved it, which was dropped, and a fresh one


def test_a_timeout_says_how_long_for_what_and_the_services_last_words(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool
) -> None:
    outcome = worker.run(make(deferrable, timeout=0.5))
    assert isinstance(outcome.error, exceptions.FileWaitTimeoutError)
    assert str(outcome.error) == (
        "wait 'f1': the file was not available within 0.5 s; last response: HTTP 404: Could not find the file.\n"
        "Check the file id, and in the service whether the upload failed; or allow more time with 'timeout'."
    )


PERMANENT = [(400, exceptions.RequestRejectedError), (401, exceptions.AuthenticationError)]


@pytest.mark.parametrize("before", [0, 3], ids=["at-once", "in-mid-wait"])
@pytest.mark.parametrize(("status", "kind"), PERMANENT)
def test_an_error_that_waiting_cannot_help_is_the_same(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool, status: int, kind: Any, before: int
) -> None:
    if before:
        emulator.fault("status", status=404, times=before)
    emulator.fault("status", status=status, body="no", times=0)
    outcome = worker.run(make(deferrable))
    assert isinstance(outcome.error, kind)
    assert isinstance(outcome.error, AirflowFailException)
    assert str(outcome.error).startswith(f"download link 'f1': HTTP {status}: ")
    assert emulator.state()["requests"] == {"link": before + 1}


INCONCLUSIVE: dict[str, Any] = {"kind": "status", "status": 200, "body": "<html>"}


def test_a_response_that_says_nothing_of_the_file_is_waited_out(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool
) -> None:
    store_file(emulator)
    emulator.fault(times=4, **INCONCLUSIVE)
    outcome = worker.run(make(deferrable))
    assert outcome.error is None
    assert outcome.lines[0].startswith("The response is inconclusive about file 'f1' (HTTP ")
    assert len(outcome.lines) == (3 if deferrable else 2)  # the trigger says it too
    assert emulator.state()["requests"]["link"] == (6 if deferrable and make is link else 5)


@pytest.mark.parametrize("before", [0, 3], ids=["at-once", "in-mid-wait"])
def test_three_in_a_row_over_half_a_minute_end_the_wait_with_the_same_error(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "INCONCLUSIVE_SECONDS", 0.3)
    if before:
        emulator.fault("status", status=404, times=before)
    emulator.fault(times=0, **INCONCLUSIVE)
    outcome = worker.run(make(deferrable))
    assert isinstance(outcome.error, exceptions.InvalidResponseError)
    assert not isinstance(outcome.error, AirflowFailException)
    assert str(outcome.error).startswith("download link 'f1': HTTP ")
    assert emulator.state()["requests"]["link"] >= before + 3


def test_a_404_that_is_a_web_page_ends_the_wait_like_any_other(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "INCONCLUSIVE_SECONDS", 0.3)
    emulator.fault("status", status=404, body="<html>404 Not Found</html>", times=0)
    assert isinstance(worker.run(make(deferrable)).error, exceptions.NotFoundError)
    assert emulator.state()["requests"]["link"] >= 3


LAGGING = {"kind": "status", "status": 404, "body": '{"message": "no such file"}'}


@pytest.mark.parametrize(
    ("fault", "kind"), [(INCONCLUSIVE, exceptions.InvalidResponseError), (LAGGING, exceptions.FileWaitTimeoutError)]
)
def test_nor_does_one_end_it_between_the_trigger_and_the_fresh_link(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: Any, kind: type[exceptions.CloudStoreError]
) -> None:
    store_file(emulator)
    emulator.fault(times=2, **fault)
    task: Any = link(True)
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: None)}
    assert task.execute_complete(context, {"status": "available"}) == emulator.state()["tokens"][0]["token"]
    monkeypatch.setattr(waiting, "INCONCLUSIVE_SECONDS", 0.3)
    monkeypatch.setattr(operators_waiting, "_RESUMED_SECONDS", 1.0)
    emulator.fault(times=0, **fault)
    with pytest.raises(kind):
        task.execute_complete(context, {"status": "available"})
    assert emulator.state()["requests"]["link"] >= 6


@pytest.mark.usefixtures("airflow_db")  # Airflow 2 looks there for the first poke
def test_in_mode_reschedule_where_nothing_is_remembered_only_the_timeout_ends_the_wait(
    worker: Worker, emulator: Emulator
) -> None:
    emulator.fault("status", times=0, status=403)
    for number in range(1, 5):
        outcome = worker.run(sensor(False, mode="reschedule"))
        assert type(outcome.error).__name__ == "AirflowRescheduleException"  # its module depends on the Airflow version
        assert emulator.state()["requests"] == {"link": number}


def test_the_operators_next_poll_comes_when_the_service_asked(worker: Worker, emulator: Emulator) -> None:
    store_file(emulator)
    emulator.fault("status", status=429, headers={"Retry-After": "1"}, times=2)
    began = time.monotonic()
    assert worker.run(link(False)).error is None
    assert time.monotonic() - began >= 2
    assert emulator.state()["requests"] == {"link": 3}


@pytest.mark.usefixtures("airflow_db")
def test_in_mode_reschedule_a_deferrable_sensor_remembers_in_the_triggerer(worker: Worker, emulator: Emulator) -> None:
    store_file(emulator)
    emulator.fault("status", status=403, times=3)
    outcome = worker.run(sensor(True, mode="reschedule"))
    assert outcome.error is None
    assert outcome.deferred


def test_soft_fail_skips_a_timeout_also_if_the_last_response_was_inconclusive(
    worker: Worker, emulator: Emulator, deferrable: bool
) -> None:
    emulator.fault(times=0, **INCONCLUSIVE)
    outcome = worker.run(sensor(deferrable, timeout=0.4, soft_fail=True))
    assert isinstance(outcome.error, AirflowSkipException)


def test_soft_fail_skips_a_permanent_error_too(worker: Worker, emulator: Emulator, deferrable: bool) -> None:
    emulator.fault("status", status=404, times=3)
    emulator.fault("status", status=401, times=0)
    assert isinstance(worker.run(sensor(deferrable, soft_fail=True)).error, AirflowSkipException)


def test_a_missing_id_is_refused_before_anything_is_sent(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool
) -> None:
    task = make(deferrable)
    task.file_id = "None"
    outcome = worker.run(task)
    assert isinstance(outcome.error, exceptions.InvalidInputError)
    assert isinstance(outcome.error, AirflowFailException)
    assert emulator.state()["requests"] == {}


@pytest.mark.parametrize("event", [{}, {"status": "done"}, {"status": "failed", "error": "x"}])
def test_an_event_that_is_not_the_triggers_own_fails_loudly(worker: Worker, make: Make, event: dict[str, Any]) -> None:
    task: Any = make(True)
    with pytest.raises(AirflowException, match="Unexpected trigger event"):
        task.execute_complete({}, event)


def test_deferrable_follows_airflows_default() -> None:
    assert FileAvailableSensor(task_id="t", file_id="f").deferrable is False
    assert DownloadLinkOperator(task_id="t2", file_id="f").deferrable is False
