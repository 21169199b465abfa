"""Child processes that can be stopped, killed, frozen and restarted, with everything that they started."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

_FIXED_PORTS = (20_000, 32_000)


class Program:
    """A program and all its descendants, whatever session they move to; a context manager that starts and stops it.

    On Linux it gets SIGTERM when the thread that started it ends, so that it does not outlive this process.

    :param name: its name in messages.
    :param log: the file for its output.
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
        self.name, self.log = name, log
        self._command = [*(["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []), *command]
        self._options: dict[str, Any] = {"env": env, "cwd": cwd, **as_user(user)}
        self._process: subprocess.Popen[bytes] | None = None
        self._printed_before = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """End it, and kill what is still running after a while."""
        family = self._family()
        self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process:
                self._process.wait(20)
        self.kill(family)

    def start(self) -> None:
        """Start it; it must not be running. Its session is its own: only this process handles Ctrl-C."""
        assert not self.runs, f"{self.name} is already running"
        with self.log.open("ab") as sink:
            self._printed_before = sink.tell()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True, **self._options
            )

    @property
    def runs(self) -> bool:
        """Whether it is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def ended_by_itself(self) -> bool:
        """Whether it was started, and ended without :meth:`kill`."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pids(self) -> list[int]:
        """All of its processes; the first is the program itself."""
        return [process.pid for process in self._family()]

    def send(self, number: int) -> None:
        """Send the program a signal."""
        if self._process:
            self._process.send_signal(number)

    def kill(self, more: Iterable[psutil.Process] = ()) -> None:
        """Send SIGKILL to all of its processes, and to those that were its descendants before, as if its machine were lost."""
        doomed = {*more, *self.freeze()}
        _signal_all(doomed, signal.SIGKILL)
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # what it left behind if it ended by itself
            self._process.wait(60)
            self._process = None
        until(f"{self.name} is gone", lambda: not any(_alive(process) for process in doomed), 60)

    def freeze(self) -> set[psutil.Process]:
        """Send SIGSTOP to all of its processes, until :meth:`thaw`; returns these."""
        frozen: set[psutil.Process] = set()
        while new := {*self._family()} - frozen:  # one may have forked in the meantime
            _signal_all(new, signal.SIGSTOP)
            frozen |= new
        return frozen

    def thaw(self) -> None:
        """Send SIGCONT to all of its processes."""
        _signal_all(self._family(), signal.SIGCONT)

    def printed(self) -> str:
        """Its output since the last start."""
        with self.log.open("rb") as file:
            file.seek(self._printed_before)
            return file.read().decode(errors="replace")

    def until_printed(self, text: str, seconds: float = 60) -> None:
        """Wait until its output contains a text."""
        self.until(f"it prints {text!r}", lambda: text in self.printed(), seconds)

    def until_listens(self, port: int, seconds: float = 60) -> None:
        """Wait until a port on loopback accepts connections."""
        self.until(f"port {port} listens", lambda: listens(port), seconds)

    def until(self, what: str, true: Callable[[], Any], seconds: float) -> None:
        """Wait until a condition is true; fail if the program ends first."""
        until(f"{self.name}: {what}", true, seconds, [self])

    def tail(self) -> str:
        """The end of its output."""
        return f"--- {self.name}\n{self.printed()[-1500:]}" if self.log.exists() else ""

    def _family(self) -> list[psutil.Process]:
        try:
            program = psutil.Process(self._process.pid) if self.runs and self._process else None
            return [program, *program.children(recursive=True)] if program else []
        except psutil.NoSuchProcess:  # it has ended in the meantime
            return []


def as_user(user: int | None) -> dict[str, Any]:
    """The options of ``subprocess`` that run a program as another user and group."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def until(what: str, true: Callable[[], Any], seconds: float = 120, programs: Collection[Program] = ()) -> Any:
    """Wait until ``true`` returns something truthy, and return that; fail if a program ends first."""
    ends_at = time.monotonic() + seconds
    while not (value := true()):
        for program in programs:
            assert not program.ended_by_itself, f"{what}: {program.name} ended by itself\n{program.tail()}"
        assert time.monotonic() < ends_at, "\n".join([f"not within {seconds} s: {what}", *(one.tail() for one in programs)])
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


def end_at_signals() -> None:
    """Raise KeyboardInterrupt on SIGTERM, and on Ctrl-C, which shells make background jobs ignore."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _signal_all(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
