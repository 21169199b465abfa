"""Runs one DAG file in this process on a real Airflow, and writes the result as JSON."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any


def main(dag_file: str, conf: str, result_file: str) -> int:
    """Run a DAG with ``dag.test()``.

    :param dag_file: the path of a DAG file whose DAG is called ``dag``.
    :param conf: the run's configuration, as JSON.
    :param result_file: where the states and XComs are written.
    :returns: 0 if the run succeeded.
    """
    dag: Any = runpy.run_path(dag_file)["dag"]
    run = dag.test(run_conf=json.loads(conf))
    tasks = run.get_task_instances()
    result = {
        "state": run.state,
        "tasks": {ti.task_id: ti.state for ti in tasks},
        "xcoms": {ti.task_id: ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index) for ti in tasks},
    }
    Path(result_file).write_text(json.dumps(result, default=str))
    return 0 if run.state == "success" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
