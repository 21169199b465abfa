"""The part of the emulator's HTTP interface that both services share: calls, faults, downloads, and what controls it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pendulum
from aiohttp import web

from airflow_provider_cloudstore.emulator.faults import Fault
from airflow_provider_cloudstore.emulator.store import Folder, Store, StoredFile

Given = Mapping[str, str]
"""A request's parameters, without the empty ones."""
Check = Callable[[web.Request, Given], None]
Work = Callable[[web.Request, Given], dict[str, Any]]
"""What a call does: it returns the response's envelope, or raises ``web.HTTPException``, as a check does."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SOURCES_PATH = "/_emulator/sources"


@dataclass
class Service(ABC):
    """The routes over a store. A subclass has the calls of one service."""

    not_found: ClassVar[str]
    """What it says of a subject and the parameter that names it."""

    store: Store
    access_token: str = ""
    faults: list[Fault] = field(default_factory=list)
    """The script: the first fault that matches a request is applied to it."""

    @abstractmethod
    def calls(self) -> Iterator[web.RouteDef]:
        """The routes of the service's calls."""

    @abstractmethod
    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """The response that says an error."""

    @property
    def credentials(self) -> dict[str, Any]:
        """The fields of an Airflow connection beside type and host."""
        return {"password": self.access_token}

    def app(self) -> web.Application:
        """Create the application for aiohttp's server."""
        app = web.Application(middlewares=[self._errors])
        app.add_routes(
            [
                *self.calls(),
                web.get("/download", self._with_faults("download", self._download), allow_head=False),
                web.get("/_emulator/state", self._state),
                web.get(f"{SOURCES_PATH}/{{name}}", self._get_source),
            ]
        )
        return app

    def call(self, key: str, check: Check, work: Work) -> Handler:
        """The handler of a call: it reads the parameters, checks the token, and counts the effect."""

        async def handle(request: web.Request) -> web.Response:
            sent = request.query if request.method == "GET" else await request.post()
            cleaned = {name: self.clean(value) for name, value in sent.items() if isinstance(value, str)}
            given = {name: value for name, value in cleaned.items() if value}
            check(request, given)
            envelope = work(request, given)
            self.store.effects[key] += 1
            return respond({**envelope, "_status": "success"})

        return self._with_faults(key, handle)

    def clean(self, value: str) -> str:
        """The value of a parameter as the service reads it."""
        return value

    def need(self, given: Given, name: str) -> str:
        """The value of a parameter."""
        if name not in given:
            raise web.HTTPBadRequest(reason=f"Please provide the {name} param.")
        return given[name]

    def folder(self, given: Given, name: str = "folder_id") -> Folder:
        """The folder that a parameter names."""
        if given.get(name) not in self.store.folders:
            raise web.HTTPNotFound(reason=self.not_found.format("folder", name))
        return self.store.folders[given[name]]

    def file(self, given: Given) -> StoredFile:
        """The file that a request names."""
        stored = self.store.files.get(given.get("file_id", ""))
        if stored is None or not stored.is_stored:
            raise web.HTTPNotFound(reason=self.not_found.format("file", "file_id"))
        return stored

    def _with_faults(self, key: str, work: Handler) -> Handler:
        """Wrap a handler: count the request and apply the scripted fault, if any."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self.store.requests[key] += 1
            fault = self._next_fault(key)
            return await (fault.apply(request, lambda: work(request)) if fault else work(request))

        return handle

    def _next_fault(self, key: str) -> Fault | None:
        fault = next((fault for fault in self.faults if fault.operation in (key, "*")), None)
        if fault and fault.times:
            fault.times -= 1
            if not fault.times:
                self.faults.remove(fault)
        return fault

    async def _download(self, request: web.Request) -> web.StreamResponse:
        token = self.store.tokens.get(request.query.get("download_token", ""))
        if token is None or token.expires_at <= pendulum.now("UTC"):
            raise web.HTTPForbidden(reason="The download token is unknown or expired")
        token.downloads += 1
        return _ranged(self.store.files[token.file_id], request)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.store.snapshot())

    async def _get_source(self, request: web.Request) -> web.StreamResponse:
        content = self.store.source(request.match_info["name"])
        return web.Response(body=content, content_type="application/octet-stream")

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return self.error(request, error)


def download_url(request: web.Request, token: str) -> str:
    """The URL of a file, for a download token."""
    return str(request.url.origin().with_path("/download").with_query(download_token=token))


def respond(envelope: dict[str, Any], status: int = 200) -> web.Response:
    """Respond with an envelope and the time."""
    return web.json_response({**envelope, "_datetime": pendulum.now("UTC").format("YYYY-MM-DD HH:mm:ss")}, status=status)


def _ranged(stored: StoredFile, request: web.Request) -> web.Response:
    """Respond with a file, or with one range of it if the file still has the ``ETag`` in ``If-Range`` (RFC 9110 section 14)."""
    etag, part = hashlib.sha256(stored.content).hexdigest(), range(len(stored.content))
    response = web.Response(content_type="application/octet-stream")
    response.etag, response.last_modified = etag, stored.modified
    if "Range" in request.headers and request.headers.get("If-Range", f'"{etag}"') == f'"{etag}"':
        part = part[request.http_range]
        response.set_status(206 if part else 416)
        span = f"{part.start}-{part.stop - 1}" if part else "*"
        response.headers["Content-Range"] = f"bytes {span}/{len(stored.content)}"
    response.body = stored.content[part.start : part.stop]
    return response
