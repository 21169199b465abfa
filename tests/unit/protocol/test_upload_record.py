from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.upload_record import UploadRecord, UploadState, url_digest

URL = "https://user:hunter2@h/f?sig=hunter3"
RECORD = UploadRecord(url_digest(URL), try_number=1, max_tries=2, sent_at="2026-01-01T00:00:00Z")
RETRY = replace(RECORD, try_number=2)
CLEARED = replace(RECORD, try_number=2, max_tries=3)
RESULT = {"url": "https://***@h/f?***", "response": {"data": {"file_id": "f1"}}}


@pytest.mark.parametrize("record", [RECORD, replace(RECORD, state=UploadState.UNKNOWN), RECORD.queued(RESULT)])
def test_a_record_survives_the_state_store_and_holds_no_secret(record: UploadRecord) -> None:
    stored = json.dumps(record.to_json())
    assert UploadRecord.from_json(json.loads(stored)) == record
    assert "hunter" not in stored


def test_nothing_stored_is_no_record() -> None:
    assert UploadRecord.from_json(None) is None


QUEUED = RECORD.queued(RESULT)
assert QUEUED


@pytest.mark.parametrize(
    "damaged",
    [
        "", 0, {}, [], "x", {"digest": "x"}, RECORD.to_json() | {"state": "sent"}, RECORD.to_json() | {"state": []},
        RECORD.to_json() | {"digest": None}, RECORD.to_json() | {"try_number": "1"}, RECORD.to_json() | {"max_tries": True},
        RECORD.to_json() | {"result": {}}, RECORD.to_json() | {"new": 1}, QUEUED.to_json() | {"result": "x"},
        QUEUED.to_json() | {"result": None}, RECORD.to_json() | {"result": []},
    ],
)  # fmt: skip
def test_a_damaged_record_is_an_error_and_not_the_permission_to_send(damaged: object) -> None:
    with pytest.raises(InvalidInputError, match="record of this upload in Airflow's state store is damaged"):
        UploadRecord.from_json(damaged)


@pytest.mark.parametrize("state", UploadState)
def test_a_retry_of_the_same_upload_is_settled_by_the_record(state: UploadState) -> None:
    assert replace(RECORD, state=state).settles(RETRY)


@pytest.mark.parametrize("state", UploadState)
def test_another_url_is_another_upload(state: UploadState) -> None:
    other = replace(RETRY, digest=url_digest(URL + "4"))
    assert not replace(RECORD, state=state).settles(other)


@pytest.mark.parametrize("state", UploadState)
def test_a_cleared_task_sends_again_unless_nobody_was_told_that_the_outcome_is_unknown(state: UploadState) -> None:
    assert replace(RECORD, state=state).settles(CLEARED) is (state is UploadState.SENDING)


def test_a_result_that_is_too_large_for_the_store_is_not_recorded() -> None:
    assert RECORD.queued({"response": "x" * 40_000}) is not None
    assert RECORD.queued({"response": "x" * 50_000}) is None
    assert RECORD.queued({"response": "\u20ac" * 10_000}) is None  # six bytes each in the store
