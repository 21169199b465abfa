from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator

SLOW, LIMIT = 1.0, 3.0
"""Seconds after which a response is late, and after which the client gives up."""
FAULTS: list[tuple[dict[str, Any], str, bool]] = [
    ({"kind": "status", "status": 418, "body": "body", "headers": {"X-Y": 1}}, "418 body 1", False),
    ({"kind": "status", "status": 504, "effect": True}, "504  None", True),
    ({"kind": "delay", "seconds": SLOW}, "late", True),
    ({"kind": "no_response"}, "timeout", True),
    ({"kind": "drop_before"}, "lost", False),
    ({"kind": "drop_after"}, "lost", True),
    ({"kind": "drop_body", "after": 4}, "4 bytes", True),
]
"""Each fault, what a client sees of it, and whether the operation has its effect."""


def outcome(emulator: Emulator, operation: str = "upload") -> str:
    """Return what a client sees of an operation."""
    began, url, token = time.monotonic(), f"{emulator.url}/cloud/api/v2/file", emulator.access_token
    try:
        if operation == "upload":
            headers = {"Authorization": f"Bearer {token}"}
            response = requests.post(f"{url}/url_upload_add", {"url": "https://example.com/a"}, headers=headers, timeout=LIMIT)
        else:
            response = requests.get(f"{url}/download", {"access_token": token, "file_id": "none"}, timeout=LIMIT)
    except requests.exceptions.ChunkedEncodingError as cut:
        return "4 bytes" if "(4 bytes read" in str(cut) else str(cut)
    except requests.Timeout:
        return "timeout"
    except requests.ConnectionError:
        return "lost"
    if response.status_code != 200:
        return f"{response.status_code} {response.text} {response.headers.get('X-Y')}"
    return "late" if time.monotonic() - began >= SLOW else "usual"


@pytest.mark.parametrize(("fault", "seen", "has_effect"), FAULTS)
def test_a_fault_is_seen_once_and_has_the_effect_that_it_documents(
    emulator: Emulator, fault: dict[str, Any], seen: str, has_effect: bool
) -> None:
    emulator.fault(operation="upload", **fault)
    assert (outcome(emulator), emulator.state()["effects"].get("upload", 0)) == (seen, has_effect)
    assert (outcome(emulator), emulator.state()["effects"]["upload"]) == ("usual", has_effect + 1)


def test_faults_are_used_up_in_order(emulator: Emulator) -> None:
    emulator.fault("status", status=503, operation="link", times=2)
    emulator.fault("status", status=418)
    assert outcome(emulator)[:3] == "418"
    assert [outcome(emulator, "link")[:3] for _ in range(3)] == ["503", "503", "404"]
    emulator.fault("status", times=0)
    assert [outcome(emulator, "link")[:3] for _ in range(3)] == ["500"] * 3


def test_an_unknown_kind_or_operation_is_refused(emulator: Emulator) -> None:
    for given in ({"kind": "unknown"}, {"kind": "status", "operation": "unknown"}):
        with pytest.raises(ValueError, match="unknown"):
            emulator.fault(**given)
