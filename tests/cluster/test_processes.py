"""What a test starts is ended with all its descendants, also if the test's own process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scripts.airflow_home import ROOT
from scripts.processes import Program, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="setpriv is a program of Linux")

# A program with a child in a session of its own, as Airflow's workers have; each notes its process id.
FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(3600)
"""
PARENT = """
import sys, time
from pathlib import Path
from scripts.processes import Program
Program("sleeper", ["sleep", "3600"], Path(sys.argv[1]) / "log").start()
time.sleep(3600)
"""


def running(pid: int) -> bool:
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def test_a_killed_or_stopped_program_leaves_no_process(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    program = Program("family", [sys.executable, "-c", FAMILY, noted], tmp_path / "log")
    for end in (program.kill, program.stop):
        noted.write_text("")
        program.start()
        until("both have started", lambda: noted.read_text().count("\n") == 2, 30)
        pids = [int(pid) for pid in noted.read_text().split()]
        assert sorted(program.pids) == sorted(pids)
        program.freeze()
        assert {psutil.Process(pid).status() for pid in pids} == {psutil.STATUS_STOPPED}
        program.thaw()
        end()
        assert not any(map(running, pids))
        assert not program.runs


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_does_not_outlive_the_process_that_started_it(number: int, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT) as parent:
        (child,) = until("it has started", lambda: psutil.Process(parent.pid).children(), 30)
        until("it sleeps", lambda: child.name() == "sleep", 30)
        parent.send_signal(number)
    until("it has ended", lambda: not running(child.pid), 30)
