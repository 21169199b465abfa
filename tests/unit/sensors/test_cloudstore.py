from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowException, AirflowFailException, AirflowSkipException
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.dag_runs import run_dag
from tests.dags import operator_dags as dags
from tests.support import store_file


@pytest.mark.usefixtures("airflow_db")
def test_the_sensor_returns_the_id_of_the_file_in_every_mode(emulator: Emulator) -> None:
    store_file(emulator)
    assert run_dag(dags.sensor).values == {"poke": "f1", "reschedule": "f1", "deferrable": "f1"}


@pytest.mark.parametrize("given", [{"exponential_backoff": True}, {"max_wait": 300}, {"silent_fail": True}], ids=str)
def test_a_deferrable_sensor_refuses_what_only_a_wait_on_the_worker_knows(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"polls every poke_interval and does not know {next(iter(given))}\. Set deferrable"):
        FileAvailableSensor(task_id="t", file_id="f1", deferrable=True, **given)
    FileAvailableSensor(task_id="t", file_id="f1", deferrable=False, **given)


REFUSED, GONE, LATE = (
    exceptions.AuthenticationError("no"),
    exceptions.BadRequestError("no"),
    exceptions.FileWaitTimeoutError("no"),
)


@pytest.mark.parametrize(
    ("given", "error", "skipped"),
    [
        ("soft_fail", REFUSED, True), ("soft_fail", GONE, True), ("soft_fail", LATE, True),
        ("never_fail", REFUSED, True), ("never_fail", GONE, True), ("never_fail", LATE, True),
        ("retries", REFUSED, False), ("retries", LATE, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("deferred", [False, True])
def test_what_skips_the_task_does_so_after_a_deferral_as_well(
    monkeypatch: pytest.MonkeyPatch, given: str, error: exceptions.CloudStoreError, skipped: bool, deferred: bool
) -> None:
    def poke(*_: Any) -> None:
        raise error

    arguments: dict[str, Any] = {given: True if given != "retries" else 2}
    sensor: Any = FileAvailableSensor(task_id="t", file_id="f1", **arguments)
    monkeypatch.setattr(FileAvailableSensor, "poke", poke)
    kwargs = {"event": {"status": "failed", "error": error.to_dict()}, "file_id": "f1"}
    run = partial(sensor.resume_execution, "execute_complete", kwargs) if deferred else sensor.execute
    with pytest.raises(AirflowSkipException if skipped else type(error)):
        run({})


@pytest.mark.parametrize("given", ["soft_fail", "never_fail"])
def test_so_does_a_trigger_that_never_ran(given: str) -> None:
    arguments: dict[str, Any] = {given: True}
    sensor = FileAvailableSensor(task_id="t", file_id="f1", **arguments)
    with pytest.raises(AirflowSkipException):
        sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, {})
    with pytest.raises(AirflowException) as caught:
        FileAvailableSensor(task_id="t", file_id="f1").resume_execution("__fail__", {"error": "Trigger timeout"}, {})
    assert not isinstance(caught.value, (AirflowSkipException, AirflowFailException))
