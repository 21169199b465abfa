"""Runs the emulator in a thread of its own, for a test, a script or the command line."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self, TypeVar
from urllib.parse import quote

from aiohttp import web

from airflow_provider_cloudstore.emulator.api_v2 import SOURCES_PATH, ApiV2
from airflow_provider_cloudstore.emulator.faults import Fault, Kind
from airflow_provider_cloudstore.emulator.store import UPLOAD_FOLDER, Store
from airflow_provider_cloudstore.emulator.yetishare import YetiShare

T = TypeVar("T")

HOST = "127.0.0.1"
SERVICES: dict[str, type[ApiV2]] = {"api-v2": ApiV2, "yetishare": YetiShare}


class Emulator:
    """The emulator in a thread of its own, as a context manager.

    :param service: the service to answer as, ``api-v2`` or ``yetishare``.
    :param access_token: the token to accept as ``api-v2``; empty for a random one.
    :param token_ttl: seconds until a download token expires.
    :param fetch_delay: seconds that an upload waits in the queue.
    :param port: the port to listen on; 0 for a free one.
    :param tls: serves https.
    :raises OSError: when it starts, if the port is taken.
    """

    def __init__(
        self,
        *,
        service: str = "api-v2",
        access_token: str = "",
        token_ttl: float = 3600.0,
        fetch_delay: float = 0.0,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.service = SERVICES[service](Store(token_ttl, fetch_delay), access_token or secrets.token_urlsafe(24))
        self._port = port
        self._tls = tls
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="cloudstore-emulator", daemon=True)
        self._started: Future[None] = Future()
        self.url = ""
        """The base URL, such as ``http://127.0.0.1:40123``."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(self.service.app(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, self._port, ssl_context=self._tls).start()
            self.url = f"{'https' if self._tls else 'http'}://{HOST}:{runner.addresses[0][1]}"
            self._started.set_result(None)
            await self._stop.wait()
        except OSError as error:  # raised where it is started
            self._started.set_exception(error)
        finally:
            await runner.cleanup()

    @property
    def access_token(self) -> str:
        """The token that it accepts; as ``yetishare`` the one that it issued last."""
        return self.service.access_token

    @property
    def connection(self) -> str:
        """An Airflow connection to the emulator as JSON, for ``AIRFLOW_CONN_CLOUDSTORE_DEFAULT``."""
        return airflow_connection(self.url, **self.service.credentials)

    def state(self) -> dict[str, Any]:
        """Return its state and counters, as its state endpoint does."""
        return self.call(lambda service: service.store.snapshot())

    def make_folder(self, folder_id: str) -> str:
        """Create an empty folder, and return its id."""
        return self.call(lambda service: service.store.put_folder(folder_id))

    def put_file(self, content: bytes, file_id: str, folder_id: str = UPLOAD_FOLDER) -> str:
        """Store a file without an upload, or replace one, and return its id; the folder is created when needed."""
        return self.call(lambda service: service.store.put_file(content, file_id, folder_id)).file_id

    def serve(self, content: bytes, name: str = "report.csv") -> str:
        """Serve a file for uploads to fetch, as a web server would, and return its URL, which ends with ``name``."""
        self.call(lambda service: service.store.sources.update({name: content}))
        return f"{self.url}{SOURCES_PATH}/{quote(name, safe='')}"

    def fault(self, kind: str, **more: Any) -> None:
        """Inject a fault, after those injected before: its kind, such as ``status``, and its other fields.

        :raises ValueError: if there is no such kind.
        """
        self.call(lambda service: service.faults.append(Fault(Kind(kind), **more)))

    def call(self, work: Callable[[ApiV2], T]) -> T:
        """Run a function of the service in the emulator's thread, the only one that may access its state."""

        async def run() -> T:
            return work(self.service)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()


def airflow_connection(url: str, password: str, **more: Any) -> str:
    """Return an Airflow connection as JSON."""
    return json.dumps({"conn_type": "cloudstore", "host": url, "password": password, **more})
