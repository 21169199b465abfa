from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_cloudstore.doctor import examination
from airflow_provider_cloudstore.doctor.command import main
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.unit.doctor.services import redirected

Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Doctor]:
    """Runs the program in this process, and returns its exit status and what it printed."""
    monkeypatch.setattr(examination, "_PAUSE", 0.02)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # main sets it for its process
    logging.disable(logging.INFO)  # Airflow 2 logs to pytest's output, not to file 1

    def run(*arguments: str) -> tuple[int, str, str]:
        with redirected(), pytest.raises(SystemExit) as ended:
            main([*arguments])
        return int(str(ended.value)), *capfd.readouterr()

    yield run
    logging.disable(logging.NOTSET)


def test_by_default_it_only_reads(emulator: Emulator, doctor: Doctor) -> None:
    status, out, _ = doctor()
    assert status == 0, out
    assert emulator.state()["requests"].keys() == {"link"}
    assert emulator.state()["effects"] == {}


def test_all_flags_try_everything(emulator: Emulator, doctor: Doctor) -> None:
    source = emulator.serve(b"content")
    status, out, _ = doctor("--wrong-token", "--upload", source, "--json")
    assert status == 0, out
    report: dict[str, Any] = json.loads(out)
    assert report["usable"]
    assert [file["source"] for file in emulator.state()["files"]] == [source]
    assert emulator.state()["effects"]["upload"] == 1


@pytest.mark.parametrize(("source", "says"), [("file:///etc/passwd", "http, https or ftp"), ("no url", "URL")])
def test_a_url_that_is_refused_sends_nothing_and_exits_with_2(emulator: Emulator, doctor: Doctor, source: str, says: str) -> None:
    status, out, err = doctor("--upload", source)
    assert (status, out) == (2, "")
    assert says in err
    assert emulator.state()["requests"] == {}


@pytest.mark.parametrize("works", [True, False])
def test_the_command_of_airflow_prints_the_report_and_exits_like_the_module(emulator: Emulator, *, works: bool) -> None:
    if not hasattr(ProvidersManager, "cli_command_functions"):
        pytest.skip("this Airflow has no commands of providers: they came with 3.2")
    command = [sys.executable, "-m", "airflow", "cloudstore", "doctor", "--json", *(() if works else ("--conn-id", "nowhere"))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == (0 if works else 2), ended.stderr
    if works:
        assert json.loads(ended.stdout)["usable"]
    else:
        assert ended.stdout == ""
        assert "it is not defined, or Airflow cannot read it" in ended.stderr
    assert emulator.access_token not in ended.stdout + ended.stderr
