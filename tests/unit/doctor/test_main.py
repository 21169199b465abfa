from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import eventually
from tests.unit.doctor.conftest import COMMAND, Doctor

slow = pytest.mark.slow  # a process of its own: make test-doctor
REFUSED = [
    ["--wait", "0"],
    ["--wait", "nan"],
    ["--wait", "86401"],
    ["--upload", ""],
    ["--upload", "file:///etc/passwd"],
    ["--upload", "{{ source }}"],
    ["--upload", "no url"],
    ["--delete-folder", "", "--yes"],
    ["--delete-folder", "0", "--yes"],
    ["--delete-folder", "/", "--yes"],
    ["--delete-folder", "%2e%2e", "--yes"],
    ["--delete-folder", "None", "--yes"],
    ["--delete-folder", "{{ folder }}", "--yes"],
    ["--delete-folder", "keep", "--yes"],
    ["--delete-folder", "Keep/", "--yes"],
    ["--delete-folder", "old"],  # without a terminal and without --yes
    ["--upload", "https://example.com/x", "--delete-folder", "0", "--yes"],
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


@contextmanager
def started(*arguments: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "--json", *arguments],
        stdin=stdin,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (a background job ignores it)
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # without the terminal of whoever runs the tests
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def typed(text: str, *arguments: str) -> tuple[int, str, str]:
    """Run the program on a terminal where a person types a line."""
    terminal, stdin = pty.openpty()
    try:
        os.write(terminal, text.encode())
        with started(*arguments, stdin=stdin) as process:
            out, err = process.communicate(timeout=60)
            return process.returncode, out, err
    finally:
        os.close(terminal)
        os.close(stdin)


def test_by_default_it_only_reads(protecting: Emulator, doctor: Doctor) -> None:
    done = doctor()
    assert done.status == 0, done.out
    assert done.report["usable"] is True
    assert protecting.state()["requests"].keys() == {"link"}
    assert protecting.state()["effects"] == {}
    assert done.report["not_tried"] == ["--wrong-token", "--upload URL", "--delete-folder ID"]


def test_all_flags_try_everything(protecting: Emulator, doctor: Doctor) -> None:
    source = protecting.serve(b"content")
    done = doctor("--wrong-token", "--upload", source, "--delete-folder", "old", "--yes", "--wait", "30")
    assert done.status == 0, done.out
    effects = protecting.state()["effects"]
    assert (effects["upload"], effects["delete"]) == (1, 1)
    assert protecting.state()["folders"] == ["keep", "staging"]
    assert done.report["not_tried"] == []


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_refused_argument_sends_nothing_and_exits_with_2(
    protecting: Emulator, doctor: Doctor, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = (done := doctor(*arguments)).status
        out, err = done.out, done.err
    except SystemExit as error:  # of argparse
        status = int(str(error.code))
        out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.strip()
    assert protecting.state()["requests"] == {}
    assert protecting.state()["folders"] == ["keep", "old", "staging"]


@slow
@pytest.mark.parametrize(
    ("id_typed", "status", "deleted"), [("old\n", 0, True), ("older\n", 2, False), ("\n", 2, False), ("\x04", 2, False)]
)
def test_a_deletion_is_confirmed_on_a_terminal_with_the_folders_id(
    protecting: Emulator, id_typed: str, status: int, deleted: bool
) -> None:
    returned, out, err = typed(id_typed, "--delete-folder", "old")
    assert returned == status, err
    assert "This deletes folder 'old' with everything in it, permanently." in err
    assert ("old" not in protecting.state()["folders"]) is deleted
    assert deleted or (out, protecting.state()["requests"]) == ("", {})
    assert not deleted or json.loads(out)["usable"]
    assert "Traceback" not in err


@slow
def test_an_upload_from_a_terminal_is_not_echoed(protecting: Emulator) -> None:
    source = protecting.serve(b"x") + "?sig=c4n4ry-sig-value"
    terminal, stdin = pty.openpty()
    try:
        with started("--upload", "-", "--wait", "30", stdin=stdin) as process:
            assert process.stderr is not None
            prompt = ""
            while not prompt.endswith("URL to upload: "):  # before it, the terminal still echoes
                prompt += process.stderr.read(1) or pytest.fail(prompt)
            os.write(terminal, f"{source}\n".encode())
            out, err = process.communicate(timeout=60)
        echoed = select.select([terminal], [], [], 0)[0]
    finally:
        os.close(terminal)
        os.close(stdin)
    assert process.returncode == 0, err
    assert not echoed
    assert "c4n4ry" not in out + err


@slow
def test_the_url_can_come_from_a_pipe(emulator: Emulator, program: Doctor) -> None:
    source = emulator.serve(b"piped")
    done = program("--upload", "-", "--wait", "30", given=f"{source}\n")
    assert done.status == 0, done.err
    assert [file["source"] for file in emulator.state()["files"]] == [source]
    assert [step["seen"] for step in done.report["steps"] if step["name"] == "download"] == ["the file came"]


@slow
def test_a_mistyped_flag_does_not_print_the_credentials_beside_it(program: Doctor) -> None:
    for arguments in (["--uplod", "https://me:c4n4ry@host/x"], ["--wait", "https://me:c4n4ry@host/x"]):
        done = program(*arguments)
        assert done.status == 2
        assert "c4n4ry" not in done.err


@slow
def test_an_empty_pipe_is_refused(emulator: Emulator, program: Doctor) -> None:
    done = program("--upload", "-")
    assert (done.status, done.out) == (2, "")
    assert emulator.state()["requests"] == {}


@slow
def test_ctrl_c_during_a_wait_prints_the_report_so_far(emulator: Emulator) -> None:
    with started("--upload", f"{emulator.url}/no-such-source", "--wait", "600") as process:
        eventually(lambda: emulator.state()["requests"].get("link", 0) >= 3, 60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 1, err
    report = json.loads(out)
    assert "upload" in [step["name"] for step in report["steps"]]
    assert "interrupted" in report["verdict"]
    assert report["usable"] is False
    assert "The upload is queued. Waiting up to 600 s for file f" in err  # at once: a killed process prints no report
    assert "Traceback" not in err


@slow
def test_people_get_a_text_of_one_screen(emulator: Emulator, program: Doctor) -> None:
    done = program(as_json=False)
    assert done.status == 0
    assert done.out.startswith("Tasks can rely on connection")
    assert len(done.out.splitlines()) <= 24
    assert max(map(len, done.out.splitlines())) <= 80
