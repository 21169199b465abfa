"""The calls of the API document, which shows requests only: all responses are assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.emulator.app import Given, Service, download_url, respond
from airflow_provider_cloudstore.emulator.store import UPLOAD_FOLDER

API = "/cloud/api/v2"


class ApiV2(Service):
    """Sections 4.1 to 4.3 of the document, and three calls that it does not have, for ``hook.request``."""

    not_found = "Could not find the {}"

    def calls(self) -> Iterator[web.RouteDef]:
        """Each call with its method, its path, and where its token is (section 5)."""
        header, query = self._check_header, self._check_query
        yield web.post(f"{API}/folder/delete", self.call("delete", header, self._delete))
        yield web.post(f"{API}/file/url_upload_add", self.call("upload", header, self._upload))
        yield web.get(f"{API}/file/download", self.call("link", query, self._link), allow_head=False)
        yield web.post(f"{API}/file/rename", self.call("other", header, self._rename))
        yield web.post(f"{API}/folder/create", self.call("other", header, self._create))
        yield web.get(f"{API}/folder/list", self.call("other", query, self._list), allow_head=False)

    def _check_header(self, request: web.Request, given: Given) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.access_token}":
            raise web.HTTPUnauthorized(reason="Could not validate the access token")

    def _check_query(self, request: web.Request, given: Given) -> None:
        if given.get("access_token") != self.access_token:
            raise web.HTTPUnauthorized(reason="Could not validate the access token")

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """An envelope with the error's HTTP status."""
        return respond({"status": "error", "response": error.reason}, error.status)

    def _delete(self, request: web.Request, given: Given) -> dict[str, Any]:
        self.need(given, "folder_id")
        folder = self.folder(given)
        self.store.delete_folder(folder.folder_id)
        return _envelope(folder_id=folder.folder_id)

    def _upload(self, request: web.Request, given: Given) -> dict[str, Any]:
        url = self.need(given, "url")
        folder = self.folder(given) if "folder_id" in given else self.store.put_folder(UPLOAD_FOLDER)
        stored = self.store.queue_upload(url, folder.folder_id)
        return _envelope(file_id=stored.file_id, folder_id=stored.folder_id)

    def _link(self, request: web.Request, given: Given) -> dict[str, Any]:
        self.need(given, "file_id")
        token = self.store.create_token(self.file(given).file_id)
        expires_at = token.expires_at.format("YYYY-MM-DD HH:mm:ss")
        return _envelope(download_url=download_url(request, token.token), expires_at=expires_at)

    def _rename(self, request: web.Request, given: Given) -> dict[str, Any]:
        name = self.need(given, "name")
        self.need(given, "file_id")
        stored = self.file(given)
        stored.name = name
        return _envelope(file_id=stored.file_id, name=stored.name)

    def _create(self, request: web.Request, given: Given) -> dict[str, Any]:
        name = self.need(given, "folder_name")
        parent_id = self.folder(given, "parent_id").folder_id if "parent_id" in given else ""
        return _envelope(folder_id=self.store.put_folder(name=name, parent_id=parent_id).folder_id)

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        self.need(given, "folder_id")
        files = self.store.in_folder(self.folder(given).folder_id)
        return _envelope(files=[{"file_id": one.file_id, "name": one.name} for one in files])


def _envelope(**data: Any) -> dict[str, Any]:
    return {"response": "OK", "data": data}
