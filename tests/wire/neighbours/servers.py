"""Real programs that stand beside or before the service: front ends and object stores.

Each listens on a free port of loopback, keeps all of its files in a temporary folder, and is a child process that ends with its
block. Where a program is not on this machine, the test is skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.processes import Program, free_port, until

AZURITE = Path(__file__).resolve().parents[3] / ".npm/azurite/node_modules/azurite/dist/src/blob/main.js"
_SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


@dataclass(frozen=True)
class Neighbour:
    """A program that runs.

    :param reload_signal: has it read its configuration again.
    """

    folder: Path
    port: int
    program: Program
    reload_signal: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def reload(self) -> None:
        """Have new worker processes serve, while the old ones finish what they do.

        It asks until they are there: haproxy loses a signal that comes right after its last reload.
        """
        before = set(self.program.pids)

        def reloaded() -> bool:
            if {*self.program.pids} <= before:
                self.program.send(self.reload_signal)
                return False
            return True

        until("it has new workers", reloaded, 30, [self.program])


@contextmanager
def _running(
    name: str,
    arguments: Sequence[str],
    files: Mapping[str, str],
    reload_signal: int = signal.SIGHUP,
) -> Iterator[Neighbour]:
    """Run a program until the end of the block.

    :param arguments: in which, as in the files, ``{folder}`` and ``{port}`` are replaced.
    :param files: their texts by their names in its folder.
    """
    binary = shutil.which(name, path=_SYSTEM_PATH)
    if binary is None:
        pytest.skip(f"{name} is not installed: make neighbours")
    folder, port = Path(tempfile.mkdtemp(prefix="cloudstore-neighbour-")), free_port()

    def fill(text: str) -> str:
        return text.replace("{folder}", str(folder)).replace("{port}", str(port))

    for file, text in files.items():
        (folder / file).write_text(fill(text))
    program = Program(name, [binary, *map(fill, arguments)], folder / "output.txt", cwd=folder)
    try:
        program.start()
        program.until_listens(port)
        yield Neighbour(folder, port, program, reload_signal)
    finally:
        program.kill()
        shutil.rmtree(folder, ignore_errors=True)


def nginx(server: str) -> AbstractContextManager[Neighbour]:
    """Run nginx.

    :param server: what stands in ``server { }``.
    """
    temporary = "".join(f"{kind}_temp_path {{folder}}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.geteuid() == 0 else ""  # another cannot enter the folder
    config = (
        f"daemon off; worker_processes 1; {user} pid {{folder}}/pid; error_log stderr;\nevents {{ }}\n"
        f"http {{\naccess_log off;\n{temporary}server {{ listen 127.0.0.1:{{port}}; {server} }}\n}}\n"
    )
    return _running("nginx", ["-p", "{folder}", "-c", "{folder}/config", "-e", "stderr"], {"config": config})


def haproxy(address: str) -> AbstractContextManager[Neighbour]:
    """Run haproxy before the service at an address."""
    config = (
        "defaults\n mode http\n"
        " timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
        f"frontend f\n bind 127.0.0.1:{{port}}\n default_backend b\nbackend b\n server s {address}\n"
    )
    return _running("haproxy", ["-W", "-f", "{folder}/config"], {"config": config}, reload_signal=signal.SIGUSR2)


def moto() -> AbstractContextManager[Neighbour]:
    """Run S3, as moto's server knows it."""
    pytest.importorskip("moto", reason="the extra 'neighbours' brings it")
    return _running(sys.executable, ["-m", "moto.server", "-H", "127.0.0.1", "-p", "{port}"], {})


def azurite() -> AbstractContextManager[Neighbour]:
    """Run Azure Blob, as Microsoft's Azurite knows it."""
    if not AZURITE.exists():
        pytest.skip("Azurite is not installed: make neighbours")
    pytest.importorskip("adlfs", reason="the extra 'neighbours' brings it")
    where = f"{AZURITE} --blobHost 127.0.0.1 --blobPort {{port}} --location {{folder}}/data"
    # Its own list of API versions ends before that of the newest client.
    return _running("node", f"{where} --skipApiVersionCheck --disableTelemetry --silent".split(), {})
