"""Services that work like the one of the API document, and respond in other ways; and what the doctor says of each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests_mock

from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from tests.support import connect

HOST = "https://files.example.com"
TOKEN = "t0p-secret-access-token"
LINK_TOKEN = "token-for-f1a"
CAN = "Tasks can rely on connection 'cloudstore_default', as far as tried."
CAN_OTHERWISE = "Tasks can rely on connection 'cloudstore_default' with other settings"
CANNOT = "Tasks cannot rely on connection 'cloudstore_default', because "
UNRECOGNIZED = f"{CANNOT}the service's errors are not recognized"
NO_FILE = f"{CANNOT}a link was created, so waits end, but no file came: "
NO_LINK = f"{CANNOT}no link for the uploaded file was found in a response"
NO_URL = f"{NO_FILE}the service's response has a download token but no download URL. Set extra 'download_url'"
DOWNLOAD_URL = HOST + "/get/{token}"

Replies = dict[str, tuple[int, Any]]
DEFAULTS: Replies = {
    "token": (401, {"message": "Wrong token"}),
    "path": (404, {"message": "Wrong path"}),
    "file": (404, {"message": "Wrong file: {subject}"}),
    "folder": (404, {"message": "Wrong folder: {subject}"}),
    "queued": (200, {"file_id": "{id}"}),
    "link": (200, {"download_token": "{token}", "download_url": DOWNLOAD_URL}),
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

    :param verdict: how the first line of the first report begins.
    :param replies: where it differs from :data:`DEFAULTS`.
    :param extras: what the doctor proposes, run after run.
    :param candidates: what it leaves to a human, who sets ``chosen`` after the first run.
    :param says: what else the first report says.
    :param polls: how many requests for its link are refused; with 0, the doctor asks once.
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
OK_PATTERNS = {"not_found_pattern": "no file .*", "token_refused_pattern": "no token .*"}
PATTERNS = {"not_found_pattern": "no file", "token_refused_pattern": "no token"}
SERVICES = {
    "as assumed": Service(CAN, {"content": (200, "value\n" * 200)}, says=f"1,200 bytes came\n  (body): {'value ' * 11}valu"),
    "status": Service(
        CAN_OTHERWISE,
        {
            **envelopes(status="error", message="No such method"),
            "token": (200, {"status": "error", "message": "The access token is not valid"}),
            "file": (200, {"status": "error", "message": "The file {subject} does not exist (code 17)."}),
            "folder": (200, {"status": "error", "message": "No folder '{subject}' in your account."}),
            "queued": (200, {"status": "ok", "data": {"file_id": "{id}"}, "ahead": [*range(30)]}),
            "link": (200, {"status": "ok", "data": {"download_url": f"{DOWNLOAD_URL}?download_token={{token}}"}}),
        },
        {"not_found_pattern": r"The file .* does not exist \(code 17\)\."},
        says="  ahead.17: 17\n  ... and 12 more\n",
    ),
    "ok, not ready": Service(
        CAN_OTHERWISE,
        {
            **OK,
            "queued": (200, {"ok": True, "result": {"file": {"uid": "{id}", "queue": "q1"}}}),
            "early": (200, {"ok": False, "error": "not ready yet"}),
        },
        OK_PATTERNS | {"not_found_pattern": "no file .*|not ready yet"},
        {"file_id_path": ["result.file.uid", "result.file.queue"]},
        {"file_id_path": "result.file.uid"},
    ),
    "names of its own": Service(  # docs/operate/check-your-service.md shows it
        CAN_OTHERWISE,
        {
            **OK,
            "queued": (202, {"ok": True, "result": {"file": {"uid": "{id}"}, "queue": 41}}),
            "link": (200, {"ok": True, "link": {"href": DOWNLOAD_URL}}),
        },
        OK_PATTERNS | {"token_path": "link.href"},
        {"file_id_path": ["result.file.uid", "result.queue"]},
        {"file_id_path": "result.file.uid"},
        polls=0,
    ),
    "errors as strings, numbers as ids": Service(
        CAN_OTHERWISE,
        {
            **envelopes(404, error="no {what}"),
            "token": (401, {"error": "no token"}),
            "queued": (200, '{"data": {"request_id": 1, "id": {id}}}'),
            "link": (200, {"href": DOWNLOAD_URL, "queue": "q-17"}),
        },
        candidates={"file_id_path": ["data.request_id", "data.id"]},
        chosen={"file_id_path": "data.id"},
        says="data.id: 1048",
        file_id="1048",
    ),
    "nested": Service(
        NO_LINK,
        {
            "queued": (202, {"result": {"items": [{"queueId": "q1", "fileId": "{id}"}]}}),
            "link": (200, {"result": {"ticket": "{token}", "etag": "e-1", "fileId": "{id}"}}),
        },
        {},
        {"token_path": ["result.ticket", "result.etag"]},
        {"token_path": "result.ticket", "download_url": DOWNLOAD_URL},
        says="Set extra 'token_path' by hand; it could be: result.ticket, result.etag.\n",
        polls=0,
    ),
    "ids twice, and under a key with a dot": Service(
        CAN_OTHERWISE,
        {
            "queued": (200, {"file.id": "{id}", "upload": {"id": "{id}", "title": "{id}", "of": "{subject}"}}),
            "early": (200, {"result": {"state": "processing", "job": "j-1"}}),
        },
        candidates={"file_id_path": ["upload.id", "upload.title"]},
        chosen={"file_id_path": "upload.id"},
    ),
    "text": Service(
        NO_URL,
        {
            **{what: (401 if what == "token" else 404, f"no {what}") for what in envelopes()},
            "queued": (200, "{id}"),
            "link": (200, "{token}"),
            "deleted": (200, "OK"),
        },
        chosen={"download_url": DOWNLOAD_URL},
    ),
    "no words": Service(
        CAN,
        {"token": (401, ""), **dict.fromkeys(("path", "file", "folder"), (404, ""))},
        says="HTTP 404, NotFoundError\n\nwrong path: ",
    ),
    "links too early": Service(f"{NO_FILE}HTTP 404", {"content": (404, "not yet")}, polls=0),
    "an error in place of the file": Service(
        f"{NO_FILE}HTTP 200 with an error in place of the file: *** expired",
        {"content": (200, {"error": "{token} expired", "new_token": "c4n4ry"})},
    ),
    "links without a token": Service(NO_LINK, {"link": (200, {"ok": True, "for": "{subject}"})}, polls=0),
    "an id that tasks refuse": Service(NO_LINK, {"queued": (200, {"file_id": "true"})}, polls=0),
    "links for anything": Service(f"{CANNOT}a link was created for a file that does not exist", {"file": DEFAULTS["link"]}),
    "one answer for all": Service(
        f"{CANNOT}a refused token looks like a missing file; this connection's may be refused, too",
        dict.fromkeys(DEFAULTS, (200, {"ok": False, "error": "no access"})),
    ),
    "a message without the id": Service(CAN_OTHERWISE, envelopes(ok=False, error="no {what}"), PATTERNS),
    "uploads without an id": Service(f"{CANNOT}nothing shows that an upload was accepted", {"queued": (200, {"state": "no"})}),
    "uploads rejected": Service(
        f"{CANNOT}uploads fail: HTTP 200, but the service reports an error: quota exceeded",
        OK | {"queued": (200, {"ok": False, "error": "quota exceeded"})},
        {"token_refused_pattern": "no token .*"},
    ),
    "a login page": Service(f"{CANNOT}HTTP 200 with a web page", dict.fromkeys(DEFAULTS, (200, "<html>Sign in</html>"))),
    "errors in words of its own": Service(
        UNRECOGNIZED,
        {
            **envelopes(outcome="REFUSED", why="no {what}"),
            "queued": (200, {"outcome": "DONE", "item": {"file_id": "{id}"}}),
            "link": (200, {"outcome": "DONE", "url": DOWNLOAD_URL, "valid_to": "2029-01-01 00:00:00"}),
            "deleted": (200, {"outcome": "DONE"}),
        },
        PATTERNS | {"file_id_path": "item.file_id", "success_when": "outcome=DONE"},
        chosen={"file_id_path": "item.file_id"},
        says="why: no file",
    ),
    "a refused token is not recognized": Service(UNRECOGNIZED, {"token": (200, {"outcome": "REFUSED"})}),
    "unrecognized": Service(UNRECOGNIZED, envelopes(why="no {what}"), says="why: no file"),
}


def start(service: Service, mocker: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Mock a service to which nothing was uploaded yet, and define the default connection to it."""
    replies = DEFAULTS | {"early": service.replies.get("file", DEFAULTS["file"])} | service.replies
    replied: list[str] = []

    def reply_to_link(file_id: str) -> str:
        if "queued" not in replied or file_id != service.file_id:
            return "file"
        return "early" if replied.count("early") < service.polls else "link"

    def respond(request: Any, context: Any) -> bytes:
        parts = urlsplit(request.url)
        given = dict(parse_qsl(f"{parts.query}&{request.text or ''}"))
        token = given.get("access_token") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        operation = next((one for one in OPERATIONS if (one.method, one.path) == (request.method, parts.path)), None)
        subject = given[operation.parameters[0].name] if operation else parts.path
        if not operation:
            name = "content" if subject == f"/get/{LINK_TOKEN}" else "path"
        elif token != TOKEN:
            name = "token"
        else:
            deletion = "folder" if "deleted" in replied else "deleted"
            name = {"link": reply_to_link(subject), "upload": "queued", "delete": deletion}[operation.key]
        replied.append(name)
        context.status_code, body = replies[name]
        text = body if isinstance(body, str) else json.dumps(body)
        for name, value in {"subject": subject, "id": service.file_id, "token": LINK_TOKEN}.items():
            text = text.replace(f"{{{name}}}", value)
        context.headers["Content-Length"] = str(len(text.encode()))
        return text.encode()

    mocker.register_uri(requests_mock.ANY, requests_mock.ANY, content=respond)
    connect(monkeypatch, host=HOST, password=TOKEN, extra={"max_attempts": 1, **extra})
