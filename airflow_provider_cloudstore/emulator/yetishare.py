"""The calls of YetiShare's "File Upload API", version 2: a reading of public facts. No site was called."""

from __future__ import annotations

import re
import secrets
import string
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, ClassVar

import aiohttp
from aiohttp import web

from airflow_provider_cloudstore.emulator.app import Given, Service, download_url, respond
from airflow_provider_cloudstore.emulator.store import TRASH, Folder, Store, StoredFile

API = "/api/v2"
ACCOUNT_ID = "158642"
MAX_WRONG_LOGINS = 5
"""In a row; then the account is locked."""


def _random(length: int = 64) -> str:
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


class TrashStore(Store):
    """A store with a trash, which keeps error pages of sources."""

    shown_states: ClassVar[Mapping[str, str]] = {}
    id_prefix = ""

    async def receive(self, response: aiohttp.ClientResponse, stored: StoredFile) -> None:
        """Only a 401, a 404 and an error without a body fail."""
        stored.content = await response.read()
        if response.status in (401, 404) or not stored.content:
            response.raise_for_status()
        if response.content_disposition and response.content_disposition.filename:
            stored.name = response.content_disposition.filename

    def finish(self, stored: StoredFile) -> None:
        """Give a file a name that its folder does not have."""
        wanted, taken = PurePath(stored.name), {one.name for one in self.in_folder(stored.folder_id)}
        number = 1
        while stored.name in taken:
            number += 1
            stored.name = f"{wanted.stem} ({number}){wanted.suffix}"
        super().finish(stored)

    def delete_folder(self, folder_id: str) -> None:
        """Move a folder to the trash, with all below it."""
        self.folders[folder_id].state = TRASH
        for stored in self.in_folder(folder_id):
            stored.state = TRASH
        for one in self.below(folder_id):
            self.delete_folder(one.folder_id)


@dataclass
class YetiShare(Service):
    """One account, whose key pair is its user name and password, too."""

    not_found = "Could not find {} based on {}."

    token_idle: float = 3600.0
    """Seconds without a call after which the access token ends."""
    key1: str = field(default_factory=_random)
    key2: str = field(default_factory=_random)
    wrong_logins: int = 0
    _ends_at: float = 0.0

    @property
    def credentials(self) -> dict[str, Any]:
        """The key pair and the name of the service."""
        return {"login": self.key1, "password": self.key2, "extra": {"service": "yetishare"}}

    def calls(self) -> Iterator[web.RouteDef]:
        """Each call as POST and GET; form or query have the parameters, of which all calls but one need the token."""
        for path, key, work in (
            ("/authorize", "authorize", self._authorize),
            ("/folder/delete", "delete", self._delete),
            ("/file/url_upload_add", "upload", self._upload),
            ("/file/download", "link", self._link),
            ("/file/info", "other", lambda _, given: {"data": _file_row(self.file(given))}),
            ("/folder/info", "other", lambda _, given: {"data": _folder_row(self.folder(given))}),
            ("/folder/create", "other", self._create),
            ("/folder/listing", "other", self._list),
        ):
            handler = self.call(key, self._check_token if key != "authorize" else self._check_login, work)
            yield web.post(API + path, handler)
            yield web.get(API + path, handler, allow_head=False)

    def clean(self, value: str) -> str:
        """Without markup and the blanks around it."""
        return re.sub("<[^>]*>", "", value).strip()

    def error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """Below the API's path an envelope with HTTP 200, but for an unknown call; elsewhere a redirect to a web page."""
        if not request.path.startswith(f"{API}/"):
            page = "<!DOCTYPE html><title>Error</title>File not found."
            is_page = request.path == "/error"
            moved = web.Response(status=302, headers={"Location": "/error"})
            return web.Response(text=page, content_type="text/html") if is_page else moved
        if request.match_info.http_exception and error.status == 404:
            endpoint, _, action = request.path.removeprefix(f"{API}/").partition("/")
            problem = f"No method found within endpoint ({endpoint}): {action}"
            return web.json_response({"0": problem, "_status": "error"}, status=404)
        return respond({"response": error.reason, "_status": "error"}, 405 if error.status == 405 else 200)

    def _check_token(self, request: web.Request, given: Given) -> None:
        sent = self.need(given, "access_token"), self.need(given, "account_id")
        if sent != (self.access_token, ACCOUNT_ID) or time.monotonic() >= self._ends_at:
            reason = "Could not validate access_token and account_id, please reauthenticate or try again."
            raise web.HTTPUnauthorized(reason=reason)
        self._ends_at = time.monotonic() + self.token_idle

    def _folder_or_root(self, given: Given, name: str) -> str:
        return self.folder(given, name).folder_id if name in given else ""

    def _check_login(self, request: web.Request, given: Given) -> None:
        names, subject = ("username", "password"), "username and password"
        if "username" not in given:
            names, subject = ("key1", "key2"), "key pair"
            for name in names:
                if len(given.get(name, "")) != 64:
                    raise web.HTTPBadRequest(reason=f"Please provide {name}. It must be 64 characters in length.")
        is_wrong = [given.get(name) for name in names] != [self.key1, self.key2]
        if is_wrong or self.wrong_logins >= MAX_WRONG_LOGINS:
            self.wrong_logins += 1
            problem = "may be invalid or your account may be locked from too many failed logins."
            raise web.HTTPUnauthorized(reason=f"Could not authenticate user. The {subject} {problem}")
        self.wrong_logins = 0

    def _authorize(self, request: web.Request, given: Given) -> dict[str, Any]:
        self.access_token, self._ends_at = _random(128), time.monotonic() + self.token_idle
        return {"data": {"access_token": self.access_token, "account_id": ACCOUNT_ID}}

    def _delete(self, request: web.Request, given: Given) -> dict[str, Any]:
        if given.get("folder_id") not in self.store.folders:
            raise web.HTTPNotFound(reason="Failed deleting the folder.")
        self.store.delete_folder(given["folder_id"])
        return {"response": "Folder successfully set as deleted."}

    def _upload(self, request: web.Request, given: Given) -> dict[str, Any]:
        url, folder_id = self.need(given, "url"), self._folder_or_root(given, "folder_id")
        if not any(one.source == url and one.state in ("pending", "downloading") for one in self.store.files.values()):
            self.store.queue_upload(url, folder_id)
        return {"response": "The url was added to the queue."}

    def _link(self, request: web.Request, given: Given) -> dict[str, Any]:
        stored = self.file(given)
        url = download_url(request, self.store.create_token(stored.file_id).token)
        return {"data": {"file_id": stored.file_id, "filename": stored.name, "download_url": url}}

    def _create(self, request: web.Request, given: Given) -> dict[str, Any]:
        name, parent_id = self.need(given, "folder_name"), self._folder_or_root(given, "parent_id")
        return {"data": _folder_row(self.store.put_folder(name=name, parent_id=parent_id))}

    def _list(self, request: web.Request, given: Given) -> dict[str, Any]:
        folder_id = self._folder_or_root(given, "parent_folder_id")
        folders = [_folder_row(one) for one in self.store.below(folder_id)]
        return {"data": {"folders": folders, "files": [_file_row(one) for one in self.store.in_folder(folder_id)]}}


def _folder_row(folder: Folder) -> dict[str, Any]:
    return {"id": folder.folder_id, "parentId": folder.parent_id, "folderName": folder.name, "status": folder.state}


def _file_row(stored: StoredFile) -> dict[str, Any]:
    status = TRASH if stored.state == TRASH else "active"
    row = {"id": stored.file_id, "filename": stored.name, "fileSize": len(stored.content), "folderId": stored.folder_id}
    return {**row, "status": status, "file_status": status}
