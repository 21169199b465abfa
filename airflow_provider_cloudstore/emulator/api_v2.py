"""The calls of the API document, which shows requests only: all responses are assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.emulator.app import Given, Service, Work, download_url, respond
from airflow_provider_cloudstore.emulator.store import UPLOAD_FOLDER


@dataclass
class ApiV2(Service):
    """Sections 4.1 to 4.3 of the document, and three calls that it does not have, for ``hook.request``."""

    api = "/cloud/api/v2"

    def __post_init__(self) -> None:
        self.store.put_folder(UPLOAD_FOLDER)

    def calls(self) -> list[tuple[str, str, str, Work]]:
        """Each call with its one method."""
        return [
            ("POST", "/folder/delete", "delete", self._delete),
            ("POST", "/file/url_upload_add", "upload", self._upload),
            ("GET", "/file/download", "link", self._link),
            ("POST", "/file/rename", "other", self._rename),
            ("POST", "/folder/create", "other", self._create),
            ("GET", "/folder/list", "other", self._list),
        ]

    def check_token(self, request: web.Request, given: Given) -> None:
        """A POST has it in its header, a GET in its query (section 5)."""
        sent = request.headers.get("Authorization") if request.method == "POST" else f"Bearer {given.get('access_token')}"
        if sent != f"Bearer {self.access_token}":
            raise web.HTTPUnauthorized(reason="Could not validate the access token")

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """An envelope with the error's HTTP status."""
        return respond({"status": "error", "response": error.reason}, error.status)

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
        return {"data": {"folder_id": self.store.put_folder(name=self.need(given, "folder_name"))}}

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        files = self.store.files_in(self.folder(given))
        return {"data": {"files": [{"file_id": one.file_id, "name": one.name} for one in files]}}
