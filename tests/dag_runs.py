"""Runs a DAG in a test, and returns what its tasks returned."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

try:  # as Airflow 3.3 does by itself: 3.0 to 3.2 build their API anew for each task, which takes three seconds
    from airflow.sdk.execution_time import supervisor
except ImportError:  # Airflow 2
    pass
else:
    vars(supervisor)["in_process_api_server"] = functools.lru_cache(maxsize=1)(vars(supervisor)["in_process_api_server"])


@dataclass(frozen=True, slots=True)
class DagRunResult:
    """The states of a DAG run and of its tasks, and what these returned; why one failed is in its log, which pytest shows.

    Each task is found by its id, and each of a mapped one by ``task_id[map_index]``, such as ``values["upload[0]"]``.
    """

    state: str
    tasks: dict[str, str]
    values: dict[str, Any] = field(repr=False)


def run_dag(dag: Any, conf: Mapping[str, Any] | None = None) -> DagRunResult:
    """Run a DAG to its end in this process, deferred tasks included. It does not raise when a task fails: check the state.

    Airflow's database must exist (``airflow db migrate``), and Airflow 3 requires the DAG's file to be in its DAGs folder.

    :param conf: the configuration of the run; it overrides ``params``.
    """
    run = dag.test(run_conf=dict(conf or {}))
    instances = {_name(ti): ti for ti in run.get_task_instances()}
    return DagRunResult(
        state=str(run.state),
        tasks={name: str(ti.state) for name, ti in instances.items()},
        values={name: ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index) for name, ti in instances.items()},
    )


def succeed(dag: Any, conf: Mapping[str, Any] | None = None) -> DagRunResult:
    """As :func:`run_dag`, for a run that must succeed."""
    run = run_dag(dag, conf)
    assert run.state == "success", str(run)
    return run


def _name(task_instance: Any) -> str:
    index = task_instance.map_index if task_instance.map_index is not None else -1
    return str(task_instance.task_id) if index < 0 else f"{task_instance.task_id}[{index}]"
