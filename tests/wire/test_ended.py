"""Operators whose process is stopped or killed while they send, and the retry.

Slow: ``make test-in-time`` runs it.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.one_try import result, start
from tests.support import eventually

pytestmark = pytest.mark.slow  # make test-in-time


def end_while_sending(process: subprocess.Popen[str], emulator: Emulator, sent: int, ending: signal.Signals) -> None:
    """Send the signal once the service has received a number of uploads, the last of them without its response."""
    eventually(lambda: emulator.state()["requests"].get("upload") == sent, 60)
    process.send_signal(ending)


def test_an_upload_that_is_killed_while_sending_is_not_resent(emulator: Emulator, tmp_path: Path) -> None:
    emulator.fault("delay", operation="upload", seconds=60)
    process = start("upload", str(tmp_path / "store"), 1)
    end_while_sending(process, emulator, 1, signal.SIGKILL)
    with process:
        assert process.wait(60) == -signal.SIGKILL
    assert result(start("upload", str(tmp_path / "store"), 2)) == "OutcomeUnknownError"
    assert emulator.state()["requests"] == {"upload": 1}


def test_an_upload_that_is_stopped_while_sending_finishes_if_it_gets_its_response_in_time(
    emulator: Emulator, tmp_path: Path
) -> None:
    emulator.fault("delay", operation="upload", seconds=1)
    process = start("upload", str(tmp_path / "store"), 1)
    end_while_sending(process, emulator, 1, signal.SIGTERM)
    first = json.loads(result(process))
    assert json.loads(result(start("upload", str(tmp_path / "store"), 2))) == first
    assert emulator.state()["requests"] == {"upload": 1}


@pytest.mark.parametrize(("ending", "resent"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1 + 2 / 0.4)])
def test_a_batch_that_is_ended_resumes_and_resends_at_most_what_was_in_flight_and_two_seconds(
    emulator: Emulator, tmp_path: Path, ending: signal.Signals, resent: float
) -> None:
    emulator.fault("delay", operation="upload", seconds=0.4, times=9)
    process = start("batch", str(tmp_path / "store"), 1)
    end_while_sending(process, emulator, 9, ending)
    if ending is signal.SIGTERM:
        assert result(process) == "BatchInterruptedError"
    else:
        with process:
            assert process.wait(60) == -signal.SIGKILL
    summary = json.loads(result(start("batch", str(tmp_path / "store"), 2)))
    assert (summary["total"], summary["queued"], summary["queued_earlier"] > 0) == (20, 20, True)
    state = emulator.state()
    assert len({stored["source"] for stored in state["files"]}) == 20
    assert state["requests"]["upload"] <= 20 + resent
