"""Every flag of every operator and of the sensor is refused unless it is a bool: ``"no"`` and ``"false"`` are true in Python."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.sensors import cloudstore as sensors

VALID: dict[str, Any] = {
    "folder_id": "f1",
    "file_id": "f1",
    "url": "https://source.example/1",
    "urls": [],
    "receipts": None,
    "target": "/tmp/target",
}
TASKS = [
    *(getattr(operators, name) for name in sorted(vars(operators)) if name.endswith("Operator") and name != "CloudStoreOperator"),
    sensors.FileAvailableSensor,
]
FLAGS = [
    (task, name)
    for task in TASKS
    for name, parameter in inspect.signature(task.__init__).parameters.items()
    if parameter.annotation == "bool"
]


def test_the_flags_are_those_of_all_tasks() -> None:
    assert {(task.__name__, name) for task, name in FLAGS} >= {
        ("DeleteFolderOperator", "ignore_missing"),
        ("RemoteUrlUploadOperator", "retry_unknown_outcome"),
        ("DownloadLinkOperator", "wait_for_file"),
        ("DownloadFileOperator", "deferrable"),
        ("FileAvailableSensor", "deferrable"),
    }


@pytest.mark.parametrize(("task", "name"), FLAGS, ids=[f"{task.__name__}-{name}" for task, name in FLAGS])
@pytest.mark.parametrize("value", ["no", "false", 0, 1, None])
def test_a_flag_that_is_not_a_bool_is_refused_in_the_dag_file(task: Any, name: str, value: Any) -> None:
    required = {
        other: VALID[other]
        for other, parameter in inspect.signature(task.__init__).parameters.items()
        if other in VALID and parameter.default is inspect.Parameter.empty
    }
    with pytest.raises(ValueError, match=f"{name} must be True or False"):
        task(task_id="t", **required, **{name: value})
