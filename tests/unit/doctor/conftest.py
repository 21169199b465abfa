"""Runs the doctor's program: in this process, where that is fast, and in one of its own, as people do."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cloudstore.doctor.__main__ import main


@dataclass
class Done:
    """A run that ended."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The report, of a run with ``--json``; standard output holds nothing else."""
        report: dict[str, Any] = json.loads(self.out)
        return report


Doctor = Callable[..., Done]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The program in this process."""

    def run(*arguments: str, given: str = "") -> Done:
        capsys.readouterr()
        with patch.object(sys, "stdout", sys.stdout), patch.object(sys, "stdin", io.StringIO(given)), patch.dict(os.environ):
            try:
                status = main([*arguments])
            except SystemExit as error:  # of argparse
                status = int(str(error.code))
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def program() -> Doctor:
    """The program in a process of its own, with ``--json``, where Airflow logs all that it can."""

    def run(*arguments: str, **env: str) -> Done:
        command = [sys.executable, "-m", "airflow_provider_cloudstore.doctor", "--json", *arguments]
        environment = {**os.environ, "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG", **env}
        done = subprocess.run(command, env=environment, input="old\n", capture_output=True, text=True, timeout=100, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return run
