"""Runs a DAG in a test and reports what failed and why; ``dag.test()`` alone reports nothing about a failed run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class DagRunResult:
    """The outcome of a DAG run. ``str()`` lists the tasks that did not succeed, and why.

    Each task is found by its id, and each of a mapped one by ``task_id[map_index]``, such as ``values["upload[0]"]``.

    :param state: the state of the run: ``success`` or ``failed``.
    :param tasks: the state of each task.
    :param values: the return value of each task.
    :param errors: for each task that raised an error, the type and message of the last one.
    :param xcoms: all XComs of each task by key, such as ``xcoms["upload"]["file_id"]``.
    """

    state: str
    tasks: dict[str, str]
    values: dict[str, Any] = field(repr=False)
    errors: dict[str, str]
    xcoms: dict[str, dict[str, Any]] = field(repr=False)

    def __str__(self) -> str:
        lines = [
            f"  {name}: {state}{f': {self.errors[name]}' if name in self.errors else ''}"
            for name, state in self.tasks.items()
            if state != "success"
        ]
        return "\n".join([f"The run ended as {self.state}.", *lines])


def run_dag(dag: Any, conf: Mapping[str, Any] | None = None, *, logical_date: datetime | None = None) -> DagRunResult:
    """Run a DAG to its end in this process, deferred tasks included. It does not raise when a task fails: check the state.

    Airflow's database must exist (``airflow db migrate``), and Airflow 3 requires the DAG's file to be in its DAGs folder.

    :param dag: the DAG.
    :param conf: the configuration of the run; it overrides ``params``.
    :param logical_date: the logical date of the run; default: now.
    """
    date = "logical_date" if "logical_date" in inspect.signature(dag.test).parameters else "execution_date"  # Airflow 2
    when = {date: logical_date} if logical_date else {}
    with _collected_errors() as errors:
        run = dag.test(run_conf=dict(conf or {}), **when)
    instances = {_name(ti): ti for ti in run.get_task_instances()}
    xcoms = {name: _xcoms(ti) for name, ti in instances.items()}
    return DagRunResult(
        state=str(run.state),
        tasks={name: str(ti.state) for name, ti in instances.items()},
        values={name: of_task.get("return_value") for name, of_task in xcoms.items()},
        errors={name: errors[name] for name in instances if name in errors},
        xcoms=xcoms,
    )


def _xcoms(task_instance: Any) -> dict[str, Any]:
    from airflow.models import xcom
    from airflow.utils.session import create_session

    table = vars(xcom)["XComModel" if hasattr(xcom, "XComModel") else "BaseXCom"]  # Airflow 3, Airflow 2
    where = ("dag_id", "run_id", "task_id", "map_index")
    with create_session() as session:
        query = session.query(table.key).filter_by(**{name: getattr(task_instance, name) for name in where})
        keys = sorted(key for (key,) in query)
    of_task = {"task_ids": task_instance.task_id, "map_indexes": task_instance.map_index}
    return {key: task_instance.xcom_pull(key=key, **of_task) for key in keys}


@contextmanager
def _collected_errors() -> Iterator[dict[str, str]]:
    """Collect the errors of the tasks that fail while the block runs, by task name."""
    from airflow.listeners import hookimpl

    try:
        listeners = import_module("airflow.sdk.listener")
    except ImportError:  # before Airflow 3.2
        listeners = import_module("airflow.listeners.listener")
    errors: dict[str, str] = {}

    class Listener:
        @hookimpl
        def on_task_instance_failed(self, task_instance: Any, error: Any) -> None:
            errors[_name(task_instance)] = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)

    listener, manager = Listener(), listeners.get_listener_manager()
    manager.add_listener(listener)
    try:
        yield errors
    finally:
        manager.pm.unregister(listener)


def _name(task_instance: Any) -> str:
    index = task_instance.map_index if task_instance.map_index is not None else -1
    return str(task_instance.task_id) if index < 0 else f"{task_instance.task_id}[{index}]"
