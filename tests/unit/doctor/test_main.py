from __future__ import annotations

import json
import time

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.unit.doctor.conftest import Doctor

SCREEN = 24  # lines
REFUSED = [
    ["--upload", "file:///etc/passwd"],
    ["--upload", "{{ source }}"],
    ["--upload", "-"],  # from an empty pipe
    ["--delete-folder", "0"],
    ["--delete-folder", "{{ folder }}"],
    ["--delete-folder", "Keep/"],
    ["--delete-folder", "old", "--upload", "no url"],
    ["--folder", "old"],
]


@pytest.fixture
def protecting(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator, with two folders, of which the connection protects one."""
    emulator.make_folder("old")
    emulator.make_folder("keep")
    connection = {**json.loads(emulator.connection), "extra": {"protected_folder_ids": ["keep"]}}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    return emulator


def test_by_default_it_only_reads_and_fills_no_more_than_a_screen(protecting: Emulator, doctor: Doctor) -> None:
    done = doctor()
    assert done.status == 0, done.out
    assert done.out.startswith("Tasks can rely on connection 'cloudstore_default', as far as tried.\n")
    assert done.out.endswith("Not tried: --wrong-token, --upload URL, --delete-folder ID.\n")
    assert len(done.out.splitlines()) <= SCREEN
    assert protecting.state()["requests"].keys() == {"link"}
    assert protecting.state()["effects"] == {}


def test_all_flags_try_everything_and_fill_no_more_than_two_screens(protecting: Emulator, doctor: Doctor) -> None:
    done = doctor("--wrong-token", "--upload", protecting.serve(b"content"), "--delete-folder", "old", given="old\n")
    assert done.status == 0, done.out
    assert "download: GET the download URL: the file came" in done.out
    assert len(done.out.splitlines()) <= 2 * SCREEN
    effects = protecting.state()["effects"]
    assert (effects["upload"], effects["delete"]) == (1, 1)
    assert protecting.state()["folders"] == ["keep", "staging"]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_refused_argument_sends_nothing_and_exits_with_2(protecting: Emulator, doctor: Doctor, arguments: list[str]) -> None:
    folder_id = arguments[1]  # confirmed, if it is one
    done = doctor(*arguments, given="\n" if "-" in arguments else f"{folder_id}\n")
    assert (done.status, done.out) == (2, "")
    assert done.err.strip()
    assert protecting.state()["requests"] == {}
    assert protecting.state()["folders"] == ["keep", "old", "staging"]


@pytest.mark.parametrize("given", ["", "\n", "older\n"])
def test_a_deletion_that_is_not_confirmed_with_the_folders_id_sends_nothing(
    protecting: Emulator, doctor: Doctor, given: str
) -> None:
    done = doctor("--delete-folder", "old", given=given)
    assert (done.status, done.out) == (2, "")
    assert "This deletes folder 'old' with everything in it, permanently." in done.err
    assert protecting.state()["requests"] == {}


def test_a_url_from_standard_input_is_uploaded(emulator: Emulator, doctor: Doctor) -> None:
    source = emulator.serve(b"piped")
    done = doctor("--upload", "-", "--json", given=f"{source}\n")
    assert done.status == 0, done.err
    assert done.report["usable"] is True
    assert done.report["not_tried"] == ["--wrong-token", "--delete-folder ID"]
    assert [file["source"] for file in emulator.state()["files"]] == [source]


def test_a_mistyped_flag_does_not_print_the_credentials_beside_it(doctor: Doctor) -> None:
    done = doctor("--uplod", "https://me:c4n4ry@host/x")
    assert done.status == 2
    assert "c4n4ry" not in done.err


def test_ctrl_c_during_a_wait_prints_the_report_so_far(
    emulator: Emulator, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    done = doctor("--upload", f"{emulator.url}/no-such-source", "--json")
    assert done.status == 1, done.err
    assert "upload" in [step["name"] for step in done.report["steps"]]
    assert "interrupted" in done.report["verdict"]
    assert "The upload is queued. Waiting up to 300 s" in caplog.text  # before it waits


def test_a_file_that_does_not_come_in_time_is_reported(emulator: Emulator, doctor: Doctor) -> None:
    done = doctor("--upload", f"{emulator.url}/no-such-source", "--wait", "0", "--json")
    assert done.status == 1
    assert "because no link for the uploaded file was found in a response within 0 s" in done.report["verdict"]
    assert [step["seen"] for step in done.report["steps"] if step["name"] == "link"] == ["HTTP 404, NotFoundError"]
