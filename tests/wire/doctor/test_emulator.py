"""What the doctor reports of the emulator, in each shape of its responses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.wire.doctor.services import FOLDER, NEEDS, NOT_TRIED, connect, verdicts

CONTENT = b"name,value\n" * 100
FIELDS = {
    "envelope": "it has the keys response, data, _status, _datetime, data.file_id, data.folder_id",
    "plain": "it has the keys file_id, folder_id",
    "text": "its body is text",
}
SEEN = {
    "connection": "valid, with no extras",
    "token": "accepted",
    "not found": "HTTP 404: Could not find the file",
    "wrong path": "HTTP 404: Not Found",
    "wrong token": "Could not validate the access token",
    "deletion": "HTTP 200; ",
    "missing folder": "HTTP 404: Could not find the folder",
    "rate limit": "none in 20 requests, ",
}
NO_URL = {"download URL": NEEDS, "content": NOT_TRIED, "ranges": NOT_TRIED}


@pytest.fixture(params=FIELDS)
def shaped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The emulator with an upload queue, which refuses links at first."""
    with Emulator(answers=request.param, fetch_delay=0.2) as emulator:
        emulator.make_folder(FOLDER)
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        yield emulator


def test_by_default_it_only_reads(shaped: Emulator) -> None:
    report = diagnose()
    assert shaped.state()["effects"] == {}
    assert shaped.state()["requests"].keys() == {"link"}
    not_tried = ["certificate", "wrong token", "upload", "file id", "download token", "availability", "expiry", "download URL"]
    not_tried += ["content", "ranges", "deletion", "missing folder", "rate limit"]
    assert verdicts(report) == dict.fromkeys(not_tried, NOT_TRIED)
    assert {report[name].meaning for name in not_tried[1:]} == {
        f"use {flag}" for flag in ("--wrong-token", "--upload URL", "--delete-folder ID", "--requests N")
    }
    assert report.usable
    assert report.text(300).endswith("deleting folders (--delete-folder ID), rate limits (--requests N).")


def test_with_all_flags_every_row_is_as_expected(shaped: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shaped.service.shape.value
    upload = shaped.serve(CONTENT)
    report = diagnose(upload=upload, delete_folder=FOLDER, wrong_token=True, requests=20, wait=20)
    assert verdicts(report) == {"certificate": NOT_TRIED} | ({} if shape == "envelope" else NO_URL)
    assert report["address"].seen == shaped.url
    for name, words in (SEEN | {"upload": FIELDS[shape]}).items():
        assert words in report[name].seen, name
    assert report["file id"].seen == f"'{shaped.state()['files'][0]['file_id']}'"
    assert report["availability"].seen.endswith("s; before: HTTP 404: Could not find the file")
    assert report["expiry"].seen == "none in the response" or report["expiry"].seen.endswith(" s after the response")
    assert report.extras == {}
    assert report.usable is (shape == "envelope")
    assert FOLDER not in shaped.state()["folders"]

    connect(monkeypatch, shaped.url, shaped.access_token, download_url=f"{shaped.url}/download?download_token={{token}}")
    report = diagnose(upload=upload, wait=20)
    assert report["download URL"].seen == ("in the response" if shape == "envelope" else "by the extra 'download_url'")
    assert report["content"].seen == f"{len(CONTENT):,} bytes with the source's SHA-256"
    assert report["ranges"].seen == "ranges, and a strong ETag"
    assert report["connection"].seen == "valid, with the extras download_url"
    assert report.usable
