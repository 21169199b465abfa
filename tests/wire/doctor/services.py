"""Services that work like the one of the API document, and respond in other ways: small ones, on loopback."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.doctor.report import CHECKS, Report, Verdict
from airflow_provider_cloudstore.emulator.app import SOURCES_PATH
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, OPERATIONS
from tests.support import http_server

TOKEN = "t0p-secret-access-token"
SOURCE = b"name,value\nfirst,1\nsecond,2\n"
FOLDER = "old-reports"
MAINTENANCE = "<html><title>Down for maintenance</title></html>"
AS_ASSUMED, NEEDS, CONTRADICTS, NOT_TRIED = (
    Verdict.AS_ASSUMED,
    Verdict.NEEDS_SETTING,
    Verdict.CONTRADICTS,
    Verdict.NOT_TRIED,
)


@dataclass
class Reply:
    """A response: its body is JSON, text, a page or bytes."""

    status: int
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class StoredFile:
    """An uploaded file.

    :ivar polls: how many requests for a link there were.
    :ivar downloads: how many requests to the download host.
    """

    polls: int = 0
    downloads: int = 0


class Storage:
    """A service; subclasses say how it responds. The defaults are those that the package assumes.

    :cvar polls: how many requests for a link are refused until an uploaded file is there.
    :cvar burst: how many requests in a row for the missing file are served before it limits the rate.
    """

    polls = 2
    burst = 5
    ranges = True

    def __init__(self) -> None:
        self.url = ""
        self.files: dict[str, StoredFile] = {}
        self.folders = {FOLDER}
        self.effects: list[tuple[str, str]] = []
        self.paths: list[str] = []
        self._in_a_row = 0

    # How it responds.

    def refused(self, what: str, subject: str) -> Reply:
        """What is wrong: ``token``, ``file``, ``folder`` or ``path``."""
        return Reply(401 if what == "token" else 404, {"message": f"Wrong {what}: {subject}"})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"file_id": file_id})

    def new_id(self, number: int) -> str:
        return f"f{number}a"

    def granted(self, token: str) -> Reply:
        return Reply(200, {"download_token": token, "download_url": f"{self.url}/get/{token}"})

    def deleted(self, folder_id: str) -> Reply:
        return Reply(200, {"deleted": folder_id})

    def limited(self) -> Reply:
        return Reply(429, {"message": "Slow down"}, {"Retry-After": "1"})

    def link(self, file_id: str, file: StoredFile | None) -> Reply:
        """The response to a request for a link."""
        if file is None or file.polls <= self.polls:
            return self.refused("file", file_id)
        return self.grant(file_id)

    def download(self, file: StoredFile) -> Reply:
        return Reply(200, SOURCE, {"ETag": '"1"'})

    # What it does.

    def grant(self, file_id: str) -> Reply:
        self.effects.append(("link", f"token-for-{file_id}"))
        return self.granted(f"token-for-{file_id}")

    def respond(self, method: str, target: str, given: dict[str, str], headers: Any) -> Reply:
        path = urlsplit(target).path
        self.paths.append(path)
        if path == f"{SOURCES_PATH}/report.csv":
            return Reply(200, SOURCE)
        if path.startswith("/get/"):
            return self._download(path.removeprefix("/get/token-for-"), headers)
        operation = next((one for one in OPERATIONS if (one.method, one.path) == (method, path)), None)
        if operation is None:
            self._in_a_row = 0
            return self.refused("path", path)
        token = given.get("access_token") or headers.get("Authorization", "").removeprefix("Bearer ")
        if token != TOKEN:
            return self.refused("token", "denied")
        subject = given[operation.field]
        self._in_a_row = self._in_a_row + 1 if operation is CREATE_DOWNLOAD_LINK and subject == MISSING_FILE_ID else 0
        if self._in_a_row > self.burst:
            return self.limited()
        handlers = {"link": self._link, "upload": self._upload, "delete": self._delete}
        return handlers[operation.key](subject)

    def _link(self, file_id: str) -> Reply:
        file = self.files.get(file_id)
        if file:
            file.polls += 1
        return self.link(file_id, file)

    def _upload(self, url: str) -> Reply:
        number = len(self.files) + 1
        file_id = self.new_id(number)
        self.files[file_id] = StoredFile()
        self.effects.append(("upload", url))
        return self.queued(number, file_id)

    def _delete(self, folder_id: str) -> Reply:
        self.effects.append(("delete", folder_id))
        if folder_id not in self.folders:
            return self.refused("folder", folder_id)
        self.folders.remove(folder_id)
        return self.deleted(folder_id)

    def _download(self, file_id: str, headers: Any) -> Reply:
        file = self.files.get(file_id)
        if file is None:
            return Reply(403, "Unknown token")
        file.downloads += 1
        reply = self.download(file)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range", ""))
        if reply.status != 200 or not wanted or not self.ranges:
            return reply
        first, last = int(wanted[1]), int(wanted[2] or len(SOURCE) - 1)
        reply.headers["Content-Range"] = f"bytes {first}-{last}/{len(SOURCE)}"
        return Reply(206, SOURCE[first : last + 1], reply.headers)


class ErrorEnvelopes(Storage):
    """Reports every failure with HTTP 200; limits the rate with a bare 503."""

    def refused(self, what: str, subject: str) -> Reply:
        messages = {
            "token": "The access token is not valid",
            "file": f"The file {subject} does not exist (code 17).",
            "folder": f"No folder '{subject}' in your account.",
            "path": "No such method",
        }
        return Reply(200, {"status": "error", "message": messages[what]})

    def limited(self) -> Reply:
        return Reply(503, {"message": "Busy"})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"status": "ok", "data": {"file_id": file_id}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"status": "ok", "data": {"download_url": f"{self.url}/get/{token}?download_token={token}"}})


class Nested(Storage):
    """Hides what it has to say in objects and lists, under names of its own."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(401 if what == "token" else 404, {"error": {"code": 4, "text": f"no {what}"}})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(202, {"result": {"items": [{"queueId": f"q{number}", "fileId": file_id}]}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"result": {"ticket": token, "fileId": "f1a"}})


class BareText(Storage):
    """Responds with lines of text; its download host serves files as a whole."""

    ranges = False

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(401 if what == "token" else 404, f"no {what}")

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, file_id)

    def granted(self, token: str) -> Reply:
        return Reply(200, token)

    def deleted(self, folder_id: str) -> Reply:
        return Reply(200, "OK")


class UrlsWithoutToken(Storage):
    """Its URLs have the token in the path; its ids are numbers; only a missing folder is reported with HTTP 200."""

    def new_id(self, number: int) -> str:
        return str(1047 + number)

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"data": {"request_id": number, "id": int(file_id)}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"data": {"download_url": f"{self.url}/get/{token}"}})

    def refused(self, what: str, subject: str) -> Reply:
        if what == "folder":
            return Reply(200, {"_status": "error", "response": "Folder not found"})
        return super().refused(what, subject)


class Maintained(Storage):
    """Shows a maintenance page now and then, with HTTP 503 and 200; its links have an unusual name."""

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"job": {"id": f"j{number}"}, "file": {"uuid": file_id}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"link": {"href": f"{self.url}/get/{token}", "rel": "self"}})

    def link(self, file_id: str, file: StoredFile | None) -> Reply:
        if file and file.polls <= 2:
            return Reply((503, 200)[file.polls - 1], MAINTENANCE)
        return super().link(file_id, file) if file is None or file.polls > 3 else self.refused("file", file_id)


class TooEarly(Storage):
    """Creates a link as soon as an upload is queued; its download host does not have the file yet."""

    polls = 0

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"data": {"fileId": file_id}})

    def download(self, file: StoredFile) -> Reply:
        return super().download(file) if file.downloads > 1 else Reply(404, "not yet")


@contextmanager
def running(service: Storage) -> Iterator[Storage]:
    """Run a service on loopback."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # a response is one write

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            given = dict(parse_qsl(urlsplit(self.path).query) + parse_qsl(body))
            with lock:
                reply = service.respond(self.command, self.path, given, self.headers)
            is_text = isinstance(reply.body, str)
            content = (
                reply.body if isinstance(reply.body, bytes) else (reply.body if is_text else json.dumps(reply.body)).encode()
            )
            self.send_response(reply.status)
            for name, value in ({"Content-Length": str(len(content))} | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http_server(Handler) as service.url:
        yield service


def connect(monkeypatch: pytest.MonkeyPatch, url: str, token: str = TOKEN, **extra: Any) -> None:
    """Define the default connection."""
    connection = {"conn_type": "cloudstore", "host": url, "password": token, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))


def examine(service: Storage, **plan: Any) -> Report:
    """Diagnose with everything that the doctor can try, unless ``plan`` says otherwise."""
    everything: dict[str, Any] = {
        "wrong_token": True,
        "upload": f"{service.url}{SOURCES_PATH}/report.csv",
        "delete_folder": FOLDER,
        "requests": 10,
        "wait": 20,
    }
    return diagnose(**everything | plan)


def verdicts(report: Report, *, but: Verdict = AS_ASSUMED) -> dict[str, Verdict]:
    """The verdicts that are not ``but``."""
    return {check.name: report[check.name].verdict for check in CHECKS if report[check.name].verdict is not but}
