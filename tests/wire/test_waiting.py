"""The same wait on a worker and in the triggerer, over sockets; ``tests/unit/protocol/test_waiting.py`` has the decisions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, TaskDeferred

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators import waiting as operators_waiting
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator
from airflow_provider_cloudstore.protocol import waiting
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger
from tests.support import store_file

QUICK: dict[str, Any] = {"poll_interval": 0.05}


@dataclass
class Outcome:
    """What came of a task: its return value, its XComs, the kind and text of its error, and what it logged."""

    value: Any = None
    xcoms: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    lines: list[str] = field(default_factory=list)
    deferred: bool = False

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
            outcome.deferred = type(deferred.timeout) is timedelta  # Airflow 3 sends no other kind to its supervisor
            again = FileAvailableTrigger(**deferred.trigger.serialize()[1])

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


def status(code: int, body: str = "no") -> dict[str, Any]:
    return {"kind": "status", "status": code, "body": body}


LATE = status(404, "Could not find the file")
PAGE = status(200, "<html>maintenance")


@dataclass(frozen=True)
class Case:
    """A wait, and how it ends on the worker and in the triggerer.

    :param faults: what the service answers first; the last one for ever if the wait ends with an error.
    :param polls: the number of requests at least, before a fresh link.
    """

    faults: tuple[dict[str, Any], ...]
    error: type[exceptions.CloudStoreError] | None = None
    words: str = ""
    polls: int = 1
    timeout: float = 20.0


CASES = {
    "there": Case(()),
    "late": Case((LATE, LATE, LATE), polls=4),
    "ailing": Case((status(500), status(429), {"kind": "drop_before"}, status(200, '{"_status": "error"}')), polls=5),
    "inconclusive for a moment": Case((PAGE, status(403), LATE), polls=4),
    "inconclusive for long": Case((LATE, PAGE), exceptions.InvalidResponseError, "download link 'f1': HTTP 200", 4),
    "a page for a 404": Case((status(404, "<html>"),), exceptions.NotFoundError, "download link 'f1': HTTP 404", 3),
    "refused": Case((LATE, status(401)), exceptions.AuthenticationError, "download link 'f1': HTTP 401", 2),
    "invalid": Case((status(400),), exceptions.BadRequestError, "download link 'f1': HTTP 400: no", 1),
    "too late": Case(
        (LATE,), exceptions.FileWaitTimeoutError,
        "wait 'f1': the file was not available within 0.5 s; last response: HTTP 404: Could not find the file.", 2, 0.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_wait_ends_alike_on_the_worker_and_in_the_triggerer(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "INCONCLUSIVE_SECONDS", 0.3)
    if not case.error:
        store_file(emulator)
    for number, fault in enumerate(case.faults, 1):
        emulator.fault(**fault, times=0 if case.error and number == len(case.faults) else 1)
    outcome = worker.run(make(deferrable, timeout=case.timeout))
    assert type(outcome.error) is (case.error or type(None))
    assert str(outcome.error or "").startswith(case.words)
    assert emulator.state()["requests"].keys() == {"link"}
    assert emulator.state()["requests"]["link"] >= case.polls
    assert outcome.deferred is (deferrable and case.polls > 1)
    if case.faults[:1] == (LATE,):
        assert outcome.lines[0].startswith(
            "File 'f1' is not available yet (HTTP 404: Could not find the file); polling every 0.05 s"
        )
    if not case.error and make is link:  # the link that proved that the file is there is used, or replaced by a fresh one
        tokens = [token["token"] for token in emulator.state()["tokens"]]
        assert outcome.value == outcome.xcoms["download_link"]["token"] == tokens[-1]
        assert len(tokens) == (2 if outcome.deferred else 1)


@pytest.mark.parametrize(("fault", "kind"), [(PAGE, exceptions.InvalidResponseError), (LATE, exceptions.FileWaitTimeoutError)])
def test_a_lagging_replica_does_not_end_the_wait_between_the_trigger_and_the_fresh_link(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: Any, kind: type[exceptions.CloudStoreError]
) -> None:
    store_file(emulator)
    emulator.fault(times=2, **fault)
    task: Any = link(True)
    assert task.execute_complete({}, {"status": "available"}) == emulator.state()["tokens"][0]["token"]
    monkeypatch.setattr(waiting, "INCONCLUSIVE_SECONDS", 0.3)
    monkeypatch.setattr(operators_waiting, "_RESUMED_SECONDS", 1.0)
    emulator.fault(times=0, **fault)
    with pytest.raises(kind):
        task.execute_complete({}, {"status": "available"})


@pytest.mark.usefixtures("airflow_db")  # Airflow 2 looks there for the first poke
def test_in_mode_reschedule_where_nothing_is_remembered_only_the_timeout_ends_the_wait(
    worker: Worker, emulator: Emulator
) -> None:
    emulator.fault("status", times=0, status=403)
    for number in range(1, 5):
        outcome = worker.run(sensor(False, mode="reschedule"))
        assert type(outcome.error).__name__ == "AirflowRescheduleException"  # its module depends on the Airflow version
        assert emulator.state()["requests"] == {"link": number}


@pytest.mark.usefixtures("airflow_db")
def test_in_mode_reschedule_a_deferrable_sensor_remembers_in_the_triggerer(worker: Worker, emulator: Emulator) -> None:
    emulator.fault("status", status=403, times=3)
    store_file(emulator)
    outcome = worker.run(sensor(True, mode="reschedule"))
    assert (outcome.error, outcome.deferred) == (None, True)


@pytest.mark.parametrize("event", [{}, {"status": "done"}, {"status": "failed", "error": "x"}])
def test_an_event_that_is_not_the_triggers_own_fails_loudly(make: Make, event: dict[str, Any]) -> None:
    task: Any = make(True)
    with pytest.raises(AirflowException, match="Unexpected trigger event"):
        task.execute_complete({}, event)


def test_deferrable_follows_airflows_default() -> None:
    assert FileAvailableSensor(task_id="t", file_id="f").deferrable is False
    assert DownloadLinkOperator(task_id="t2", file_id="f").deferrable is False
