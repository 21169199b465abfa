"""Every try says in its log what it resumes from, and why not from more."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.job import Report
from airflow_provider_cloudstore.batch.ledger import STATE_FORMAT, Ranges
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.hooks.folders import PathFolder
from airflow_provider_cloudstore.protocol import errors

Urls = Callable[..., list[str]]


@pytest.fixture
def lines(job: Any, run: Callable[[Any], Report]) -> Callable[..., list[str]]:
    """Run one try, and return what it logs after its plan."""

    def run_one(urls: list[Any], **more: Any) -> list[str]:
        found: list[str] = []
        run(job(urls, report=found.append, **more))
        assert found[0].startswith(f"A batch of {len(urls):,} URLs: ")
        return found[1:]

    return run_one


def test_a_first_try_starts_at_the_first_url(lines: Any, urls: Urls, state: Any) -> None:
    assert lines(urls(5), store=state) == ["Starting at the first URL: no finished URL of this run is stored."]


def test_without_a_store_and_receipts_a_warning_says_that_a_retry_resends_all(
    lines: Any, urls: Urls, caplog: pytest.LogCaptureFixture
) -> None:
    assert lines(urls(5)) == []
    (warning,) = caplog.records
    assert (warning.levelno, warning.message) == (
        logging.WARNING,
        "No state store and no receipts: a retry will resend every URL.",
    )


def test_an_unchanged_manifest_resumes_from_the_state(lines: Any, urls: Urls, state: Any) -> None:
    wanted = [*urls(9), "file:///x"]
    lines(wanted, store=state)
    assert lines(wanted, store=state, number=2) == [
        "Resuming from the state store: the manifest is unchanged, and 9 of 10 URLs are finished."
    ]
    assert lines([*wanted, *urls(5, 50)], store=state, number=3) == [
        "Resuming from the state store: the manifest only grew, and 9 of 15 URLs are finished."
    ]


def test_unknown_uploads_count_as_finished_and_are_named(lines: Any, urls: Urls, state: Any, emulator: Any) -> None:
    emulator.fault("drop_after", times=2)
    lines(urls(9), store=state)
    (line,) = lines(urls(9), store=state, number=2)
    assert line.endswith("9 of 9 URLs are finished, 2 of them unknown.")


def test_a_corrected_line_is_named_with_what_is_kept(lines: Any, urls: Urls, state: Any) -> None:
    wanted = [Entry(at, 2 * at + 10, url) for at, url in enumerate(urls(1000))]  # every other line is a comment
    lines(wanted, store=state)
    changed = [*wanted[:700], Entry(700, 1410, "https://source.example/other"), *wanted[701:]]
    (line,) = lines(changed, store=state, number=2)
    assert line == "Resuming from the state store: the manifest changed at or after line 1,405; kept 994 of 1,000 finished URLs."


def test_a_shorter_manifest_is_named_by_its_end(lines: Any, urls: Urls, state: Any) -> None:
    lines(urls(1000), store=state)
    (line,) = lines(urls(500), store=state, number=2)
    assert line.startswith("Resuming from the state store: the manifest changed at or after line 49")


def test_another_manifest_starts_over(lines: Any, urls: Urls, state: Any) -> None:
    lines(urls(50), store=state)
    assert lines(urls(50, 1000), store=state, number=2) == ["The manifest changed since the last try; starting over."]


def test_receipts_are_resumed_from_whatever_became_of_the_manifest(lines: Any, urls: Urls, state: Any, folder: Any) -> None:
    lines(urls(50), store=state, folder=folder)
    assert lines(list(reversed(urls(50))), store=state, folder=folder, number=2) == [
        "The manifest changed since the last try; its state no longer applies.",
        "Resuming from the receipts: 50 URLs are finished, wherever they are in the manifest.",
    ]


def test_finished_receipts_are_counted_once(
    lines: Any, urls: Urls, folder: Any, emulator: Any, job: Any, run: Callable[[Any], Report]
) -> None:
    emulator.fault("drop_after", times=1)
    wanted = [*urls(5), urls(5)[4], "file:///x"]
    lines(wanted, folder=folder)
    for number, unknown in (
        (2, ", 1 of them unknown and resent"),
        (3, ""),
    ):  # it is sent in the second try, and has two receipts in the third
        (line,) = lines(wanted, folder=folder, number=number, retry_unknown_outcome=True)
        assert line == f"Resuming from the receipts: 6 URLs are finished{unknown}, wherever they are in the manifest."


@pytest.mark.parametrize("version", [0, STATE_FORMAT - 1, STATE_FORMAT + 1])
def test_a_state_of_another_format_is_named_and_nothing_is_sent_unless_receipts_hold_the_progress(
    lines: Any, urls: Urls, state: Any, folder: Any, emulator: Any, version: int
) -> None:
    lines(urls(5), store=state, folder=folder)
    kept = state.text = json.dumps(json.loads(state.text) | {"version": version})
    with pytest.raises(errors.InvalidInputError, match=f"state has format {version}, written by another release"):
        lines(urls(5), store=state, number=2)
    assert emulator.state()["requests"] == {"upload": 5}
    assert lines(urls(5), store=state, folder=folder, number=3) == [
        "Resuming from the receipts: 5 URLs are finished, wherever they are in the manifest."
    ]
    state.text = kept
    lines(urls(5), store=state, number=2, since_try=2)
    assert emulator.state()["requests"] == {"upload": 10}


def test_a_damaged_receipt_is_no_outage_and_nothing_is_sent(
    lines: Any, urls: Urls, folder: Any, emulator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines(urls(5), folder=folder)
    part = next(name for name in folder.files if name.startswith("part-"))
    folder.files[part] = folder.files[part][:-9]
    with pytest.raises(errors.InvalidInputError, match=f"line 5 of the receipts the folder/{part} is damaged"):
        lines(urls(9), folder=folder, number=2)
    assert "retrying" not in caplog.text
    del folder.files[part]
    lines(urls(9), folder=folder, number=3)
    assert emulator.state()["requests"] == {"upload": 5 + 9}


@pytest.mark.parametrize(
    "damage",
    [
        {"total": "x"}, {"total": None}, {"segments": 5}, {"segments": '"'}, {"settled": "VPa!s"}, {"settled": {}},
        {"unknown": None}, {"failures": 5}, {"failures": [5]}, {"failures": [{}]}, {"writer": "x", "settled": ""},
        {"version": None}, {"version": "4"}, {"version": 4.0}, {"version": True}, {"checksum": None}, {"total": 4}, {"new": 1},
        {"settled": Ranges([(0, 9)]).encode()}, "x", 5, [], "", "{}", '{"writer": {}}', '{"writer": {"number": "1"}}',
    ],
)  # fmt: skip
def test_a_damaged_state_is_no_outage_and_nothing_is_sent(
    lines: Any, urls: Urls, state: Any, emulator: Any, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    lines(urls(5), store=state)
    state.text = json.dumps(json.loads(state.text) | damage if isinstance(damage, dict) else damage)
    state.text = damage if isinstance(damage, str) and damage.startswith("{") else state.text
    with pytest.raises(errors.InvalidInputError, match=r"state store is damaged; nothing was sent\.\nDelete it") as failed:
        lines(urls(9), store=state, number=2)
    assert failed.value.permanent
    assert "retrying" not in caplog.text
    assert emulator.state()["requests"] == {"upload": 5}
    lines(urls(9), store=state, number=2, since_try=2)
    assert emulator.state()["requests"] == {"upload": 5 + 9}


@pytest.mark.parametrize("keep", ["state", "receipts"])
def test_a_task_cleared_with_resume_false_says_what_it_ignores(
    lines: Any, urls: Urls, state: Any, folder: Any, keep: str
) -> None:
    kept = {"store": state} if keep == "state" else {"folder": folder}
    lines(urls(5), **kept)
    assert lines(urls(5), number=2, since_try=2, **kept) == [
        "Starting at the first URL: resume=False ignores what was stored before try 2."
    ]


@pytest.mark.parametrize("place", ["/proc/nope/x", "file/x", "file"])
def test_a_local_folder_that_cannot_be_created_is_not_taken_for_a_missing_bucket(
    job: Any, run: Callable[[Any], Report], urls: Urls, emulator: Any, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidInputError, match=r"receipts folder .* cannot be created \(.+\)") as refused:
        run(job(urls(5), folder=PathFolder(tmp_path / place)))
    assert "bucket" not in str(refused.value)
    assert emulator.state()["requests"] == {}
