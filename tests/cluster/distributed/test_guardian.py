"""No process of a cluster outlives the one that started it, whatever ends that one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.airflow_home import ROOT
from scripts.processes import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guardian is a Linux subreaper")

# A program with a child in a session of its own, as Airflow's workers have; each notes its process id.
FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)  # the grandchild is an orphan now
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(3600)
"""
PARENT = """
import sys, time
from pathlib import Path
from scripts.processes import Program
Program("family", [sys.executable, "-c", sys.argv[1], sys.argv[2]], Path(sys.argv[2] + ".log")).start()
time.sleep(3600)
"""


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z"


def _family(pids: Path) -> list[int]:
    until("both have started", lambda: pids.exists() and pids.read_text().count("\n") == 2, 30)
    return [int(pid) for pid in pids.read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_program_whose_parent_is_killed(number: int, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with subprocess.Popen([sys.executable, "-c", PARENT, FAMILY, str(pids)], cwd=ROOT) as parent:
        family = _family(pids)
        assert all(map(_alive, family))
        parent.send_signal(number)
    until("all are gone", lambda: not any(map(_alive, family)), 30)
