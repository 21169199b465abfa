"""The same wait on a worker and in the triggerer, over sockets; ``tests/unit/protocol/test_waiting.py`` has the decisions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pendulum
import pytest
from airflow.exceptions import TaskDeferred

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import (
    AirflowException,
    AirflowSensorTimeout,
    BaseOperator,
    BaseSensorOperator,
)
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator
from airflow_provider_cloudstore.protocol import file_wait
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger
from tests.support import context, store_file

LATE: dict[str, Any] = {"kind": "status", "status": 404, "body": '{"message": "Could not find the file"}'}
PAGE: dict[str, Any] = {"kind": "status", "status": 200, "body": "<html>maintenance"}

Make = Callable[..., BaseOperator]


class Worker:
    """Runs a task as Airflow does: on the worker, in the triggerer if it defers, and on the worker again."""

    def __init__(self) -> None:
        self.xcoms: dict[str, Any] = {}
        self.deferred = False

    def run(self, task: BaseOperator) -> Any:
        of_sensor = {"start_date": pendulum.now("UTC"), "get_first_reschedule_date": lambda context: None}
        of_try: Any = {**context(self.xcoms, **of_sensor), "task": task}
        try:
            return task.execute(of_try)
        except TaskDeferred as deferred:
            self.deferred = type(deferred.timeout) is timedelta  # Airflow 3 sends no other kind to its supervisor
            trigger = FileAvailableTrigger(**deferred.trigger.serialize()[1])

        async def wait() -> list[Any]:
            return [event.payload async for event in trigger.run()]

        (event,) = asyncio.run(wait())
        return task.resume_execution("execute_complete", {"event": event}, of_try)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(file_wait, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(file_wait, "INCONCLUSIVE_SECONDS", 0.2)
    return Worker()


def link(deferrable: bool, timeout: float = 20.0) -> BaseOperator:
    return DownloadLinkOperator(
        task_id="t", file_id="f1", wait_for_file=True, deferrable=deferrable, poll_interval=0.05, timeout=timeout
    )


def sensor(deferrable: bool, timeout: float = 20.0, **more: Any) -> BaseOperator:
    return FileAvailableSensor(task_id="t", file_id="f1", deferrable=deferrable, poke_interval=0.05, timeout=timeout, **more)


of_both = pytest.mark.parametrize("make", [link, sensor])
on_both = pytest.mark.parametrize("deferrable", [False, True], ids=["on-the-worker", "deferred"])


@of_both
@on_both
@pytest.mark.parametrize("faults", [(), (LATE, LATE, PAGE)], ids=["there", "late"])
def test_a_file_that_comes_is_found_alike_on_the_worker_and_in_the_triggerer(
    worker: Worker, emulator: Emulator, make: Make, deferrable: bool, faults: tuple[Any, ...]
) -> None:
    store_file(emulator)
    for fault in faults:
        emulator.fault(**fault)
    value = worker.run(make(deferrable))
    assert worker.deferred is (deferrable and bool(faults))
    tokens = [token["token"] for token in emulator.state()["tokens"]]
    assert emulator.state()["requests"] == {"link": len(faults) + len(tokens)}
    if make is link:  # the link that proved that the file is there is replaced by a fresh one
        assert value == worker.xcoms["download_link"]["token"] == tokens[-1]
        assert len(tokens) == 2


@of_both
@on_both
@pytest.mark.parametrize(
    ("fault", "timeout", "kind", "words"),
    [
        (PAGE, 20.0, exceptions.InvalidResponseError, "download link 'f1': HTTP 200"),
        (
            LATE, 1.0, exceptions.FileWaitTimeoutError,
            "wait 'f1': the file was not available within 1 s; last response: HTTP 404: Could not find the file.",
        ),
    ],
)  # fmt: skip
def test_a_wait_that_ends_without_the_file_says_so_alike(
    worker: Worker,
    emulator: Emulator,
    make: Make,
    deferrable: bool,
    fault: Any,
    timeout: float,
    kind: type[Exception],
    words: str,
) -> None:
    emulator.fault(**fault, times=0)
    with pytest.raises(kind) as ended:
        worker.run(make(deferrable, timeout))
    assert str(ended.value).startswith(words)
    assert worker.deferred is deferrable


def test_a_service_that_asks_for_a_pause_is_not_asked_again_before_it_is_over(worker: Worker, emulator: Emulator) -> None:
    store_file(emulator)
    emulator.fault("status", status=429, headers={"Retry-After": 1})
    began = time.monotonic()
    assert worker.run(sensor(False)) == "f1"
    assert time.monotonic() - began >= 1
    assert emulator.state()["requests"] == {"link": 2}


@pytest.mark.usefixtures("airflow_db")  # Airflow 2 looks there for the first poke
def test_in_mode_reschedule_where_nothing_is_remembered_only_the_timeout_ends_the_wait(
    worker: Worker, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.fault(**PAGE, times=0)
    for number in range(1, 5):
        with pytest.raises(Exception) as ended:  # noqa: PT011  (its module depends on the Airflow version)
            worker.run(sensor(False, mode="reschedule"))
        assert type(ended.value).__name__ == "AirflowRescheduleException"
        assert emulator.state()["requests"] == {"link": number}

    def time_out(*_: Any) -> None:
        raise AirflowSensorTimeout

    monkeypatch.setattr(BaseSensorOperator, "execute", time_out)  # as Airflow's own does when the first poll is too long ago
    with pytest.raises(exceptions.FileWaitTimeoutError, match="wait 'f1'"):
        worker.run(sensor(False, mode="reschedule"))


@of_both
@pytest.mark.parametrize("event", [{"status": "done"}, {"status": "failed", "error": "x"}])
def test_an_event_that_is_not_the_triggers_own_fails_loudly(make: Make, event: dict[str, Any]) -> None:
    task: Any = make(True)
    with pytest.raises(AirflowException, match="Unexpected trigger event"):
        task.execute_complete({}, event)
