from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_cloudstore.doctor import examination
from airflow_provider_cloudstore.doctor.command import main
from airflow_provider_cloudstore.emulator.runner import Emulator

Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Runs the program in this process, and returns its exit status and what it printed."""
    monkeypatch.setattr(examination, "_PAUSE", 0.02)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # main sets this and the next for its process
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")

    def run(*arguments: str, given: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        return main([*arguments]), *capsys.readouterr()

    return run


def test_by_default_it_only_reads(emulator: Emulator, doctor: Doctor) -> None:
    status, out, _ = doctor()
    assert status == 0, out
    assert "Not tried: --wrong-token, --upload URL." in out
    assert emulator.state()["requests"].keys() == {"link"}
    assert emulator.state()["effects"] == {}


def test_all_flags_try_everything(emulator: Emulator, doctor: Doctor) -> None:
    source = emulator.serve(b"content")
    status, out, _ = doctor("--wrong-token", "--upload", "-", "--json", given=f"{source}\n")
    assert status == 0, out
    report: dict[str, Any] = json.loads(out)
    assert (report["usable"], report["notes"]) == (True, [])
    assert [file["source"] for file in emulator.state()["files"]] == [source]
    assert emulator.state()["effects"]["upload"] == 1


@pytest.mark.parametrize(("source", "says"), [("file:///etc/passwd", "http, https or ftp"), ("no url", "URL")])
def test_a_url_that_is_refused_sends_nothing_and_exits_with_2(emulator: Emulator, doctor: Doctor, source: str, says: str) -> None:
    status, out, err = doctor("--upload", source)
    assert (status, out) == (2, "")
    assert says in err
    assert emulator.state()["requests"] == {}


def test_settings_of_this_run_are_given_by_flags(emulator: Emulator, doctor: Doctor) -> None:
    status, out, _ = doctor("--set", "success_when=no.such=a=b", "--set", "not_found_pattern=Could not find")
    assert status == 0, out
    status, out, err = doctor("--set", "timeout=soon")
    assert (status, out) == (2, "")
    assert "extra 'timeout' of the connection must be a number" in err


def test_a_mistyped_flag_does_not_print_the_credentials_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--uplod", "https://me:c4n4ry@host/x"])
    assert "c4n4ry" not in capsys.readouterr().err


def test_ctrl_c_during_a_wait_prints_the_report_so_far(
    emulator: Emulator, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    status, out, _ = doctor("--upload", f"{emulator.url}/no-such-source")
    assert status == 1
    assert "interrupted" in out
    assert "\nupload: POST " in out
    assert "\nlink: GET " in out
    assert "The upload is queued. Waiting up to 300 s" in caplog.text  # before it waits


@pytest.mark.parametrize("works", [True, False])
def test_the_command_of_airflow_prints_the_report_and_exits_like_the_module(emulator: Emulator, *, works: bool) -> None:
    if not hasattr(ProvidersManager, "cli_command_functions"):
        pytest.skip("this Airflow has no commands of providers: they came with 3.2")
    command = [sys.executable, "-m", "airflow", "cloudstore", "doctor", "--json", *(() if works else ("--conn-id", "nowhere"))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == (0 if works else 1), ended.stderr
    report = json.loads(ended.stdout)
    assert report["usable"] is works
    assert ("it is not defined, or Airflow cannot parse it. Add it in Admin" in str(report["problems"])) is not works
    assert emulator.access_token not in ended.stdout + ended.stderr
