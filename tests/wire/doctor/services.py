"""Services that work like the one of the API document, and respond in other ways; and what the doctor says of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from tests.support import http_server

TOKEN = "t0p-secret-access-token"
FOLDER = "old-reports"
LINK_TOKEN = "token-for-f1a"
CAN = "Tasks can rely on connection 'cloudstore_default', as far as tried."
CAN_OTHERWISE = "Tasks can rely on connection 'cloudstore_default' with other settings"
CANNOT = "Tasks cannot rely on connection 'cloudstore_default', because "

Replies = dict[str, tuple[int, Any]]
DEFAULTS: Replies = {
    "token": (401, {"message": "Wrong token"}),
    "path": (404, {"message": "Wrong path"}),
    "file": (404, {"message": "Wrong file: {subject}"}),
    "folder": (404, {"message": "Wrong folder: {subject}"}),
    "queued": (200, {"file_id": "{id}"}),
    "link": (200, {"download_token": "{token}", "download_url": "{url}/get/{token}"}),
    "deleted": (200, {"deleted": "{subject}"}),
    "content": (200, "name,value\nfirst,1\n"),
}
"""How a service responds: the status, and JSON or text. ``early`` is the answer while a file is not there yet."""


def envelopes(status: int = 200, /, **body: Any) -> Replies:
    """How failures look where all look alike; ``{what}`` is what is wrong."""
    return {what: (status, json.dumps(body).replace("{what}", what)) for what in ("token", "path", "file", "folder")}


@dataclass(frozen=True)
class Service:
    """A service, and what the doctor says of it.

    :param verdict: how the first line begins.
    :param replies: where it differs from :data:`DEFAULTS`.
    :param extras: what the doctor proposes.
    :param candidates: what it leaves to a human.
    :param chosen: what the human sets; ``{url}`` stands for the service.
    :param says: what else the report says.
    :param file_id: the id of the uploaded file.
    :param polls: how many requests for its link are refused.
    """

    verdict: str
    replies: Replies
    extras: dict[str, str] = field(default_factory=dict)
    candidates: dict[str, list[str]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    says: str = ""
    file_id: str = "f1a"
    polls: int = 2


OK = envelopes(ok=False, error="no {what} {subject}")
OK_QUEUED: Replies = {"queued": (200, {"ok": True, "result": {"file": {"uid": "{id}", "queue": "q1"}}})}
SERVICES = {
    "as assumed": Service(CAN, {}),
    "status": Service(
        CAN_OTHERWISE,
        {
            **envelopes(status="error", message="No such method"),
            "token": (200, {"status": "error", "message": "The access token is not valid"}),
            "file": (200, {"status": "error", "message": "The file {subject} does not exist (code 17)."}),
            "folder": (200, {"status": "error", "message": "No folder '{subject}' in your account."}),
            "queued": (200, {"status": "ok", "data": {"file_id": "{id}"}}),
            "link": (200, {"status": "ok", "data": {"download_url": "{url}/get/{token}?download_token={token}"}}),
        },
        {"not_found_pattern": r"The file .* does not exist \(code 17\)\.|No folder '.*' in your account\."},
        says="status: error",
    ),
    "ok": Service(
        CAN_OTHERWISE, OK | OK_QUEUED, {"file_id_path": "result.file.uid", "not_found_pattern": "no file .*|no folder .*"}
    ),
    "ok, not ready": Service(
        CAN_OTHERWISE,
        OK | OK_QUEUED | {"early": (200, {"ok": False, "error": "not ready yet"})},
        {"file_id_path": "result.file.uid", "not_found_pattern": "no file .*|not ready yet|no folder .*"},
    ),
    "success, a URL alone": Service(
        CAN_OTHERWISE,
        {
            **envelopes(success=False, msg="There is no {what} {subject}"),
            "token": (401, {"success": False, "msg": "There is no token"}),
            "link": (200, {"success": True, "link": {"href": "{url}/get/{token}", "rel": "self"}}),
        },
        {"token_path": "link.href", "not_found_pattern": "There is no file .*|There is no folder .*"},
    ),
    "errors as strings, numbers as ids": Service(
        CAN_OTHERWISE,
        {
            **envelopes(404, error="no {what}"),
            "token": (401, {"error": "no token"}),
            "queued": (200, '{"data": {"request_id": 1, "id": {id}}}'),
        },
        {"file_id_path": "data.id"},
        says="data.id: 1048",
        file_id="1048",
    ),
    "nested": Service(
        CAN_OTHERWISE,
        {
            "queued": (202, {"result": {"items": [{"queueId": "q1", "fileId": "{id}"}]}}),
            "early": (200, {"result": {"state": "processing"}}),
            "link": (200, {"result": {"ticket": "{token}", "fileId": "{id}"}}),
        },
        {"file_id_path": "result.items.0.fileId"},
        {
            "token_path": ["result.ticket"],
            "download_url": ["the URL of a download, with {token} in place of the token"],
        },
        {"token_path": "result.ticket", "download_url": "{url}/get/{token}"},
        says="Set extra 'token_path' by hand; it could be: result.ticket.",
    ),
    "ids twice, and under a key with a dot": Service(
        CAN_OTHERWISE,
        {"queued": (200, {"file.id": "{id}", "upload": {"id": "{id}", "title": "{id}", "of": "{subject}"}})},
        candidates={"file_id_path": ["upload.id", "upload.title"]},
        chosen={"file_id_path": "upload.id"},
        says="Set extra 'file_id_path' by hand; it could be: upload.id, upload.title.",
    ),
    "text": Service(
        CAN_OTHERWISE,
        {
            **{what: (401 if what == "token" else 404, f"no {what}") for what in envelopes()},
            "queued": (200, "{id}"),
            "link": (200, "{token}"),
            "deleted": (200, "OK"),
        },
        candidates={"download_url": ["the URL of a download, with {token} in place of the token"]},
        chosen={"download_url": "{url}/get/{token}"},
    ),
    "no words": Service(CAN, {"token": (401, ""), **dict.fromkeys(("path", "file", "folder"), (404, ""))}),
    "links too early": Service(
        f"{CANNOT}a link was created, but no file came, so waits may end too early", {"content": (404, "not yet")}, polls=0
    ),
    "a token of one word": Service(
        f"{CANNOT}no link for the uploaded file was found in a response",
        {"link": (200, {"ok": True, "key": "ticket"})},
        candidates={"token_path": ["key"]},
        says="Set extra 'token_path' by hand; it could be: key.",
    ),
    "links for anything": Service(f"{CANNOT}a link was created for a file that does not exist", {"file": DEFAULTS["link"]}),
    "one answer for all": Service(f"{CANNOT}a refused token looks like a missing file", envelopes(ok=False, error="Not Found")),
    "a message without the id": Service(
        CAN_OTHERWISE, envelopes(ok=False, error="no {what}"), {"not_found_pattern": "no file|no folder"}
    ),
    "uploads without an id": Service(f"{CANNOT}nothing shows that an upload was accepted", {"queued": (200, {"state": "no"})}),
    "deletions that do nothing": Service(
        f"{CANNOT}nothing shows that a folder was deleted", {"folder": (200, {"deleted": 0}), "deleted": (200, {"deleted": 0})}
    ),
    "uploads rejected": Service(
        f"{CANNOT}uploads fail: HTTP 200, but the service reports an error: quota exceeded",
        OK | {"queued": (200, {"ok": False, "error": "quota exceeded"})},
        {"not_found_pattern": "no file .*|no folder .*"},
    ),
    "a login page": Service(f"{CANNOT}HTTP 200 with a web page", {"all": (200, "<html><title>Sign in</title></html>")}),
    "maintenance": Service(f"{CANNOT}HTTP 503", {"all": (503, "<html><title>Down for maintenance</title></html>")}),
    "unrecognized": Service(
        "This service's errors are not recognized", envelopes(outcome="REFUSED", why="no {what}"), says="why: no file"
    ),
}


class Server:
    """A service that runs.

    :param service: how it responds.
    :ivar effects: what it did, such as ``upload``, in order.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.url = ""
        self.folders = {FOLDER}
        self.effects: list[str] = []
        self._polls = 0

    def respond(self, method: str, target: str, given: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """The status and the body of a response."""
        path = urlsplit(target).path
        operation = next((one for one in OPERATIONS if (one.method, one.path) == (method, path)), None)
        subject = given[operation.field] if operation else path
        token = given.get("access_token") or authorization.removeprefix("Bearer ")
        if path == f"/get/{LINK_TOKEN}":
            name = "content"
        elif not operation:
            name = "path"
        else:
            name = getattr(self, f"_{operation.key}")(subject) if token == TOKEN else "token"
        replies = {"early": self.service.replies.get("file", DEFAULTS["file"]), **DEFAULTS, **self.service.replies}
        status, body = replies.get("all", replies[name])
        text = body if isinstance(body, str) else json.dumps(body)
        values = {"subject": subject, "id": self.service.file_id, "token": LINK_TOKEN, "url": self.url}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        return status, text.encode()

    def _upload(self, url: str) -> str:
        self.effects.append("upload")
        self._polls = 0
        return "queued"

    def _link(self, file_id: str) -> str:
        if "upload" not in self.effects or file_id != self.service.file_id:
            return "file"
        self._polls += 1
        if self._polls <= self.service.polls:
            return "early"
        self.effects.append("link")
        return "link"

    def _delete(self, folder_id: str) -> str:
        self.effects.append("delete")
        if folder_id not in self.folders:
            return "folder"
        self.folders.remove(folder_id)
        return "deleted"


@contextmanager
def running(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Run a service on loopback, and connect to it."""
    server = Server(service)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # a response is one write

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            given = dict(parse_qsl(urlsplit(self.path).query) + parse_qsl(body))
            status, content = server.respond(self.command, self.path, given, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http_server(Handler) as server.url:
        connect(monkeypatch, server.url)
        yield server


def connect(monkeypatch: pytest.MonkeyPatch, url: str, **extra: Any) -> None:
    """Define the default connection."""
    connection = {"conn_type": "cloudstore", "host": url, "password": TOKEN, "extra": {"max_attempts": 1, **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
