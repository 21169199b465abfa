"""The pages on responses and retries: their stories are real, and the table of unknown uploads is complete."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.reasons import failure_in_doubt
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import NotFoundError, OutcomeUnknownError, ServiceError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, UploadFromUrl
from tests.doc_blocks import ROOT, blocks
from tests.support import connected

RESPONSES, RETRIES = (ROOT / "docs" / "operate" / name for name in ("responses.md", "retries.md"))


def test_the_story_of_a_response_is_how_it_is_read() -> None:
    (asked,), (answer, extra) = blocks(RESPONSES, "text"), blocks(RESPONSES, "json")
    got = Response(200, {}, answer.code.encode(), 0.0, 0.0)
    for extras, kind in (({}, ServiceError), (json.loads(extra.code), NotFoundError)):
        settings = connected(extras, "https://files.example.com", "TOKEN")
        link = CreateDownloadLink(settings, "f123")
        sent = link.request(settings)
        parts = re.split("[ ?&]", f"{sent.method} {sent.url.removeprefix(settings.base_url)}")
        assert sorted(parts) == sorted(re.split("[ ?&]", asked.code.strip()))
        error = Attempt(link, settings).interpret(got)
        assert type(error) is kind
        assert isinstance(error, ServiceError | NotFoundError)
        assert error.message == json.loads(answer.code)["response"]


def test_the_story_of_a_failed_upload_is_what_the_emulator_causes(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    (shown,) = blocks(RETRIES, "text")
    emulator.fault("status", status=503, headers={"Retry-After": "1"}, operation="upload")
    emulator.fault("drop_after", operation="upload")
    with pytest.raises(OutcomeUnknownError) as caught:
        CloudStoreHook().upload_from_url("https://example.com/report.csv")
    retry = next(text for text in caplog.messages if "attempt 1" in text)
    assert " ".join(shown.code.split()) == " ".join(f"{retry} OutcomeUnknownError: {caught.value}".split())


UNKNOWN: dict[str, dict[str, Any]] = {
    "timeout": {"status": 408},
    "error": {"status": 500},
    "maintenance": {"status": 503, "headers": {"retry-after": "1", "content-type": "text/html"}, "body": b"<html>"},
    "interim": {"status": 101},
    "stated": {"body": b'{"code": 502}'},
    "internal": {"body": b'{"status": "error", "message": "Internal server error"}'},
    "database": {"body": b'{"status": "error", "message": "database error"}'},
    "id": {"body": b'{"status": "error", "file_id": "f1"}'},
    "no id": {"extra": {"file_id_path": "key"}, "body": b"{}"},
    "page": {"headers": {"content-type": "text/html"}, "body": b"<html>"},
    "xml": {"body": b"<?xml version='1.0'?>"},
    "large": {"body": b"x" * (MAX_BODY_BYTES + 1)},
}


def words_of_unknown_uploads() -> list[str]:
    """For each row of the table a pattern of first lines."""
    table = RETRIES.read_text().partition("| first line |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    return [re.escape(words).replace(re.escape("..."), ".*") for cell in cells for words in re.findall(r"`(.+?)`", cell)]


def is_told(reason: str) -> bool:
    """Whether the page tells the cause of this first line; the page says "another 5xx"."""
    reason = re.sub(r"(HTTP|states) 5\d\d", r"\1 500", reason)
    return any(re.match(words, reason) for words in words_of_unknown_uploads())


@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
def test_the_page_tells_why_an_upload_is_unknown_after_an_answer(answer: dict[str, Any]) -> None:
    settings = connected(answer.get("extra", {}), "https://files.example.com", "T")
    got = Response(answer.get("status", 200), answer.get("headers", {}), answer.get("body", b""), 0.0, 0.0)
    error = Attempt(UploadFromUrl(settings, "https://example.com/a.csv"), settings).interpret(got)
    assert isinstance(error, OutcomeUnknownError)
    assert is_told(error.reason), error.reason


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(),
        BrokenPipeError(),
        ssl.SSLError(),
        http.client.RemoteDisconnected(""),
        http.client.IncompleteRead(b""),
        http.client.BadStatusLine(""),
        OSError(),
    ],
    ids=repr,
)
def test_the_page_tells_why_an_upload_is_unknown_after_a_broken_connection(error: Exception) -> None:
    assert is_told(failure_in_doubt(error, 30).reason)
