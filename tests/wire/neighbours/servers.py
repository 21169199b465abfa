"""Real programs that stand beside or before the service: front ends, a forward proxy, and object stores.

Each listens on a free port of loopback, keeps all of its files in a temporary folder, and is a child process that ends with its
block. Where a program is not on this machine, the test is skipped, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.cluster import NOBODY
from scripts.processes import Program, free_port, until

AZURITE = Path(__file__).resolve().parents[3] / ".npm/azurite/node_modules/azurite/dist/src/blob/main.js"
# Not a secret: every Azurite has this account.
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PROXY_LOGIN, PROXY_PASSWORD = "etl", "proxy-passw0rd"
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

    def logged(self) -> str:
        """What its log holds; a line is written when a request, or for squid a connection, is over."""
        log = self.folder / "access.log"
        return log.read_text() if log.exists() else self.program.printed()

    def reload(self) -> None:
        """Have new worker processes serve, while the old ones finish what they do."""
        master, *old = self.program.pids
        self.program.send(self.reload_signal)
        until("it has new workers", lambda: set(self.program.pids) - {master, *old}, 30, self.program.tail)


@contextmanager
def _running(
    command: Callable[[Path, int], list[str | Path]],
    config: str = "",
    user: int | None = None,
    reload_signal: int = signal.SIGHUP,
) -> Iterator[Neighbour]:
    """Run a program until the end of the block.

    :param command: returns its command for a folder and a port; the file ``config`` in the folder is its configuration.
    :param config: in which ``{folder}`` and ``{port}`` are replaced.
    :param user: as which it runs.
    """
    folder, port = Path(tempfile.mkdtemp(prefix="cloudstore-neighbour-")), free_port()
    (folder / "config").write_text(config.replace("{folder}", str(folder)).replace("{port}", str(port)))
    if user is not None:
        os.chown(folder, user, user)
    words = command(folder, port)
    program = Program(Path(words[0]).name, words, folder / "output.txt", cwd=folder, user=user)
    try:
        program.start()
        program.until_listens(port)
        yield Neighbour(folder, port, program, reload_signal)
    finally:
        program.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _installed(name: str) -> str:
    found = shutil.which(name, path=_SYSTEM_PATH)
    if found is None:
        pytest.skip(f"{name} is not installed: make neighbours")
    return found


@contextmanager
def nginx(server: str, more: str = "") -> Iterator[Neighbour]:
    """Run nginx.

    :param server: what stands in ``server { }``.
    :param more: what stands before that.
    """
    binary = _installed("nginx")
    temporary = "".join(f"{kind}_temp_path {{folder}}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.geteuid() == 0 else ""  # another cannot enter the folder
    config = (
        f"daemon off; worker_processes 1; {user} pid {{folder}}/pid; error_log stderr;\nevents {{ }}\n"
        f"http {{\naccess_log {{folder}}/access.log;\n{temporary}{more}\nserver {{ listen 127.0.0.1:{{port}}; {server} }}\n}}\n"
    )
    with _running(lambda folder, _: [binary, "-p", folder, "-c", folder / "config", "-e", "stderr"], config) as running:
        yield running


@contextmanager
def haproxy(address: str, backend: str = "") -> Iterator[Neighbour]:
    """Run haproxy.

    :param address: of the service.
    :param backend: more lines of its backend's only server.
    """
    binary = _installed("haproxy")
    config = (
        "global\n log stderr format raw local0\ndefaults\n log global\n option httplog\n mode http\n"
        " timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
        f"frontend f\n bind 127.0.0.1:{{port}}\n default_backend b\nbackend b\n server s {address} {backend}\n"
    )
    command = lambda folder, _: [binary, "-W", "-f", folder / "config"]  # noqa: E731
    with _running(command, config, reload_signal=signal.SIGUSR2) as running:
        yield running


@contextmanager
def squid() -> Iterator[Neighbour]:
    """Run squid, a forward proxy with one user, who has a password."""
    binary = _installed("squid")
    helpers = [Path("/usr", folder, "squid/basic_ncsa_auth") for folder in ("lib", "lib64", "libexec")]
    helper = next((path for path in helpers if path.exists()), None)
    if helper is None:
        pytest.skip("squid's basic_ncsa_auth is not installed: make neighbours")
    digest = hashlib.md5(PROXY_PASSWORD.encode(), usedforsecurity=False).hexdigest()
    config = f"""\
http_port 127.0.0.1:{{port}}
pid_filename {{folder}}/pid
cache_log {{folder}}/cache.log
access_log stdio:{{folder}}/access.log
coredump_dir {{folder}}
cache deny all
shutdown_lifetime 0 seconds
auth_param basic program {helper} {{folder}}/users
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
"""

    def command(folder: Path, _: int) -> list[str | Path]:
        (folder / "users").write_text(f"{PROXY_LOGIN}:{digest}\n")
        return [binary, "-N", "-f", folder / "config"]

    # It refuses to be root.
    with _running(command, config, NOBODY if os.geteuid() == 0 else None) as running:
        yield running


@contextmanager
def moto() -> Iterator[Neighbour]:
    """Run S3, as moto's server knows it."""
    for module in ("moto.server", "s3fs", "airflow.providers.amazon"):
        pytest.importorskip(module, reason="the extra 'neighbours' brings it")
    with _running(lambda _, port: [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]) as running:
        yield running


@contextmanager
def azurite() -> Iterator[Neighbour]:
    """Run Azure Blob, as Microsoft's Azurite knows it."""
    node = _installed("node")
    if not AZURITE.exists():
        pytest.skip("Azurite is not installed: make neighbours")
    for module in ("adlfs", "airflow.providers.microsoft.azure"):
        pytest.importorskip(module, reason="the extra 'neighbours' brings it")

    def command(folder: Path, port: int) -> list[str | Path]:
        where: list[str | Path] = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder / "data"]
        # Its own list of API versions ends before that of the newest client.
        return [node, AZURITE, *where, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]

    with _running(command) as running:
        yield running
