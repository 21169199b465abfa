from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cloudstore.doctor.places import id_places, token_places
from airflow_provider_cloudstore.protocol.messages import Response

URL, THUMBNAIL = "https://files.example.com/x", "https://files.example.com/thumbnail.png"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"data": "f123a"}, ["data"]),
        ({"status": "ok", "file": "f12a"}, ["file"]),
        ({"result": "queued", "data": {"fid": "f1"}}, ["data.fid"]),
        ({"data": URL + "1", "response": "Upload 1 queued"}, []),
        ({"data": {"upload": {"id": 77}, "file": {"id": 88}}}, ["data.file.id", "data.upload.id"]),
    ],
)
def test_an_id_is_also_found_under_a_name_that_says_nothing(data: Any, expected: list[str]) -> None:
    assert [place.path for place in id_places(data, ())] == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"data": URL}, "data"),
        ({"data": {"presigned": URL}}, "data.presigned"),
        ({"result": "success", "data": "abc123def"}, "data"),
        ({"links": {"self": {"href": THUMBNAIL}, "download": {"href": URL}}}, "links.download.href"),
        ({"data": {"hash": "abcdef123", "link": URL}}, "data.link"),
        ({"data": {"ticket": "abcdef123", "url": URL}}, "data.ticket"),
        ({"ticket": "abc123def", "token_type": "bearer2", "token_expires_at": "2026-12-12T10:00:00Z"}, "ticket"),
        ({"status": "ok", "result": "success"}, None),
        ({"data": {"status": "queued", "id": "f1", "key": "report.csv"}}, None),
    ],
)
def test_the_likeliest_token_is_no_expiry_no_name_and_no_state(data: Any, expected: str | None) -> None:
    response = Response(200, {}, json.dumps(data).encode(), 0.0, 0.0)
    paths = [path for path, _ in token_places(response, data, "f1", ())]
    assert next(iter(paths), None) == expected
