"""Runs the doctor's program: in this process, where its output can be read fast, and in one of its own, as people do."""

from __future__ import annotations

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

COMMAND = [sys.executable, "-m", "airflow_provider_cloudstore.doctor"]


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
    """The program in this process, with ``--json``."""

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        with patch.object(sys, "stdout", sys.stdout), patch.dict(os.environ):
            status = main([*arguments, "--json"])
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def program() -> Doctor:
    """The program in a process of its own, with ``--json`` unless another format is asked for."""

    def run(*arguments: str, given: str = "", as_json: bool = True, **env: str) -> Done:
        command = [*COMMAND, *arguments, *(["--json"] if as_json else [])]
        environment = {**os.environ, **env}
        done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, timeout=100, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return run
