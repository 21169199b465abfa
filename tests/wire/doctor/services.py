"""Services that work like the one of the API document, and respond in other ways: small ones, on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.doctor.report import Report
from airflow_provider_cloudstore.emulator.app import SOURCES_PATH
from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from tests.support import http_server

TOKEN = "t0p-secret-access-token"
SOURCE = b"name,value\nfirst,1\nsecond,2\n"
FOLDER = "old-reports"
MAINTENANCE = "<html><title>Down for maintenance</title></html>"


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
    """

    polls = 2

    def __init__(self) -> None:
        self.url = ""
        self.files: dict[str, StoredFile] = {}
        self.folders = {FOLDER}
        self.effects: list[tuple[str, str]] = []
        self.paths: list[str] = []

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
            return self._download(path.removeprefix("/get/token-for-"))
        operation = next((one for one in OPERATIONS if (one.method, one.path) == (method, path)), None)
        if operation is None:
            return self.refused("path", path)
        token = given.get("access_token") or headers.get("Authorization", "").removeprefix("Bearer ")
        if token != TOKEN:
            return self.refused("token", "denied")
        subject = given[operation.field]
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

    def _download(self, file_id: str) -> Reply:
        file = self.files.get(file_id)
        if file is None:
            return Reply(403, "Unknown token")
        file.downloads += 1
        return self.download(file)


class StatusEnvelopes(Storage):
    """Reports every failure with HTTP 200 and a status."""

    def refused(self, what: str, subject: str) -> Reply:
        messages = {
            "token": "The access token is not valid",
            "file": f"The file {subject} does not exist (code 17).",
            "folder": f"No folder '{subject}' in your account.",
            "path": "No such method",
        }
        return Reply(200, {"status": "error", "message": messages[what]})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"status": "ok", "data": {"file_id": file_id}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"status": "ok", "data": {"download_url": f"{self.url}/get/{token}?download_token={token}"}})


class OkEnvelopes(Storage):
    """Reports failures with HTTP 200 and ``ok``; its ids are nested."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(200, {"ok": False, "error": f"no {what} {subject}"})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"ok": True, "result": {"file": {"uid": file_id, "queue": f"q{number}"}}})


class NotReady(OkEnvelopes):
    """The same, with other words for a file that is not there yet."""

    def link(self, file_id: str, file: StoredFile | None) -> Reply:
        return Reply(200, {"ok": False, "error": "not ready yet"}) if file and file.polls <= 2 else super().link(file_id, file)


class RejectsUploads(OkEnvelopes):
    """The same, and accepts no upload."""

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"ok": False, "error": "quota exceeded"})


class SuccessEnvelopes(Storage):
    """Reports failures with HTTP 200 and ``success``; its URLs have the token in the path."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(401 if what == "token" else 200, {"success": False, "msg": f"There is no {what} {subject}"})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"success": True, "link": {"href": f"{self.url}/get/{token}", "rel": "self"}})


class ErrorStrings(Storage):
    """Reports failures as a string, with an HTTP status; its ids are numbers under another name."""

    def new_id(self, number: int) -> str:
        return str(1047 + number)

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(401 if what == "token" else 404, {"error": f"no {what}"})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"data": {"request_id": number, "id": int(file_id)}})


class Nested(Storage):
    """Hides what it has to say in objects and lists, under names of its own, and gives no URL."""

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(202, {"result": {"items": [{"queueId": f"q{number}", "fileId": file_id}]}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"result": {"ticket": token, "fileId": "f1a"}})


class Ambiguous(Storage):
    """Repeats the id under several names, one of which no dotted path can reach."""

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"file.id": file_id, "upload": {"id": file_id, "title": file_id}})


class BareText(Storage):
    """Responds with lines of text."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(401 if what == "token" else 404, f"no {what}")

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, file_id)

    def granted(self, token: str) -> Reply:
        return Reply(200, token)

    def deleted(self, folder_id: str) -> Reply:
        return Reply(200, "OK")


class TooEarly(Storage):
    """Creates a link as soon as an upload is queued; its download host does not have the file yet."""

    polls = 0

    def download(self, file: StoredFile) -> Reply:
        return Reply(404, "not yet")


class LoginPage(Storage):
    """Shows a login page for everything."""

    def respond(self, method: str, target: str, given: dict[str, str], headers: Any) -> Reply:
        return Reply(200, "<html><title>Sign in</title></html>", {"Content-Type": "text/html"})


class Maintained(Storage):
    """Shows a maintenance page for everything."""

    def respond(self, method: str, target: str, given: dict[str, str], headers: Any) -> Reply:
        return Reply(503, MAINTENANCE, {"Content-Type": "text/html"})


class Unrecognized(Storage):
    """Reports failures with HTTP 200 in a way of its own."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(200, {"outcome": "REFUSED", "why": f"no {what}"})

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"outcome": "REFUSED", "why": "quota exceeded"})


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
    service.folders.add(FOLDER)
    upload = f"{service.url}{SOURCES_PATH}/report.csv"
    everything: dict[str, Any] = {"wrong_token": True, "upload": upload, "delete_folder": FOLDER, "wait": 5}
    return diagnose(**everything | plan)
