"""The calls of the API document over HTTP. It shows requests only, so all responses are assumptions."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pendulum
from aiohttp import web

from airflow_provider_cloudstore.emulator.faults import Fault
from airflow_provider_cloudstore.emulator.store import UPLOAD_FOLDER, Store, StoredFile

Given = Mapping[str, str]
"""A request's parameters, without the empty ones."""
Work = Callable[[web.Request, Given], dict[str, Any]]
"""What a call does: it returns the response's envelope, or raises ``web.HTTPException``."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SOURCES_PATH = "/_emulator/sources"


@dataclass
class ApiV2:
    """Sections 4.1 to 4.3 of the document, and calls that it does not have, such as those for ``hook.request``."""

    api: ClassVar[str] = "/cloud/api/v2"
    """The path that the calls are below."""
    not_found: ClassVar[str] = "Could not find the {}"
    """What it says of a kind of subject."""

    store: Store
    access_token: str
    faults: list[Fault] = field(default_factory=list)
    """The script: the first fault that matches a request is applied to it."""

    def __post_init__(self) -> None:
        self.store.put_folder(UPLOAD_FOLDER)

    @property
    def credentials(self) -> dict[str, Any]:
        """The fields of an Airflow connection beside type and host."""
        return {"password": self.access_token}

    def calls(self) -> list[tuple[str, str, str, Work]]:
        """Each call's method, its path, its key in faults and counters, and what it does."""
        return [
            ("POST", "/folder/delete", "delete", self._delete),
            ("POST", "/file/url_upload_add", "upload", self._upload),
            ("GET", "/file/download", "link", self._link),
            ("POST", "/file/rename", "other", self._rename),
            ("POST", "/folder/create", "other", self._create),
            ("GET", "/folder/list", "other", self._list),
        ]

    def check_token(self, request: web.Request, given: Given) -> None:
        """Raise unless a POST has the access token in its header, or a GET in its query (section 5)."""
        sent = request.headers.get("Authorization") if request.method == "POST" else f"Bearer {given.get('access_token')}"
        if sent != f"Bearer {self.access_token}":
            raise web.HTTPUnauthorized(reason="Could not validate the access token")

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """The response that says an error: an envelope with its HTTP status."""
        return respond({"status": "error", "response": error.reason}, error.status)

    # What the calls do.

    def _delete(self, request: web.Request, given: Given) -> dict[str, Any]:
        store, folder_id = self.store, self.folder(given)
        del store.folders[folder_id]
        store.files = {file_id: stored for file_id, stored in store.files.items() if stored.folder_id != folder_id}
        store.tokens = {text: token for text, token in store.tokens.items() if token.file_id in store.files}
        return {"data": {"folder_id": folder_id}}

    def _upload(self, request: web.Request, given: Given) -> dict[str, Any]:
        url = self.need(given, "url")
        folder_id = self.folder(given) if "folder_id" in given else self.store.put_folder(UPLOAD_FOLDER)
        return {"data": {"file_id": self.store.queue_upload(url, folder_id).file_id, "folder_id": folder_id}}

    def _link(self, request: web.Request, given: Given) -> dict[str, Any]:
        token = self.store.create_token(self.file(given).file_id)
        expires_at = token.expires_at.format("YYYY-MM-DD HH:mm:ss")
        return {"data": {"download_url": download_url(request, token.token), "expires_at": expires_at}}

    def _rename(self, request: web.Request, given: Given) -> dict[str, Any]:
        name, stored = self.need(given, "name"), self.file(given)
        stored.name = name
        return {"data": {"file_id": stored.file_id, "name": name}}

    def _create(self, request: web.Request, given: Given) -> dict[str, Any]:
        name = self.need(given, "folder_name")
        folder_id = self.store.put_folder(name=name)
        return {"data": {"folder_id": folder_id, "id": folder_id, "folderName": name}}

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        files = self.store.files_in(self.folder(given))
        return {"data": {"files": [{"file_id": one.file_id, "name": one.name} for one in files]}}

    def need(self, given: Given, name: str) -> str:
        """The value of a parameter."""
        if name not in given:
            raise web.HTTPBadRequest(reason=f"Please provide the {name} param.")
        return given[name]

    def folder(self, given: Given, name: str = "folder_id") -> str:
        """The id in a parameter, of a folder that exists."""
        if self.need(given, name) not in self.store.folders:
            raise web.HTTPNotFound(reason=self.not_found.format("folder"))
        return given[name]

    def file(self, given: Given) -> StoredFile:
        """The file that a request names."""
        stored = self.store.files.get(self.need(given, "file_id"))
        if stored is None or stored.state != "stored":
            raise web.HTTPNotFound(reason=self.not_found.format("file"))
        return stored

    # How they are served, with faults, downloads, and what controls the emulator.

    def app(self) -> web.Application:
        """Create the application for aiohttp's server."""
        app = web.Application(middlewares=[self._errors])
        for method, path, key, work in self.calls():
            app.router.add_route(method, self.api + path, partial(self._with_faults, key, partial(self._call, key, work)))
        app.router.add_get("/download", partial(self._with_faults, "download", self._download))
        app.router.add_get("/_emulator/state", self._state)
        app.router.add_get(f"{SOURCES_PATH}/{{name}}", self._get_source)
        return app

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return self.error(request, error)

    async def _with_faults(self, key: str, work: Handler, request: web.Request) -> web.StreamResponse:
        """Count the request and apply the scripted fault, if any."""
        self.store.requests[key] += 1
        fault = next((fault for fault in self.faults if fault.operation in (key, "*")), None)
        if fault is None:
            return await work(request)
        if fault.times == 1:
            self.faults.remove(fault)
        fault.times -= 1  # 0, for all, becomes negative and never 1
        return await fault.apply(request, partial(work, request))

    async def _call(self, key: str, work: Work, request: web.Request) -> web.StreamResponse:
        """Read the parameters, check the token, do what the call does, and count the effect."""
        sent = request.query if request.method == "GET" else await request.post()
        given = {name: value for name, value in sent.items() if value and isinstance(value, str)}
        if key != "authorize":
            self.check_token(request, given)
        envelope = work(request, given)
        self.store.effects[key] += 1
        return respond({**envelope, "_status": "success"})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        token = self.store.tokens.get(request.query.get("download_token", ""))
        if token is None or token.expires_at <= pendulum.now("UTC"):
            raise web.HTTPForbidden(reason="The download token is unknown or expired")
        content = self.store.files[token.file_id].content
        response = web.Response(body=content, content_type="application/octet-stream")
        response.etag = hashlib.sha256(content).hexdigest()
        start = request.http_range.start
        if start and request.headers.get("If-Range") == response.headers["ETag"]:  # RFC 9110 section 14
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            response.body = content[start:]
        return response

    async def _state(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.store.snapshot())

    async def _get_source(self, request: web.Request) -> web.StreamResponse:
        content = self.store.source(request.match_info["name"])
        return web.Response(body=content, content_type="application/octet-stream")


def download_url(request: web.Request, token: str) -> str:
    """The URL of a file, for a download token."""
    return str(request.url.origin().with_path("/download").with_query(download_token=token))


def respond(envelope: dict[str, Any], status: int = 200) -> web.Response:
    """Respond with an envelope and the time."""
    return web.json_response({**envelope, "_datetime": pendulum.now("UTC").format("YYYY-MM-DD HH:mm:ss")}, status=status)
