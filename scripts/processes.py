"""Child processes that can be killed, frozen and restarted, and never outlive this process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import guardian

_FIXED_PORTS = (20_000, 32_000)


class Program:
    """A program and all its descendants, whatever session they move to.

    :param name: its name in messages.
    :param command: the program and its arguments.
    :param log: the file for its output.
    :param env: its environment; None for this process's.
    :param cwd: its working directory.
    :param user: the id of the user and group to run as (root only); None for the current ones.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: int | None = None,
    ) -> None:
        self.name, self.command, self.log = name, [str(part) for part in command], log
        self._env, self._cwd, self._user = env, cwd, user
        self._guardian: subprocess.Popen[bytes] | None = None
        self._printed_before = 0

    def start(self) -> None:
        """Start it; it must not be running."""
        assert not self.runs, f"{self.name} is already running"
        start_guardian = [sys.executable, "-I", "-S", guardian.__file__, "" if self._user is None else str(self._user)]
        with self.log.open("ab") as sink:
            self._printed_before = sink.tell()
            self._guardian = subprocess.Popen(
                [*start_guardian, *self.command],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,  # only this process handles Ctrl-C
            )
        until(f"{self.name} is started", lambda: self.pids or not self.runs, 60)

    @property
    def runs(self) -> bool:
        """Whether it is running."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def ended_by_itself(self) -> bool:
        """Whether it was started, and ended without :meth:`stop` or :meth:`kill`."""
        return self._guardian is not None and self._guardian.poll() is not None

    @property
    def pids(self) -> list[int]:
        """All of its processes; the first is the program itself."""
        return guardian.descendants(self._guardian.pid) if self._guardian else []

    def send(self, number: int) -> None:
        """Send the program a signal."""
        os.kill(self.pids[0], number)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20) -> None:
        """Send it a signal, and kill what is still running after a while.

        :param number: the signal.
        :param seconds: the grace period.
        """
        if self._guardian and self.pids:
            self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guardian.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to all of its processes, as if its machine were lost."""
        if self._guardian:
            assert self._guardian.stdin
            self._guardian.stdin.close()
            self._guardian.wait(60)
            self._guardian = None

    def freeze(self) -> None:
        """Send SIGSTOP to all of its processes, until :meth:`thaw`."""
        frozen: set[int] = set()
        while new := set(self.pids) - frozen:  # one may have forked in the meantime
            self._to_all(new, signal.SIGSTOP)
            frozen |= new

    def thaw(self) -> None:
        """Send SIGCONT to all of its processes."""
        self._to_all(self.pids, signal.SIGCONT)

    def printed(self) -> str:
        """Its output since the last start."""
        with self.log.open("rb") as file:
            file.seek(self._printed_before)
            return file.read().decode(errors="replace")

    def until_printed(self, text: str, seconds: float = 60) -> None:
        """Wait until its output contains a text.

        :raises AssertionError: if it ended first, or took too long.
        """
        self.until(f"it prints {text!r}", lambda: text in self.printed(), seconds)

    def until_listens(self, port: int, seconds: float = 60) -> None:
        """Wait until a port on loopback accepts connections.

        :raises AssertionError: if the program ended first, or took too long.
        """
        self.until(f"port {port} listens", lambda: listens(port), seconds)

    def until(self, what: str, true: Callable[[], Any], seconds: float) -> None:
        """Wait until a condition is true."""
        until(f"{self.name}: {what}", lambda: true() or self._still_runs(), seconds, self.tail)

    def tail(self) -> str:
        """The end of its output."""
        return f"--- {self.name}\n{self.printed()[-1500:]}" if self.log.exists() else ""

    def _still_runs(self) -> bool:
        assert self.runs, f"{self.name} ended by itself\n{self.tail()}"
        return False

    @staticmethod
    def _to_all(pids: Sequence[int] | set[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def until(what: str, true: Callable[[], Any], seconds: float = 120, report: Callable[[], str] = str) -> Any:
    """Wait until ``true`` returns something truthy.

    :param report: what to add to the error's message.
    :returns: what it returned.
    :raises AssertionError: if that took longer than ``seconds``.
    """
    ends_at = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < ends_at, f"not within {seconds} s: {what}\n{report()}"
        time.sleep(0.1)
    return value


def listens(port: int) -> bool:
    """Whether a port on loopback accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def free_port(wanted: int = 0) -> int:
    """``wanted`` if it is free, else another free port on loopback.

    It is below the kernel's ephemeral ports (``ip_local_port_range`` of ``ip(7)``): while a program is down, no outgoing
    connection takes its port, and a probe of the port cannot connect to itself.
    """
    for port in (wanted, *random.sample(range(*_FIXED_PORTS), 100)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            if port:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                return port
    raise OSError("no port is free")
