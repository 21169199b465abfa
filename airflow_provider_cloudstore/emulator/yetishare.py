"""The calls of YetiShare's "File Upload API", version 2: a reading of public facts. No site was called."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.emulator.app import Given, Service, Work, download_url, respond
from airflow_provider_cloudstore.emulator.store import StoredFile
from airflow_provider_cloudstore.protocol.services import KEY_NAMES

ACCOUNT_ID = "158642"
MAX_WRONG_LOGINS = 5  # in a row; then the account is locked


@dataclass
class YetiShare(Service):
    """One account, whose key pair is its user name and password, too."""

    api = "/api/v2"
    not_found = "Could not find {0} based on {0}_id."

    token_idle: float = 3600.0
    """Seconds without a call after which the access token ends."""
    key1: str = field(default_factory=lambda: secrets.token_hex(32))
    key2: str = field(default_factory=lambda: secrets.token_hex(32))
    wrong_logins: int = 0
    _ends_at: float = 0.0

    @property
    def credentials(self) -> dict[str, Any]:
        """The key pair and the name of the service."""
        return {"login": self.key1, "password": self.key2, "extra": {"service": "yetishare"}}

    def calls(self) -> list[tuple[str, str, str, Work]]:
        """Each call as POST and GET."""
        calls: dict[str, tuple[str, Work]] = {
            "/authorize": ("authorize", self._authorize),
            "/folder/delete": ("delete", self._delete),
            "/file/url_upload_add": ("upload", self._upload),
            "/file/download": ("link", self._link),
            "/file/info": ("other", lambda _, given: {"data": self._file_row(self.file(given))}),
            "/folder/info": ("other", lambda _, given: {"data": self._folder_row(self.folder(given))}),
            "/folder/create": ("other", self._create),
            "/folder/listing": ("other", self._list),
        }
        return [(method, path, *call) for path, call in calls.items() for method in ("POST", "GET")]

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """An envelope with HTTP 200; for a download a redirect to a web page."""
        if request.path == "/download":
            return web.Response(status=302, headers={"Location": "/error"})
        if request.path == "/error":
            return web.Response(text="<!DOCTYPE html><title>Error</title>File not found.", content_type="text/html")
        return respond({"response": error.reason, "_status": "error"})

    def check_token(self, request: web.Request, given: Given) -> None:
        """Form or query have it, with the account; each accepted call renews it."""
        sent = self.need(given, "access_token"), self.need(given, "account_id")
        if sent != (self.access_token, ACCOUNT_ID) or time.monotonic() >= self._ends_at:
            reason = "Could not validate access_token and account_id, please reauthenticate or try again."
            raise web.HTTPUnauthorized(reason=reason)
        self._ends_at = time.monotonic() + self.token_idle

    def _authorize(self, request: web.Request, given: Given) -> dict[str, Any]:
        pairs = [tuple(given.get(name) for name in names) for names in KEY_NAMES.values()]
        if (self.key1, self.key2) not in pairs or self.wrong_logins >= MAX_WRONG_LOGINS:
            self.wrong_logins += 1
            problem = "may be invalid or your account may be locked from too many failed logins."
            raise web.HTTPUnauthorized(reason=f"Could not authenticate user. The key pair {problem}")
        self.wrong_logins = 0
        self.access_token, self._ends_at = secrets.token_hex(64), time.monotonic() + self.token_idle
        return {"data": {"access_token": self.access_token, "account_id": ACCOUNT_ID}}

    def _delete(self, request: web.Request, given: Given) -> dict[str, Any]:
        if given.get("folder_id") not in self.store.folders:
            raise web.HTTPNotFound(reason="Failed deleting the folder.")
        self.store.trash.add(given["folder_id"])
        return {"response": "Folder successfully set as deleted."}

    def _upload(self, request: web.Request, given: Given) -> dict[str, Any]:
        url = self.need(given, "url")
        folder_id = self.folder(given) if "folder_id" in given else ""
        if not any(one.source == url and one.state == "queued" for one in self.store.files.values()):
            self.store.queue_upload(url, folder_id)
        return {"response": "The url was added to the queue."}

    def _link(self, request: web.Request, given: Given) -> dict[str, Any]:
        stored = self.file(given)
        url = download_url(request, self.store.create_token(stored.file_id).token)
        return {"data": {"file_id": stored.file_id, "filename": stored.name, "download_url": url}}

    def _create(self, request: web.Request, given: Given) -> dict[str, Any]:
        return {"data": self._folder_row(self.store.put_folder(name=self.need(given, "folder_name")))}

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        folder_id = self.folder(given, "parent_folder_id") if "parent_folder_id" in given else ""
        folders = [] if folder_id else [self._folder_row(one) for one in self.store.folders]
        return {"data": {"folders": folders, "files": [self._file_row(one) for one in self.store.files_in(folder_id)]}}

    def _status(self, folder_id: str) -> str:
        return "trash" if folder_id in self.store.trash else "active"

    def _folder_row(self, folder_id: str) -> dict[str, Any]:
        return {"id": folder_id, "folderName": self.store.folders[folder_id], "status": self._status(folder_id)}

    def _file_row(self, stored: StoredFile) -> dict[str, Any]:
        status = self._status(stored.folder_id)
        row = {"id": stored.file_id, "filename": stored.name, "fileSize": len(stored.content), "folderId": stored.folder_id}
        return {**row, "status": status, "file_status": status}
