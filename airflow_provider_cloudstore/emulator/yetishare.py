"""The calls of YetiShare's "File Upload API", version 2: a reading of public facts. No site was called."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.emulator.api_v2 import ApiV2, Given, Work, download_url, respond

ACCOUNT_ID = "158642"
REAUTHENTICATE = "Could not validate access_token and account_id, please reauthenticate or try again."
INVALID_KEYS = "The key pair may be invalid or your account may be locked from too many failed logins."


@dataclass
class YetiShare(ApiV2):
    """One account. Only what differs from the API document is here."""

    api = "/api/v2"
    not_found = "Could not find {0} based on {0}_id."

    token_idle: float = 3600.0
    """Seconds without a call after which the access token ends."""
    key1: str = field(default_factory=lambda: secrets.token_hex(32))
    key2: str = field(default_factory=lambda: secrets.token_hex(32))
    _ends_at: float = 0.0

    def __post_init__(self) -> None:
        """There is no folder at first: uploads land in the root."""

    @property
    def credentials(self) -> dict[str, Any]:
        """The key pair and the name of the service."""
        return {"login": self.key1, "password": self.key2, "extra": {"service": "yetishare"}}

    def calls(self) -> list[tuple[str, str, str, Work]]:
        """Each call as POST and GET."""
        calls: list[tuple[str, str, Work]] = [
            ("/authorize", "authorize", self._authorize),
            ("/folder/delete", "delete", self._delete),
            ("/file/url_upload_add", "upload", self._upload),
            ("/file/download", "link", self._link),
            ("/folder/create", "other", self._create),
            ("/folder/listing", "other", self._list),
        ]
        return [(method, *call) for call in calls for method in ("POST", "GET")]

    def check_token(self, request: web.Request, given: Given) -> None:
        """Form or query have it, with the account; each accepted call renews it."""
        is_known = (self.need(given, "access_token"), self.need(given, "account_id")) == (self.access_token, ACCOUNT_ID)
        if not is_known or time.monotonic() >= self._ends_at:
            raise web.HTTPUnauthorized(reason=REAUTHENTICATE)
        self._ends_at = time.monotonic() + self.token_idle

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """An envelope with HTTP 200; for a download a redirect to a web page."""
        if request.path == "/download":
            return web.Response(status=302, headers={"Location": "/error"})
        if request.path == "/error":
            return web.Response(text="<!DOCTYPE html><title>Error</title>File not found.", content_type="text/html")
        return respond({"response": error.reason, "_status": "error"})

    def _authorize(self, request: web.Request, given: Given) -> dict[str, Any]:
        if (given.get("key1"), given.get("key2")) != (self.key1, self.key2):
            raise web.HTTPUnauthorized(reason=f"Could not authenticate user. {INVALID_KEYS}")
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

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        folder_id = self.folder(given, "parent_folder_id") if "parent_folder_id" in given else ""
        folders = [] if folder_id else [{"id": one, "folderName": name} for one, name in self.store.folders.items()]
        file_status = "trash" if folder_id in self.store.trash else "active"
        files = [
            {"id": one.file_id, "filename": one.name, "fileSize": len(one.content), "folderId": folder_id, "status": file_status}
            for one in self.store.files_in(folder_id)
        ]
        return {"data": {"folders": folders, "files": files}}
