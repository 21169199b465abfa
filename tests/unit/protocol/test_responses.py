"""What services of this family answer (``responses.jsonl``: read in their sources, drivers and pages, with neutral values).

Each row says what its response must become: ``meaning``, the id, token, URL and expiry that a pipeline gets, the words that an
error shows, the extras that the connection's owner could have set, and other error classes that are right as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.messages import Response
from tests.support import KINDS, VALUES, connected

ROWS = [json.loads(line) for line in Path(__file__).with_name("responses.jsonl").read_text().splitlines()]
MEANS: dict[str, set[str]] = {
    "not found": {"NotFoundError"},
    "token refused": {"AuthenticationError"},
    "limited": {"RateLimitError", "ServiceError", "TransientServiceError", "PermissionDeniedError", "RequestRejectedError"},
    "rejected": {"ServiceError", "RequestRejectedError", "BadRequestError", "PermissionDeniedError", "NotFoundError"},
    "not ready": {"NotFoundError", "ServiceError"},
}
SUCCESS_WHEN = {
    "lb-del-error": "status=1",
    "ff-del-token": "status=ok",
    "sd-up-word": "result=true",
    "sd-up-queue": "result=true",
    "oc-up-notavail": "status=created",
}
"""Only the owner knows that these are no success. Of an upload that shows no other sign, the outcome is then unknown."""
NOT_READ = {
    "gf-del-inner": "says ok everywhere that can be looked at",
    "ad-link-delayed": "an empty link is not known to mean that the file is not ready",
    "ws-link-ok-xml": "XML is not read",
    "ws-link-fatal-xml": "XML is not read",
}


def interpreted(row: dict[str, Any], **extra: Any) -> Any:
    own = connected({**row.get("settings", {}), **extra}, "https://files.example.com")
    body = row.get("body")
    raw = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {name.lower(): value for name, value in (row.get("headers") or {}).items()}
    operation = KINDS[row["operation"]]
    asked = operation(own, *(VALUES[parameter.name] for parameter in operation.parameters))
    return asked.interpret(Response(row["status"], headers, raw, 1.79e9, 1.79e9 + 1), own)


def expected(row: dict[str, Any]) -> set[str]:
    if row["id"] in SUCCESS_WHEN and row["operation"] == "upload":
        return {"OutcomeUnknownError"}
    if row["meaning"] == "in doubt":
        return {"OutcomeUnknownError" if row["operation"] == "upload" else "TransientServiceError"}
    return MEANS[row["meaning"]] | set(row.get("accept", ()))


@pytest.mark.parametrize("row", [row for row in ROWS if row["id"] not in NOT_READ], ids=lambda row: row["id"])
def test_a_response_of_a_real_service_is_read_rightly(row: dict[str, Any]) -> None:
    when = SUCCESS_WHEN.get(row["id"])
    got = interpreted(row, **({"success_when": when} if when else {}))
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
def test_no_error_is_taken_for_success_but_where_only_the_owner_can_know(row: dict[str, Any]) -> None:
    assert isinstance(interpreted(row), CloudStoreError) is (row["id"] not in {*SUCCESS_WHEN, "gf-del-inner"})


@pytest.mark.parametrize("row", [row for row in ROWS if row.get("url") and row["meaning"] == "ok"], ids=lambda row: row["id"])
def test_a_link_is_found_without_settings_where_three_services_or_more_put_it(row: dict[str, Any]) -> None:
    of_its_own = {
        "ls-link-ok": "generated",
        "up-link-ok": "dlLink",
        "cr-link-ok": "data.urls",
        "tb-link-ok": "data",
        "pm-link-ok": "location",
        "ws-link-ok-xml": "XML",
    }
    if row["id"] not in of_its_own:
        found = interpreted({**row, "settings": {}})
        assert (found.url_with_token, found.token) == (row["url"], row["token"])
