"""The emulator's HTTP interface: the operations of the API document, the download address, and what controls the emulator."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pendulum
from aiohttp import web

from airflow_provider_cloudstore.emulator.faults import Fault
from airflow_provider_cloudstore.emulator.store import Store, StoredFile
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, Operation

Work = Callable[..., dict[str, Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

API_PREFIX = "/cloud/api/v2"
SOURCES_PATH = "/_emulator/sources"


@dataclass(slots=True)
class Service:
    """The routes over a store."""

    store: Store
    access_token: str
    faults: list[Fault] = field(default_factory=list)
    """The script: the first fault that matches a request is applied to it."""

    def app(self) -> web.Application:
        """Create the application for aiohttp's server."""
        app = web.Application(middlewares=[_errors_as_envelopes])
        app.add_routes(
            [
                *(web.route(one.method, API_PREFIX + one.path, self._handler_of(one)) for one in OPERATIONS),
                *self._other_calls(),
                web.get("/download", self._with_faults("download", self._download), allow_head=False),
                web.get("/_emulator/state", self._state),
                web.get(f"{SOURCES_PATH}/{{name}}", self._get_source),
            ]
        )
        return app

    def _other_calls(self) -> Iterator[web.RouteDef]:
        """Two calls that the API document does not have, for ``hook.request``, unless they have become operations."""
        known = {operation.path for operation in OPERATIONS}
        rename, files = f"{API_PREFIX}/file/rename", f"{API_PREFIX}/folder/list"
        if rename not in known:
            yield web.post(rename, self._call("other", ["file_id", "name"], self._rename))
        if files not in known:
            yield web.get(files, self._call("other", ["folder_id"], self._list, in_query=True), allow_head=False)

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

    def _handler_of(self, operation: type[Operation[Any]]) -> Handler:
        works: dict[str, Work] = {"delete": self._delete, "upload": self._upload, "link": self._link}
        if operation.key not in works:
            raise NotImplementedError(f"emulator/app.py does not know {operation.__name__}")
        names = [one.name for one in operation.parameters]
        return self._call(operation.key, names, works[operation.key], in_query=operation.method == "GET")

    def _call(self, key: str, names: list[str], work: Work, *, in_query: bool = False) -> Handler:
        """What every call does: check the token, read the parameters, count the effect."""

        async def handle(request: web.Request) -> web.Response:
            self._authorize(request, in_query=in_query)
            given = request.query if request.method == "GET" else await request.post()
            arguments = {name: given.get(name) for name in names}
            if missing := [name for name, value in arguments.items() if not isinstance(value, str) or not value]:
                raise web.HTTPBadRequest(reason=f"Missing field {missing[0]}")
            data = work(request, **arguments)
            self.store.effects[key] += 1
            return _respond(200, {"response": "OK", "data": data, "_status": "success"})

        return self._with_faults(key, handle)

    def _authorize(self, request: web.Request, *, in_query: bool) -> None:
        if in_query:
            given, valid = request.query.get("access_token"), self.access_token
        else:
            given, valid = request.headers.get("Authorization"), f"Bearer {self.access_token}"
        if given != valid:
            raise web.HTTPUnauthorized(reason="Could not validate the access token")

    def _delete(self, request: web.Request, folder_id: str) -> dict[str, Any]:
        if not self.store.delete_folder(folder_id):
            raise web.HTTPNotFound(reason="Could not find the folder")
        return {"folder_id": folder_id}

    def _rename(self, request: web.Request, file_id: str, name: str) -> dict[str, Any]:
        if file_id not in self.store.files:
            raise web.HTTPNotFound(reason="Could not find the file")
        self.store.files[file_id].name = name
        return {"file_id": file_id, "name": name}

    def _list(self, request: web.Request, folder_id: str) -> dict[str, Any]:
        if folder_id not in self.store.folders:
            raise web.HTTPNotFound(reason="Could not find the folder")
        files = [one for one in self.store.files.values() if one.folder_id == folder_id]
        return {"files": [{"file_id": one.file_id, "name": one.name} for one in files]}

    def _upload(self, request: web.Request, url: str) -> dict[str, Any]:
        stored = self.store.queue_upload(url)
        return {"file_id": stored.file_id, "folder_id": stored.folder_id}

    def _link(self, request: web.Request, file_id: str) -> dict[str, Any]:
        token = self.store.create_token(file_id)
        if token is None:
            raise web.HTTPNotFound(reason="Could not find the file")
        url = request.url.origin().with_path("/download").with_query(download_token=token.token)
        return {"download_url": str(url), "expires_at": token.expires_at.format("YYYY-MM-DD HH:mm:ss")}

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
async def _errors_as_envelopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _respond(error.status, {"status": "error", "response": error.reason})


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


def _respond(status: int, envelope: dict[str, Any]) -> web.Response:
    now = pendulum.now("UTC").format("YYYY-MM-DD HH:mm:ss")
    return web.json_response({**envelope, "_datetime": now}, status=status)
