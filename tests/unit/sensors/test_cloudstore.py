from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from airflow.exceptions import AirflowSkipException

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowRescheduleException, BaseSensorOperator
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.dag_runs import run_dag
from tests.dags import operator_dags as dags
from tests.support import connect, store_file


@pytest.mark.usefixtures("airflow_db")
def test_the_sensor_returns_the_id_of_the_file_in_every_mode(emulator: Emulator) -> None:
    store_file(emulator)
    assert run_dag(dags.sensor).values == {"poke": "f1", "reschedule": "f1", "deferrable": "f1"}


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("error", [exceptions.BadRequestError("no"), exceptions.FileWaitTimeoutError("no")], ids=repr)
def test_soft_fail_skips_the_task_after_a_permanent_error_on_the_worker_and_after_a_deferral(
    monkeypatch: pytest.MonkeyPatch, error: exceptions.CloudStoreError, deferred: bool
) -> None:
    def poke(*_: Any) -> None:
        raise error

    monkeypatch.setattr(FileAvailableSensor, "poke", poke)
    event = {"status": "failed", "file_id": "f1", "error": error.to_dict()}
    for soft_fail, ends_with in ((True, AirflowSkipException), (False, type(error))):
        sensor: Any = FileAvailableSensor(task_id="t", file_id="f1", soft_fail=soft_fail)
        run = partial(sensor.resume_execution, "execute_complete", {"event": event}) if deferred else sensor.execute
        with pytest.raises(ends_with):
            run({})


def test_a_rescheduled_sensor_pauses_as_long_as_the_service_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(sensor: FileAvailableSensor, context: Any) -> None:
        assert not sensor.poke(context)
        raise AirflowRescheduleException(datetime.now(UTC))  # type: ignore[no-untyped-call]

    connect(monkeypatch, host="h", password="t")
    monkeypatch.setattr(BaseSensorOperator, "execute", execute)
    monkeypatch.setattr(CloudStoreHook, "poll_file", lambda *_: exceptions.RateLimitError("no", retry_after=300))
    with pytest.raises(AirflowRescheduleException) as rescheduled:
        FileAvailableSensor(task_id="t", file_id="f1", mode="reschedule").execute({})
    assert rescheduled.value.reschedule_date > datetime.now(UTC) + timedelta(seconds=290)
