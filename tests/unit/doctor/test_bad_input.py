"""Connections and hosts that cannot work: the report says what to do, and nothing is sent that should not be."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.raw_server import RawServer
from tests.unit.doctor.conftest import Doctor

Connect = Callable[..., None]
NO_OBJECT = "must be a JSON object|cannot parse the environment variable"  # the latter is what Airflow 3.0 makes of it
EVERYTHING = ["--upload", "https://u:p4ssw0rd@example.com/x", "--delete-folder", "old", "--yes", "--requests", "5", "--wait", "1"]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Define the connection by its fields."""

    def define(connection: Any = None, **fields: Any) -> None:
        given = {"conn_type": "cloudstore", "password": "c4n4ry-token", **fields}
        text = json.dumps(given) if connection is None else connection
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", text)

    return define


@contextmanager
def responding(response: bytes | None) -> Iterator[RawServer]:
    """A host that sends the same response to every request; None for no response at all."""

    def handle(server: RawServer, connection: socket.socket) -> None:
        while server.read_request(connection):
            if response is None:
                connection.recv(1)  # until the client closes
            else:
                connection.sendall(response)

    server = RawServer(handle)
    try:
        yield server
    finally:
        server.close()


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


@pytest.mark.parametrize(
    ("given", "seen", "meaning"),
    [
        ({"host": ""}, "has no host", "base URL"),
        ({"host": "HOST", "password": ""}, "has no password", "access token"),
        ({"host": "HOST", "password": "two words"}, "contains a space", "token alone"),
        ({"host": "HOST", "extra": "timeout=60"}, NO_OBJECT, ""),
        ({"host": "HOST", "extra": [1]}, NO_OBJECT, ""),
        ({"host": "HOST", "extra": {"protected_ids": ["f1"]}}, "resembles 'protected_folder_ids'", "at the top level of extra"),
        ({"host": "HOST", "extra": {"timeout": -1}}, "must be a number from", ""),
        ({"host": "HOST", "extra": {"not_found_pattern": "("}}, "must be a regular expression", ""),
        ({"host": "HOST", "extra": {"proxy": "ftp://u:c4n4ry-proxy@p"}}, "'proxy'", "Set it to the URL of a proxy"),
        ({"host": "http://files.example.com"}, "plain http", "allow_http"),
        ({"host": "https://u:c4n4ry-user@files.example.com"}, "more than an address", "Put the token into the password"),
        ("{c4n4ry", "cannot parse the environment variable", "must be a URI, or a JSON object"),
        ("cloudstore://:c4n4ry@", "has no host", "base URL"),
    ],
    ids=str,
)
def test_a_broken_connection_is_explained_and_nothing_is_sent(
    connect: Connect, doctor: Doctor, given: Any, seen: str, meaning: str
) -> None:
    with responding(http("200 OK")) as server:
        if isinstance(given, dict):
            connect(**{key: server.url if value == "HOST" else value for key, value in given.items()})
        else:
            connect(given)
        done = doctor(*EVERYTHING)
    row = done.row("connection")
    assert done.status == 1
    assert re.search(seen, row["seen"])
    assert meaning in row["meaning"]
    assert server.requests == []
    assert "c4n4ry" not in done.out + done.err


def test_without_a_connection_no_deletion_needs_to_be_confirmed(doctor: Doctor) -> None:
    done = doctor("--conn-id", "nowhere", "--delete-folder", "old")
    assert done.status == 1
    assert done.row("connection")["seen"] == "it is not defined"


def test_another_type_and_unknown_extras_are_doubtful_but_work(connect: Connect, doctor: Doctor) -> None:
    body = json.dumps({"status": "error", "response": "gone"}).encode()
    with responding(http("404 Not Found", body)) as server:
        connect(conn_type="http", host=server.url, extra={"colour": "c4n4ry-colour"})
        done = doctor()
    row = done.row("connection")
    assert row["verdict"] == "contradicts"
    assert row["stops_tasks"] is False
    assert "has the type 'http', not 'cloudstore'" in row["seen"]
    assert "has the unknown extra 'colour'" in row["seen"]
    assert done.report["other_extras"] == ["colour"]
    assert "c4n4ry" not in done.out + done.err


@pytest.mark.parametrize(
    ("response", "seen", "meaning"),
    [
        (http("200 OK", b"<html>Log in</html>", "Content-Type: text/html"), "a web page", "no proxy or login page"),
        (http("302 Found", b"", "Location: /login?next=c4n4ry"), "HTTP 302, a redirect", "Redirects are not followed"),
        (http("405 Method Not Allowed"), "HTTP 405", "other than the version 2 API"),
        (http("503 Service Unavailable"), "HTTP 503", "ask whoever runs the service"),
        (None, "no complete response within 0.3 s", "did not respond"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "", "did not respond"),
    ],
    ids=["login page", "redirect", "405", "503", "silent", "not http"],
)
def test_what_is_not_the_api_gets_one_call_that_only_reads(
    connect: Connect, doctor: Doctor, response: bytes | None, seen: str, meaning: str
) -> None:
    with responding(response) as server:
        connect(host=server.url, extra={"timeout": 0.3, "max_attempts": 1})
        done = doctor(*EVERYTHING, "--wrong-token")
    row = done.row("address")
    assert done.status == 1
    assert seen in row["seen"]
    assert meaning in row["meaning"]
    assert {line.split()[0] for line in server.requests} == {b"GET"}
    assert len(server.requests) == 1
    assert "c4n4ry" not in done.out + done.err


def test_a_host_that_refuses_connections_is_named(connect: Connect, doctor: Doctor) -> None:
    with responding(None) as server:
        url = server.url
    connect(host=url, extra={"max_attempts": 1})
    done = doctor(*EVERYTHING)
    assert done.status == 1
    assert "connection refused" in done.row("address")["seen"]
    assert "Nothing was sent. Check the port" in done.row("address")["meaning"]


def test_a_host_that_says_ok_to_everything_proves_nothing(connect: Connect, doctor: Doctor) -> None:
    with responding(http("200 OK", b"OK", "Content-Type: text/plain")) as server:
        connect(host=server.url)
        done = doctor("--upload", "https://example.com/x", "--wait", "1")
    assert done.status == 1
    assert {name: done.row(name)["verdict"] for name in ("address", "token", "not found", "wrong path", "file id")} == {
        "address": "contradicts",
        "token": "not tried",
        "not found": "contradicts",
        "wrong path": "contradicts",
        "file id": "contradicts",
    }
