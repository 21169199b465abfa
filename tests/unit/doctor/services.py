"""Services that work like the one of the API document, and answer in other ways, each over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support import connect

TOKEN = "t0p-secret-access-token"
LINK_TOKEN = "l1nk-token-9c41d7"

Replies = dict[str, tuple[int, Any]]
DEFAULTS: Replies = {
    "token": (401, {"message": "Wrong token"}),
    "file": (404, {"message": "No file {file_id}"}),
    "queued": (200, {"file_id": "f1a"}),
    "link": (200, {"download_token": LINK_TOKEN, "download_url": f"/get?token={LINK_TOKEN}", "expires_in": 60}),
}
OWN: Replies = {  # docs/guides/connect-a-service.md shows it
    "token": (200, {"rc": "E02", "why": "session is over"}),
    "file": (200, {"rc": "E07", "why": "nothing under {file_id}"}),
    "queued": (200, {"rc": "OK", "payload": {"fileKey": "f1a", "queue": 3}}),
    "link": (200, {"rc": "OK", "download_token": LINK_TOKEN, "download_url": f"/get?token={LINK_TOKEN}"}),
}
OWN_EXTRAS = {
    "success_when": "rc=OK",
    "message_path": "why",
    "not_found_pattern": "nothing under|in progress|no folder",
    "token_refused_pattern": "session is over",
    "file_id_path": "payload.fileKey",
}


@contextmanager
def serving(replies: Replies) -> Iterator[tuple[str, list[str]]]:
    """A service on loopback, which differs from :data:`DEFAULTS` by ``replies``: its URL, and the names of what it answered."""
    known, answered = DEFAULTS | replies, list[str]()

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            given = dict(parse_qsl(url.query))
            if given["access_token"] != TOKEN:
                return self.answer("token")
            return self.answer("link" if given["file_id"] == "f1a" else "file", given["file_id"])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            is_known = self.headers["Authorization"] == f"Bearer {TOKEN}"
            self.answer("queued" if is_known else "token")

        def answer(self, name: str, file_id: str = "") -> None:
            answered.append(name)
            status, body = known[name]
            text = (body if isinstance(body, str) else json.dumps(body)).replace("{file_id}", file_id)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: Any) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", answered
        server.shutdown()


@contextmanager
def connected_to(replies: Replies, monkeypatch: pytest.MonkeyPatch, **extra: Any) -> Iterator[list[str]]:
    """As :func:`serving`, with the default connection to it."""
    with serving(replies) as (url, answered):
        connect(monkeypatch, host=url, password=TOKEN, extra=extra)
        yield answered


@contextmanager
def redirected() -> Iterator[None]:
    """Undo at the end what the command does to its process: what goes to standard output goes to standard error."""
    output = os.dup(1)
    yield
    os.dup2(output, 1)
    os.close(output)
