from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from airflow_provider_cloudstore.batch.folder import PathFolder
from airflow_provider_cloudstore.batch.recording import Receipts, Status, Try
from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.exceptions import BatchStoppedError
from tests.unit.batch.folders import begun, digest_of, line, read


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
    folder = PathFolder(PLACES[place](str(tmp_path / "a" / "b")))
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


@pytest.mark.parametrize("place", ["path", "sftp"])
def test_a_full_disk_leaves_no_unfinished_part_and_is_no_reason_to_stop(tmp_path: Path, place: str) -> None:
    receipts = begun(PathFolder(PLACES[place](str(tmp_path))))
    receipts.write([line("1")])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            receipts.write([line("2", padding=100_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(list(tmp_path.iterdir())) == 2
    receipts.write([line("2", padding=100_000)])
    assert [digest for digest, _ in read(PathFolder(tmp_path), 2)] == [digest_of("1"), digest_of("2")]


@pytest.mark.parametrize("below", ["file", "file/a/b", "/proc/none"])
def test_a_local_folder_that_cannot_be_used_stops_the_batch_at_once(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BatchStoppedError, match=rf"receipts: .*{below}.*(?i:not a directory|No such file)") as error:
        begun(PathFolder(tmp_path / below))
    assert (error.value.cause, error.value.permanent, error.value.__suppress_context__) == ("receipts", True, True)


@pytest.mark.parametrize(
    ("place", "code", "raised"),
    [
        ("path", errno.EACCES, BatchStoppedError),
        ("path", errno.ENOENT, FileNotFoundError),
        ("sftp", errno.ENOENT, FileNotFoundError),
        ("sftp", errno.EACCES, PermissionError),  # credentials are renewed
    ],
)
def test_a_local_folder_that_may_not_be_written_stops_the_batch_at_any_write_and_what_else_is_refused_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int, raised: type[Exception]
) -> None:
    receipts = begun(PathFolder(PLACES[place](str(tmp_path))))

    def refuses(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", refuses)  # root may write wherever permissions forbid it
    monkeypatch.setattr(Elsewhere, "mv", refuses)
    with pytest.raises(raised, match=os.strerror(code)):
        receipts.write([line("1")])
    assert [path.name[:6] for path in tmp_path.iterdir()] == ["batch-"]


WRAPPED = RuntimeError("adlfs")
WRAPPED.__cause__ = type("ResourceNotFoundError", (Exception,), {})()


@pytest.mark.parametrize("error", [FileNotFoundError("The specified bucket does not exist"), WRAPPED], ids=repr)
def test_a_missing_bucket_stops_the_batch(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    path = UPath("memory://missing/receipts")
    monkeypatch.setattr(type(path.fs), "pipe_file", Mock(side_effect=error))
    with pytest.raises(BatchStoppedError, match="its bucket or container does not exist"):
        begun(PathFolder(path))
