"""The emulator's HTTP interface: the three operations of the API document, the download address, and the state endpoint."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from weakref import WeakSet

from aiohttp import web

from airflow_provider_cloudstore.emulator.faults import Fault, Faults
from airflow_provider_cloudstore.emulator.ranges import RangedFile
from airflow_provider_cloudstore.emulator.responses import Shape, failure, success
from airflow_provider_cloudstore.emulator.store import Store
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, OPERATIONS, UPLOAD_FROM_URL

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATE_PATH = "/_emulator/state"
SOURCES_PATH = "/_emulator/sources"
_MAX_PUT_SIZE = 64 * 1024 * 1024


@dataclass(slots=True)
class Service:
    """The routes over a store.

    :param access_token: the token that it accepts; while a rotation overlaps, several, one a line.
    """

    store: Store
    access_token: str
    shape: Shape
    faults: Faults = field(default_factory=Faults)
    connections: Callable[[], Collection[object]] = tuple
    """Returns the open connections, once the service runs."""
    _seen: WeakSet[object] = field(default_factory=WeakSet)

    def app(self) -> web.Application:
        """Create the application for aiohttp's server."""
        app = web.Application(middlewares=[self._errors_in_shape], client_max_size=_MAX_PUT_SIZE)
        handlers = {DELETE_FOLDER: self._delete_folder, UPLOAD_FROM_URL: self._upload, CREATE_DOWNLOAD_LINK: self._link}
        app.add_routes(
            [
                *(web.route(one.method, one.path, self._operation(one.key, handlers[one])) for one in OPERATIONS),
                web.get("/download", self._operation("download", self._download), allow_head=False),
                web.get(STATE_PATH, self._state, allow_head=False),
                web.put("/_emulator/folders/{folder_id}", self._put_folder),
                web.put("/_emulator/files/{file_id}", self._put_file),
                web.put(f"{SOURCES_PATH}/{{name}}", self._put_source),
                web.get(f"{SOURCES_PATH}/{{name}}", self._get_source),
                web.put("/_emulator/access-token", self._put_access_token),
                web.post("/_emulator/faults", self._post_faults),
                web.delete("/_emulator/faults", self._delete_faults),
            ]
        )
        app.on_cleanup.append(self._close)
        return app

    def _operation(self, name: str, work: Handler) -> Handler:
        """Wrap a handler: count the request and apply the scripted fault, if any."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self.store.requests[name] += 1
            self._count_connection(request)
            fault = self.faults.take(name)
            return await (fault.apply(request, lambda: work(request)) if fault else work(request))

        return handle

    def _count_connection(self, request: web.Request) -> None:
        counters = self.store.connections
        if request.transport not in self._seen:
            self._seen.add(request.transport)
            counters["opened"] += 1
        counters["peak"] = max(counters["peak"], len(self.connections()))

    async def _close(self, app: web.Application) -> None:
        await self.store.close()

    @web.middleware
    async def _errors_in_shape(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return failure(self.shape, error.status, error.reason)

    async def _delete_folder(self, request: web.Request) -> web.StreamResponse:
        self._authorize_header(request)
        folder_id = await self._form_field(request, DELETE_FOLDER.field)
        if not await self.store.delete_folder(folder_id):
            raise web.HTTPNotFound(reason="Could not find the folder")
        return success(self.shape, "Folder deleted", {"folder_id": folder_id}, "Folder deleted")

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        self._authorize_header(request)
        stored = self.store.queue_upload(await self._form_field(request, UPLOAD_FROM_URL.field))
        data = {"file_id": stored.file_id, "folder_id": stored.folder_id}
        return success(self.shape, "Upload queued", data, stored.file_id)

    async def _link(self, request: web.Request) -> web.StreamResponse:
        self._authorize(request.query.get("access_token"))
        file_id = request.query.get(CREATE_DOWNLOAD_LINK.field)
        if not file_id:
            raise web.HTTPBadRequest(reason=f"Missing field {CREATE_DOWNLOAD_LINK.field}")
        token = self.store.create_token(file_id)
        if token is None:
            raise web.HTTPNotFound(reason="Could not find the file")
        expires_at = token.expires_at.format("YYYY-MM-DD HH:mm:ss")
        if self.shape is Shape.ENVELOPE:
            url = request.url.origin().with_path("/download").with_query(download_token=token.token)
            data = {"download_url": str(url), "expires_at": expires_at}
        else:
            data = {"download_token": token.token, "expires_at": expires_at}
        return success(self.shape, "Link created", data, token.token)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        token = self.store.valid_token(request.query.get("download_token", ""))
        if token is None:
            raise web.HTTPForbidden(reason="The download token is unknown or expired")
        token.downloads += 1
        stored = self.store.files[token.file_id]
        return RangedFile(self.store.path_of(stored), request)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.store.snapshot())

    async def _put_folder(self, request: web.Request) -> web.StreamResponse:
        self.store.folders.add(request.match_info["folder_id"])
        return web.Response(status=204)

    async def _put_file(self, request: web.Request) -> web.StreamResponse:
        folder_id = request.query.get("folder_id", self.store.upload_folder)
        self.store.put_file(await request.read(), request.match_info["file_id"], folder_id)
        return web.Response(status=204)

    async def _put_source(self, request: web.Request) -> web.StreamResponse:
        self.store.sources[request.match_info["name"]] = await request.read()
        return web.Response(status=204)

    async def _get_source(self, request: web.Request) -> web.StreamResponse:
        content = self.store.sources.get(request.match_info["name"])
        if content is None:
            raise web.HTTPNotFound(reason="No such source")
        return web.Response(body=content, content_type="application/octet-stream")

    async def _put_access_token(self, request: web.Request) -> web.StreamResponse:
        self.access_token = await request.text()
        return web.Response(status=204)

    async def _post_faults(self, request: web.Request) -> web.StreamResponse:
        try:
            given = await request.json()
            self.faults.script += [Fault.parse(one) for one in (given if isinstance(given, list) else [given])]
        except (ValueError, TypeError) as error:
            return web.Response(status=400, text=str(error))
        return web.Response(status=204)

    async def _delete_faults(self, request: web.Request) -> web.StreamResponse:
        self.faults.script.clear()
        return web.Response(status=204)

    def _authorize_header(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        self._authorize(token if scheme == "Bearer" else None)

    def _authorize(self, token: str | None) -> None:
        given = (token or "").encode("utf-8", "replace")
        if not any(hmac.compare_digest(given, valid.encode()) for valid in self.access_token.splitlines()):
            raise web.HTTPUnauthorized(reason="Could not validate the access token")

    async def _form_field(self, request: web.Request, name: str) -> str:
        value = (await request.post()).get(name)
        if not isinstance(value, str) or not value:
            raise web.HTTPBadRequest(reason=f"Missing field {name}")
        return value
