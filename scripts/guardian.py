"""Runs one program and kills all its processes when the program or the guardian's parent ends.

Linux only. It adopts every process that the program leaves behind, whatever session or group it has moved to. When its standard
input ends (its parent closed it or died) or the program ends, it kills them all. It forwards signals to the program.
Standard library only, for ``python -I -S``: it starts in milliseconds, whatever the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(user: str, *command: str) -> int:
    """Run a program.

    :param user: the id of the user and group to run as; empty for the current ones.
    :param command: the program and its arguments.
    :returns: its exit status, as a shell reports it.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    other = {"user": int(user), "group": int(user), "extra_groups": []} if user else {}
    program: subprocess.Popen[bytes] = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **other)  # type: ignore[call-overload]
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: program.send_signal(number))
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    poll.register(wakes, select.POLLIN)
    while (status := program.poll()) is None:
        ready = dict(poll.poll())
        if sys.stdin.fileno() in ready:
            break
        os.read(wakes, 1024)
        _reap_adopted(program.pid)
    _kill_descendants()
    status = program.wait() if status is None else status
    return status if status >= 0 else 128 - status


def descendants(of: int) -> list[int]:
    """The descendants of a process, zombies included; its own children first.

    :param of: a process id.
    """
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended in the meantime
            parent = int(stat.read_text().rpartition(")")[2].split()[1])  # proc(5): the name in parentheses can contain anything
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [of]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def _kill_descendants() -> None:
    while pids := descendants(os.getpid()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap_adopted(0)
        time.sleep(0.01)


def _reap_adopted(program: int) -> None:
    """Reap adopted processes; the program itself is reaped by its Popen."""
    for pid in descendants(os.getpid()):
        if pid != program:
            with contextlib.suppress(ChildProcessError):  # another process's child, not adopted
                os.waitpid(pid, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
