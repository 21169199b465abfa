"""Real programs that stand beside or before the service: front ends, a forward proxy, and object stores.

Each listens on a free port of loopback, keeps all of its files in a temporary folder, and is a child process that its fixture
stops. A constructor raises :class:`Missing` where the program cannot be had.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from scripts.cluster import NOBODY
from scripts.processes import Program, free_port, until

ROOT = Path(__file__).resolve().parent.parent.parent.parent
AZURITE = ROOT / ".npm" / "azurite" / "node_modules" / "azurite"
PROXY_LOGIN, PROXY_PASSWORD = "etl", "proxy-passw0rd"
LOCATION = "location / { proxy_pass {service}; }"
HAPROXY = "frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s {address}\n"
_SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class Missing(Exception):
    """A program is not on this machine; the message says how it comes there."""


def server(body: str, more: str = "", listen: str = "127.0.0.1:{port}") -> str:
    """nginx's configuration of one server, after what stands before it."""
    return f"{more}\nserver {{ listen {listen}; {body} }}"


def limit(rate: str, more: str = "", burst: str = "") -> str:
    """nginx's configuration of a server that limits the rate of all requests together."""
    zone = f"limit_req_zone $binary_remote_addr zone=all:1m rate={rate};"
    return server(f"{LOCATION} limit_req zone=all {burst}; {more}", zone)


def _installed(name: str, package: str) -> str:
    found = shutil.which(name, path=_SYSTEM_PATH)
    if found is None:
        raise Missing(f"{name} is not installed: apt-get install {package}")
    return found


class Neighbour:
    """A program that listens on a port of its own, as a context manager.

    :param name: what it is called in messages.
    :param config: its configuration, if it reads one.
    """

    reload_signal = signal.SIGHUP
    user: int | None = None
    log = "output.txt"

    def __init__(self, name: str, config: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"cloudstore-{name}-"))
        self.port = free_port()
        self.given = config
        self.config = self.folder / "config"
        self.config.write_text(self.configuration(config))
        self._program = Program(name, self.command(), self.folder / "output.txt", cwd=self.folder, user=self.user)

    def command(self) -> list[str | Path]:
        """The command that runs it in the foreground."""
        raise NotImplementedError

    def configuration(self, config: str) -> str:
        """The whole configuration file around the part that a test gives."""
        return config

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it at its port, with what it kept."""
        self._program.start()
        self._program.until_listens(self.port)

    def stop(self) -> None:
        """Stop it; its port and files stay its own."""
        self._program.stop()

    def logged(self) -> str:
        """What its log holds; a line is written when a request, or for squid a connection, is over."""
        log = self.folder / self.log
        return log.read_text() if log.exists() else ""

    def freeze(self) -> None:
        """SIGSTOP: it takes connections and answers nothing, until :meth:`thaw`."""
        self._program.freeze()

    def thaw(self) -> None:
        """Go on with what has come meanwhile."""
        self._program.thaw()


class FrontEnd(Neighbour):
    """A reverse proxy, which can be given another configuration while it runs."""

    def check(self) -> list[str | Path]:
        """The command that checks the configuration."""
        raise NotImplementedError

    def reload(self, config: str) -> None:
        """Have new worker processes serve by another configuration, while the old ones finish what they do.

        :raises AssertionError: if it refuses the configuration.
        """
        self.config.write_text(self.configuration(config))
        checked = subprocess.run(self.check(), cwd=self.folder, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        master, *old = self._program.pids
        self._program.send(self.reload_signal)
        until("it has new workers", lambda: set(self._program.pids) - {master, *old}, 30, self._program.tail)


class Nginx(FrontEnd):
    """nginx.

    :param config: what stands in ``http { }``; ``{port}`` is replaced.
    """

    log = "access.log"

    def __init__(self, config: str) -> None:
        self._binary = _installed("nginx", "nginx")
        super().__init__("nginx", config)

    def command(self) -> list[str | Path]:
        return [self._binary, "-p", self.folder, "-c", self.config, "-e", "stderr"]

    def check(self) -> list[str | Path]:
        return [*self.command(), "-t"]

    def configuration(self, config: str) -> str:
        user = "user root;" if os.geteuid() == 0 else ""  # another user cannot reach the certificates of a test
        folders = "".join(
            f"{kind}_temp_path {self.folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        filled = config.replace("{port}", str(self.port))
        return (
            f"daemon off; worker_processes 1; {user} pid {self.folder}/pid; error_log stderr;\n"
            f"events {{ }}\nhttp {{\naccess_log {self.folder}/{self.log};\n{folders}{filled}\n}}\n"
        )


class Haproxy(FrontEnd):
    """haproxy.

    :param config: its sections after ``defaults``; ``{port}`` is replaced.
    """

    reload_signal = signal.SIGUSR2

    def __init__(self, config: str) -> None:
        self._binary = _installed("haproxy", "haproxy")
        super().__init__("haproxy", config)

    def command(self) -> list[str | Path]:
        return [self._binary, "-W", "-f", self.config]

    def check(self) -> list[str | Path]:
        return [self._binary, "-c", "-f", self.config]

    def configuration(self, config: str) -> str:
        logs = "global\n  log stderr format raw local0\ndefaults\n  log global\n  option httplog\n"
        defaults = "  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
        return f"{logs}{defaults}{config.replace('{port}', str(self.port))}\n"


class Squid(Neighbour):
    """squid, a forward proxy that asks for credentials.

    :param login: the only user.
    :param password: the user's password.
    """

    log = "access.log"
    # It refuses to be root, and sees no folder that only root can enter.
    user = NOBODY if os.geteuid() == 0 else None

    def __init__(self, login: str, password: str) -> None:
        self._binary = _installed("squid", "squid")
        self._helper = next(
            (path for folder in ("lib", "lib64", "libexec") if (path := Path("/usr", folder, "squid/basic_ncsa_auth")).exists()),
            None,
        )
        if self._helper is None:
            raise Missing("squid's basic_ncsa_auth is not installed: apt-get install squid")
        super().__init__("squid")
        digest = hashlib.md5(password.encode(), usedforsecurity=False).hexdigest()
        (self.folder / "users").write_text(f"{login}:{digest}\n")
        if self.user is not None:
            os.chown(self.folder, self.user, self.user)

    def command(self) -> list[str | Path]:
        return [self._binary, "-N", "-f", self.config]

    def configuration(self, config: str) -> str:
        lines = [
            f"http_port 127.0.0.1:{self.port}",
            f"pid_filename {self.folder}/pid",
            f"cache_log {self.folder}/cache.log",
            f"access_log stdio:{self.folder}/{self.log}",
            f"coredump_dir {self.folder}",
            "cache deny all",
            "shutdown_lifetime 0 seconds",
            f"auth_param basic program {self._helper} {self.folder}/users",
            "acl known proxy_auth REQUIRED",
            "http_access allow known",
            "http_access deny all",
            config,
        ]
        return "\n".join(lines) + "\n"

    def requests(self) -> list[tuple[str, str, str]]:
        """What went through: method, target, user."""
        lines = [line.split() for line in self.logged().splitlines()]
        return [(line[5], line[6], line[7]) for line in lines]


class S3(Neighbour):
    """S3, as moto's server knows it."""

    def __init__(self) -> None:
        absent = [name for name in ("moto.server", "s3fs", "airflow.providers.amazon") if not _importable(name)]
        if absent:
            raise Missing(f"not installed: {', '.join(absent)}: the extra 'neighbours' brings it")
        super().__init__("s3")

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]


class Azurite(Neighbour):
    """Azure Blob, as Microsoft's Azurite knows it."""

    # Not a secret: every Azurite has this account.
    KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self) -> None:
        node = shutil.which("node")
        self._program_file = AZURITE / "dist" / "src" / "blob" / "main.js"
        if node is None:
            raise Missing("Azurite needs node: apt-get install nodejs npm")
        if not self._program_file.exists():
            raise Missing("Azurite is not installed: make test-neighbours installs it")
        if not _importable("adlfs") or not _importable("airflow.providers.microsoft.azure"):
            raise Missing("not installed: adlfs and Airflow's Azure provider: the extra 'neighbours' brings them")
        self._node = node
        super().__init__("azurite")

    @property
    def connection_string(self) -> str:
        """What Azure's clients are given."""
        endpoint = f"BlobEndpoint=http://127.0.0.1:{self.port}/devstoreaccount1"
        return f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={self.KEY};{endpoint};"

    def command(self) -> list[str | Path]:
        where: list[str | Path] = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", self.folder / "data"]
        # Its own list of API versions ends before that of the newest client.
        return [self._node, self._program_file, *where, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
