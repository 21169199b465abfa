"""The README's first DAG, exactly as printed, succeeds by the commands of the first day.

Slow: ``make test-airflow`` runs it on both Airflows, on Airflow 2 with its imports.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import ROOT, blocks, code_of, commands, for_this_airflow
from tests.real_airflow import RealAirflow

pytestmark = pytest.mark.slow


def test_the_commands_of_the_first_day_run_the_dag(tmp_path: Path) -> None:
    (block,) = [one for one in blocks(ROOT / "docs" / "start" / "first-dag.md", "console") if "airflow dags test" in one.code]
    lines = [shlex.split(command) for command in commands(block)]
    exports = dict(words[1].split("=", 1) for words in lines if words[0] == "export")
    dags = tmp_path / "home" / "dags"
    dags.mkdir(parents=True)
    (dags / "share_report.py").write_text(for_this_airflow(code_of("README.md-0")))
    with Emulator(access_token="trying") as emulator:
        exports = {name: re.sub(r"http://127.0.0.1:\d+", emulator.url, value) for name, value in exports.items()}
        airflow = RealAirflow(tmp_path / "home", dags, **exports)
        output = [airflow.cli(*words[1:]) for words in lines if words[0] == "airflow"]
        effects = emulator.state()["effects"]
        assert (effects["upload"], effects["link"] >= 2) == (1, True), output
