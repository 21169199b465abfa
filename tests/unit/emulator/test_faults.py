from __future__ import annotations

import http.client
import time
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.faults import Kind
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import CALLS, settings, store_file

SLOW = 0.3
FAULTS: list[tuple[dict[str, Any], str, bool]] = [
    ({"kind": "status", "status": 418, "body": "body", "headers": {"Retry-After": 1}}, "418 body", False),
    ({"kind": "status", "status": 504, "effect": True}, "504 ", True),
    ({"kind": "delay", "seconds": SLOW}, "late", True),
    ({"kind": "no_response"}, "timeout", True),
    ({"kind": "drop_before"}, "lost", False),
    ({"kind": "drop_after"}, "lost", True),
    ({"kind": "drop_body", "after": 4}, "4 bytes", True),
]
"""Each fault, what a client sees of it, and whether the operation has its effect."""


def send(emulator: Emulator, operation: str) -> http.client.HTTPConnection:
    """Send the request of an operation, on a connection of its own."""
    connection = http.client.HTTPConnection(emulator.url.removeprefix("http://"), timeout=2 * SLOW)
    if operation == "download":
        token = emulator.call(lambda service: service.store.create_token("f1"))
        assert token
        connection.request("GET", f"/download?download_token={token.token}")
    else:
        kind, subject = CALLS[operation]
        sent = kind(subject, settings(emulator.url, emulator.access_token)).request()
        connection.request(sent.method, sent.url.removeprefix(emulator.url), sent.body, dict(sent.headers))
    return connection


def outcome(emulator: Emulator, operation: str) -> str:
    """Return what a client sees of an operation."""
    began = time.monotonic()
    connection = send(emulator, operation)
    try:
        response = connection.getresponse()
        body = response.read()
    except http.client.IncompleteRead as cut:
        return f"{len(cut.partial)} bytes"
    except ConnectionError:
        return "lost"
    except TimeoutError:
        return "timeout"
    finally:
        connection.close()
    if response.status != 200:
        return f"{response.status} {body.decode()}"
    return "late" if time.monotonic() - began >= SLOW else "usual"


def effects(emulator: Emulator, operation: str) -> int:
    state = emulator.state()
    if operation == "download":
        return sum(token["downloads"] for token in state["tokens"])
    return int(state["effects"].get(operation, 0))


@pytest.mark.parametrize("operation", [*CALLS, "download"])
@pytest.mark.parametrize(("fault", "seen", "has_effect"), FAULTS)
def test_a_fault_is_seen_once_and_has_the_effect_that_it_documents(
    emulator: Emulator, operation: str, fault: dict[str, Any], seen: str, has_effect: bool
) -> None:
    emulator.fault(operation=operation, **fault)
    for expected, effect in ((seen, has_effect), ("usual", True)):
        before = effects(emulator, operation)
        store_file(emulator)
        assert outcome(emulator, operation) == expected
        assert effects(emulator, operation) - before == effect


def test_every_kind_of_fault_is_tried_here() -> None:
    assert {fault["kind"] for fault, _, _ in FAULTS} == {kind.value for kind in Kind}


def test_faults_are_injected_over_http_and_used_up_in_order(emulator: Emulator) -> None:
    base = f"{emulator.url}/_emulator/faults"
    for fault in ({"kind": "status", "status": 503, "operation": "link", "times": 2}, {"kind": "status", "status": 418}):
        assert requests.post(base, json=fault, timeout=5).status_code == 204
    assert outcome(emulator, "upload") == "418 "
    assert [outcome(emulator, "link")[:3] for _ in range(3)] == ["503", "503", "404"]
    assert requests.post(base, json={"kind": "status", "times": 0}, timeout=5).ok
    assert [outcome(emulator, "link")[:3] for _ in range(3)] == ["500"] * 3
    assert requests.delete(base, timeout=5).status_code == 204
    assert outcome(emulator, "link")[:3] == "404"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"kind": "unknown"}, "a fault has a kind"),
        ({"kind": "status", "unknown": 1}, "no other fields than operation, times"),
        ({"kind": "status", "operation": "x"}, "'operation' must be one of delete, upload, link"),
        ({"kind": "status", "status": "500"}, "'status' must be of type int"),
        ({"kind": "delay", "seconds": "1"}, "'seconds' must be of type float"),
    ],
)
def test_an_invalid_fault_is_rejected_with_a_reason(emulator: Emulator, fault: Any, reason: str) -> None:
    response = requests.post(f"{emulator.url}/_emulator/faults", json=fault, timeout=5)
    assert response.status_code == 400
    assert reason in response.text
