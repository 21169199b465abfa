from __future__ import annotations

import re
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.faults import Kind
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from tests.support import CALLS, settings

API = "/cloud/api/v2"
CONTENT = b"hello world " * 10
SLOW = 0.5
RANDOM = re.compile(rb"f[0-9a-f]{12}|[\w-]{43}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|127\.0\.0\.1:\d+")
"""Everything in a response that differs from one emulator to the next."""

FAULTS: dict[Kind, dict[str, Any]] = {
    Kind.DELAY: {"seconds": SLOW},
    Kind.DROP_BODY: {"after": 1},
}
"""The fields that a kind needs, and those whose defaults would take too long."""

WITHOUT_EFFECT = {Kind.STATUS, Kind.REDIRECT, Kind.DROP_BEFORE}


@dataclass(frozen=True)
class Observed:
    """What a client sees of one request, and the effects that the request had."""

    status: bytes
    content_type: bytes
    location: bytes
    body: bytes
    length: int
    complete: bool
    slow: bool
    effects: Counter[str]


def request(emulator: Emulator, operation: str) -> bytes:
    if operation == "download":
        token = emulator.call(lambda service: service.store.create_token("f1"))
        assert token
        return f"GET /download?download_token={token.token} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
    kind, subject = CALLS[operation]
    sent = kind(subject, settings(emulator.url, emulator.access_token)).request()
    body = sent.body or b""
    headers = {**sent.headers, "Host": "h", "Connection": "close", "Content-Length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"{sent.method} {sent.url.removeprefix(emulator.url)} HTTP/1.1", *lines, "", ""]).encode() + body


def exchange(emulator: Emulator, sent: bytes) -> bytes:
    host, port = emulator.url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), 2) as client, suppress(TimeoutError):  # of no response
        client.sendall(sent)
        while data := client.recv(2**20):
            received += data
    return received


def header(head: bytes, name: bytes) -> bytes:
    found = re.search(rb"(?i)^%s: ([^\r]*)" % name, head, re.MULTILINE)
    return found[1] if found else b""


def observe(operation: str, kind: Kind | None = None) -> Observed:
    with Emulator(fetch_delay=60) as emulator:
        emulator.put_file(CONTENT, "f1")
        sent = request(emulator, operation)
        before = Counter(emulator.state()["effects"])
        if kind is not None:
            emulator.fault(kind.value, operation=operation, **FAULTS.get(kind, {}))
        started = time.monotonic()
        received = exchange(emulator, sent)
        slow = time.monotonic() - started >= SLOW
        state = emulator.state()
    head, _, body = received.partition(b"\r\n\r\n")
    effects = Counter(state["effects"]) - before
    effects["download"] = sum(token["downloads"] for token in state["tokens"])
    return Observed(
        status=head.partition(b"\r\n")[0],
        content_type=header(head, b"Content-Type"),
        location=header(head, b"Location"),
        body=RANDOM.sub(b"*", body),
        length=len(body),
        complete=header(head, b"Content-Length") == str(len(body)).encode(),
        slow=slow,
        effects=+effects,
    )


@pytest.fixture(scope="module", params=[*(operation.key for operation in OPERATIONS), "download"])
def usual(request: pytest.FixtureRequest) -> tuple[str, Observed]:
    """An operation and what is observed of it without a fault, every time."""
    first, second = observe(request.param), observe(request.param)
    assert first == second
    assert first.status == b"HTTP/1.1 200 OK"
    assert first.effects == {request.param: 1}
    return request.param, first


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
def test_every_fault_is_observable_and_has_the_effect_that_it_documents(usual: tuple[str, Observed], kind: Kind) -> None:
    operation, without = usual
    observed = observe(operation, kind)
    assert observed != without
    assert observed.effects == ({} if kind in WITHOUT_EFFECT else without.effects)
    if kind is Kind.DELAY:
        assert observed == replace(without, slow=True)
    if kind is Kind.DROP_BODY:
        assert observed == replace(without, body=observed.body, length=FAULTS[kind]["after"], complete=False)
