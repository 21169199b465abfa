"""The README's first DAG, exactly as printed, succeeds in a full Airflow on its first day and on later ones.

Slow: ``make test-airflow`` runs it on both Airflows.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import ROOT, blocks, code_of, commands
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

DATE = "--exec-date" if AIRFLOW_2 else "--logical-date"


def test_the_readmes_dag_succeeds_on_two_dates(airflow: RealAirflow, emulator: Emulator) -> None:
    emulator.call(lambda service: setattr(service.store, "fetch_delay", 0))
    emulator.make_folder("old-reports")  # only the first run finds it
    airflow.unpause("share_report")
    runs = {"first": "2026-03-08", "second": "2026-03-09"}
    for run_id, date in runs.items():
        airflow.cli("dags", "trigger", "share_report", "--run-id", run_id, DATE, f"{date}T00:00:00+00:00")
    for run_id in runs:
        states = airflow.finish(run_id)
        assert set(states.values()) == {"success"}, states
    active = "select 1 from dag_run where dag_id = 'share_report' and state in ('queued', 'running')"
    airflow.until("the run of today is over as well", lambda: not airflow.rows(active))
    state = emulator.state()
    assert state["effects"]["delete"] == 1
    assert state["effects"]["link"] >= 2
    assert "old-reports" not in state["folders"]


def test_the_commands_of_the_first_day_run_the_dag(tmp_path: Path) -> None:
    (block,) = [one for one in blocks(ROOT / "docs" / "start" / "first-dag.md", "console") if "airflow dags test" in one.code]
    lines = [shlex.split(command) for command in commands(block)]
    exports = dict(words[1].split("=", 1) for words in lines if words[0] == "export")
    dags = tmp_path / "home" / "dags"
    dags.mkdir(parents=True)
    (dags / "share_report.py").write_text(code_of("README.md-0"))
    with Emulator(access_token="trying") as emulator:
        exports = {name: re.sub(r"http://127.0.0.1:\d+", emulator.url, value) for name, value in exports.items()}
        airflow = RealAirflow(tmp_path / "home", dags, **exports)
        output = [airflow.cli(*words[1:]) for words in lines if words[0] == "airflow"]
        assert emulator.state()["effects"] == {"upload": 1, "link": 1}, output
