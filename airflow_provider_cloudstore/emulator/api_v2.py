"""The calls of the API document, which shows requests only: all responses are assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.emulator.app import Given, Handler, Service, Work, download_url, respond
from airflow_provider_cloudstore.emulator.store import UPLOAD_FOLDER

API = "/cloud/api/v2"


class ApiV2(Service):
    """Sections 4.1 to 4.3 of the document, and three calls that it does not have, for ``hook.request``."""

    not_found = "Could not find the {}"

    def calls(self) -> Iterator[web.RouteDef]:
        """Each call with its method, its path, where its token is, and the parameters that it needs."""
        yield web.post(f"{API}/folder/delete", self._call("delete", "header", self._delete, "folder_id"))
        yield web.post(f"{API}/file/url_upload_add", self._call("upload", "header", self._upload, "url"))
        yield web.get(f"{API}/file/download", self._call("link", "query", self._link, "file_id"), allow_head=False)
        yield web.post(f"{API}/file/rename", self._call("other", "header", self._rename, "file_id", "name"))
        yield web.post(f"{API}/folder/create", self._call("other", "header", self._create, "folder_name"))
        yield web.get(f"{API}/folder/list", self._call("other", "query", self._list, "folder_id"), allow_head=False)

    def _call(self, key: str, place: str, work: Work, *needed: str) -> Handler:
        def checked(request: web.Request, given: Given) -> dict[str, Any]:
            if place == "header":
                is_valid = request.headers.get("Authorization") == f"Bearer {self.access_token}"
            else:
                is_valid = request.query.get("access_token") == self.access_token
            if not is_valid:
                raise web.HTTPUnauthorized(reason="Could not validate the access token")
            if missing := [name for name in needed if name not in given]:
                raise web.HTTPBadRequest(reason=f"Missing field {missing[0]}")
            return {"response": "OK", "data": work(request, given)}

        return self.call(key, checked)

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """An envelope with the error's HTTP status."""
        return respond({"status": "error", "response": error.reason}, error.status)

    def _delete(self, request: web.Request, given: Given) -> dict[str, Any]:
        self.store.delete_folder(self.folder(given).folder_id)
        return {"folder_id": given["folder_id"]}

    def _upload(self, request: web.Request, given: Given) -> dict[str, Any]:
        folder = self.folder(given) if "folder_id" in given else self.store.put_folder(UPLOAD_FOLDER)
        stored = self.store.queue_upload(given["url"], folder.folder_id)
        return {"file_id": stored.file_id, "folder_id": folder.folder_id}

    def _link(self, request: web.Request, given: Given) -> dict[str, Any]:
        token = self.store.create_token(self.file(given).file_id)
        expires_at = token.expires_at.format("YYYY-MM-DD HH:mm:ss")
        return {"download_url": download_url(request, token.token), "expires_at": expires_at}

    def _rename(self, request: web.Request, given: Given) -> dict[str, Any]:
        self.file(given).name = given["name"]
        return {"file_id": given["file_id"], "name": given["name"]}

    def _create(self, request: web.Request, given: Given) -> dict[str, Any]:
        parent_id = self.folder(given, "parent_id").folder_id if "parent_id" in given else ""
        return {"folder_id": self.store.put_folder(name=given["folder_name"], parent_id=parent_id).folder_id}

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        files = self.store.in_folder(self.folder(given).folder_id)
        return {"files": [{"file_id": one.file_id, "name": one.name} for one in files]}
