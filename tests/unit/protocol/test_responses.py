"""What services of this family answer (``responses.jsonl``: read in their sources, drivers and pages, with neutral values).

Each row says what its response must become: ``meaning``, the id, token, URL and expiry that a pipeline gets, the words that an
error shows, the extras that the connection's owner could have set, and other error classes that are right or wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import Response
from tests.support import KINDS, VALUES, connected

ROWS = [json.loads(line) for line in Path(__file__).with_name("responses.jsonl").read_text().splitlines()]
MEANS: dict[str, set[str]] = {
    "not found": {"NotFoundError"},
    "token refused": {"AuthenticationError"},
    "limited": {"RateLimitError", "ServiceError", "TransientServiceError", "PermissionDeniedError", "RequestRejectedError"},
    "rejected": {
        "ServiceError", "RequestRejectedError", "BadRequestError", "PermissionDeniedError", "NotFoundError",
        "InvalidResponseError",
    },
    "not ready": {"NotFoundError", "ServiceError"},
}  # fmt: skip
NOT_READ = {"ws-link-ok-xml", "ws-link-fatal-xml", "alioss-link-missing"}
"""XML is not read."""


def interpreted(row: dict[str, Any]) -> Any:
    own = connected(row.get("settings", {}), "https://files.example.com")
    body = row.get("body")
    raw = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {name.lower(): value for name, value in (row.get("headers") or {}).items()}
    operation = KINDS[row["operation"]]
    asked = operation(own, *map(VALUES.get, operation.own_parameters))
    return Attempt(asked, own).interpret(Response(row["status"], headers, raw, 1.79e9, 1.79e9 + 1))


def expected(row: dict[str, Any]) -> set[str]:
    if row["meaning"] == "in doubt":
        return {"OutcomeUnknownError" if row["operation"] == "upload" else "TransientServiceError"}
    return (MEANS[row["meaning"]] | set(row.get("accept", ()))) - set(row.get("deny", ()))


@pytest.mark.parametrize("row", [row for row in ROWS if row["id"] not in NOT_READ], ids=lambda row: row["id"])
def test_a_response_of_a_real_service_is_read_as_its_owner_declares_it(row: dict[str, Any]) -> None:
    got = interpreted(row)
    if row["meaning"] == "ok":
        assert not isinstance(got, CloudStoreError)
        assert getattr(got, "file_id", "") == row.get("file_id", VALUES["file_id"] if row["operation"] == "link" else "")
        if "token" in row:
            assert got.token == row["token"]
        if "url" in row:
            assert got.url_with_token == row["url"]
        if "expires" in row:
            assert got.expires_at == pendulum.parse(row["expires"])
        return
    assert isinstance(got, CloudStoreError)
    assert type(got).__name__ in expected(row)
    assert row.get("words", "").lower() in str(got).lower()


@pytest.mark.parametrize("row", [row for row in ROWS if row["meaning"] != "ok"], ids=lambda row: row["id"])
def test_no_error_is_taken_for_success_with_what_its_owner_declares(row: dict[str, Any]) -> None:
    assert isinstance(interpreted(row), CloudStoreError)


def conventional(row: dict[str, Any]) -> bool:
    """Whether a response says that it is an error in a way that needs no declaration."""
    body = json.loads(row["body"]) if row["status"] < 300 and str(row.get("body"))[:1] == "{" else {}
    states = (str(body.get(name)).lower() for name in ("status", "_status"))
    flags = (body.get(name, True) in (False, 0) for name in ("success", "ok"))
    return row["status"] >= 300 or any(state.startswith("error") for state in states) or any(flags) or bool(body.get("error"))


@pytest.mark.parametrize("row", [row for row in ROWS if row["meaning"] != "ok" and conventional(row)], ids=lambda row: row["id"])
def test_no_conventional_error_is_taken_for_success_without_a_declaration(row: dict[str, Any]) -> None:
    assert isinstance(interpreted({**row, "settings": {}}), CloudStoreError)
