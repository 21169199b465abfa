from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Status, Try
from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.exceptions import BatchFailedError, BatchInterruptedError, BatchSupersededError
from tests.unit.batch.folders import SCOPE, MemoryFolder, begun, digest_of, line, read


def test_an_older_try_and_another_process_of_the_same_try_are_stopped() -> None:
    folder = MemoryFolder()
    first, second = (Receipts(folder, Try(SCOPE)) for _ in range(2))
    first.begin()
    second.begin()
    for superseded, newer in ((first, 1), (second, 2)):
        if newer == 2:
            begun(folder, 2)
        with pytest.raises(BatchSupersededError, match=f"the owner file of try {newer}"):
            superseded.write([line("1")])
    with pytest.raises(BatchInterruptedError):
        begun(folder, 1)
    assert len(folder.files) == 1


@pytest.mark.parametrize("is_local", [True, False])
def test_a_later_try_that_finds_no_owner_file_refuses_a_local_folder_and_warns_of_a_store(
    is_local: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = MemoryFolder(is_local=is_local)
    refused = pytest.raises(BatchFailedError, match="no receipts of an earlier try in s3://b/r: is the folder shared")
    with refused if is_local else nullcontext():
        begun(folder, 2)
    assert bool(folder.files) is not is_local
    assert caplog.messages == ([] if is_local else ["No receipts of an earlier try in s3://b/r: this try sends every URL."])


def test_a_folder_that_is_emptied_while_a_batch_runs_stops_it() -> None:
    folder = MemoryFolder()
    receipts = begun(folder)
    folder.files.clear()
    with pytest.raises(BatchFailedError, match="s3://b/r was removed or emptied while the batch ran"):
        receipts.write([])
    assert folder.files == {}


def test_the_id_of_a_batch_differs_with_each_part_of_its_scope_and_not_with_the_try() -> None:
    scopes = [("dag", "run", "task", "0"), ("dag", "run", "task", "1"), ("dag", "ru", "ntask", "0")]
    assert len({Try(scope).batch for scope in scopes}) == len(scopes)
    assert Try(SCOPE, 1).batch == Try(SCOPE, 2).batch


QUEUED = line("1")
DIGEST = digest_of("1").hex()
DAMAGES = {
    "cut": QUEUED[:-20],
    "empty line": "",
    "bytes": "\xff",
    "cut digest": QUEUED.replace(DIGEST, DIGEST[:-1]),
    "unknown status": QUEUED.replace("queued", "sent"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_part_is_named_and_is_no_outage(damage: str) -> None:
    names = [f"part-{Try(SCOPE).batch}-0001-{number:08d}-aa.jsonl" for number in range(3)]
    files = {name: f"{QUEUED}\n".encode() for name in names}
    files[names[1]] = f"{QUEUED}\n{damage}\n{QUEUED}\n".encode("latin-1")
    with pytest.raises(BatchFailedError, match=f"receipts: s3://b/r/{names[1]} is damaged"):
        read(MemoryFolder(files), 2)


# --- the folder


class Elsewhere(LocalFileSystem):
    """A store with folders that is not on this machine, as the provider sees it."""

    protocol = "sftp"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:  # which fsspec before 2025 does for "file" only
        return str(super()._strip_protocol(str(path).removeprefix("sftp://")))


fsspec.register_implementation("sftp", Elsewhere, clobber=True)
PLACES: dict[str, Callable[[str], Any]] = {
    "path": Path,
    "local": ObjectStoragePath,
    "memory": lambda at: UPath(f"memory://bucket{at}"),
    "sftp": lambda at: UPath(f"sftp://{at}"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_receipts_of_several_tries_are_read_in_order_and_the_folder_need_not_exist(tmp_path: Path, place: str) -> None:
    folder = Folder(PLACES[place](str(tmp_path / "a" / "b")))
    tries = (1, "aa"), (2, "bb"), (2, "aa"), (10, "aa")  # the second one ran twice
    for number, process in tries:
        receipts = begun(folder, number, process)
        receipts.write([line(f"{number} {process}"), line("\ud800", "failed")])
        receipts.write([])
        receipts.write([line(f"{number} {process}", "unknown")])
    found = read(folder, 11)
    assert [digest for digest, _ in found[::3]] == [digest_of(f"{number} {process}") for number, process in tries]
    assert [status for _, status in found] == [Status.QUEUED, Status.FAILED, Status.UNKNOWN] * 4
    assert Receipts(folder, Try(("dag", "another run"))).begin() == []


@pytest.mark.parametrize("below", ["file", "file/a/b"])
def test_a_local_folder_that_cannot_be_used_stops_the_batch_at_once(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BatchFailedError, match=rf"receipts: .*{below}.*(?i:not a directory|file exists)") as error:
        begun(Folder(tmp_path / below))
    assert error.value.__suppress_context__


@pytest.mark.parametrize(
    ("place", "code", "raised"),
    [
        ("path", errno.EACCES, BatchFailedError),
        ("path", errno.ENOENT, FileNotFoundError),
        ("sftp", errno.EACCES, PermissionError),  # credentials are renewed
    ],
)
def test_a_local_folder_that_may_not_be_written_stops_the_batch_at_any_write_and_what_else_is_refused_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int, raised: type[Exception]
) -> None:
    receipts = begun(Folder(PLACES[place](str(tmp_path))))

    def refuses(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", refuses)  # root may write wherever permissions forbid it
    monkeypatch.setattr(Elsewhere, "mv", refuses)
    with pytest.raises(raised, match=os.strerror(code)):
        receipts.write([line("1")])
    assert [path.name[:6] for path in tmp_path.iterdir()] == ["batch-"]
