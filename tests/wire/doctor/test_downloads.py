"""What the doctor reports of the download host, and of a source that it compares the file with."""

from __future__ import annotations

import random

import pytest

from airflow_provider_cloudstore.doctor import downloading
from airflow_provider_cloudstore.doctor.report import Report
from tests.wire.doctor import services
from tests.wire.doctor.services import AS_ASSUMED, CONTRADICTS, NOT_TRIED, SOURCE, Reply, Storage, StoredFile, connect, examine


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    monkeypatch.setattr(downloading, "_PAUSE", 0.0)


def report_of(service: Storage, monkeypatch: pytest.MonkeyPatch, **plan: object) -> Report:
    with services.running(service):
        connect(monkeypatch, service.url)
        return examine(service, delete_folder=None, requests=0, **plan)


def test_a_download_host_that_refuses_every_link_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Storage):
        def download(self, file: StoredFile) -> Reply:
            return Reply(403, "no")

    service = Refusing()
    report = report_of(service, monkeypatch)
    assert report["content"].verdict is CONTRADICTS
    assert report["content"].seen == "HTTP 403: the download host rejected the link"
    assert "The link was new." in report["content"].meaning
    assert report["ranges"].meaning == "not reached: see the rows above"
    assert not report.usable
    assert service.files["f1a"].downloads == 4


def test_a_download_host_that_is_late_by_many_links_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(services.TooEarly):
        def download(self, file: StoredFile) -> Reply:
            return Storage.download(self, file) if file.downloads > 6 else Reply(404, "not yet")

    report = report_of(Late(), monkeypatch)
    assert report["content"].verdict is AS_ASSUMED
    assert report["availability"].verdict is CONTRADICTS
    assert not report.usable


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("http://127.0.0.1:9/secret-path", "connection refused"),
        ("{url}/get/nothing", "rejected the link"),
        ("http://us3r:p4ss@127.0.0.1:9/secret-path", "contains a user name or password"),
        ("ftp://127.0.0.1:9/secret-path", "has the scheme 'ftp'"),
    ],
)
def test_a_source_that_cannot_be_fetched_from_here_is_not_compared(
    source: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Storage()
    with services.running(service):
        connect(monkeypatch, service.url)
        report = examine(service, upload=source.format(url=service.url))
    assert report["content"].verdict is NOT_TRIED
    assert report["content"].meaning.startswith("the source cannot be fetched from here (")
    assert why in report["content"].meaning.lower()
    assert f"the file has {len(SOURCE)} bytes" in report["content"].meaning
    assert report.usable
    assert "p4ss" not in report.text()
    assert "secret-path" not in report.text()


def test_the_ranges_of_an_empty_file_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Storage):
        def download(self, file: StoredFile) -> Reply:
            return Reply(200, b"")

    report = report_of(Empty(), monkeypatch)
    assert report["ranges"].verdict is NOT_TRIED
    assert "the file is empty" in report["ranges"].meaning


@pytest.mark.parametrize(
    ("ranges", "headers", "meaning"),
    [
        (False, {"ETag": '"1"'}, "A broken download starts over, and cloudstore:// cannot open the file."),
        (True, {}, "A broken download starts over."),
        (True, {"ETag": 'W/"1"'}, "A broken download starts over."),
    ],
)
def test_what_a_download_host_lacks_is_named_and_does_not_stop_tasks(
    ranges: bool, headers: dict[str, str], meaning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Simple(Storage):
        def download(self, file: StoredFile) -> Reply:
            return Reply(200, SOURCE, dict(headers))

    service = Simple()
    service.ranges = ranges
    report = report_of(service, monkeypatch)
    assert report["ranges"].verdict is CONTRADICTS
    assert meaning in report["ranges"].meaning
    assert report["content"].verdict is AS_ASSUMED
    assert report.usable
