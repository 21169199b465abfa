from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from upath import UPath

from airflow_provider_cloudstore.batch.folder import PathFolder
from airflow_provider_cloudstore.batch.recording import Receipts, Status, Try
from airflow_provider_cloudstore.exceptions import BatchStoppedError
from tests.unit.batch.folders import SCOPE, SftpLike, begun, digest_of, line, queued, read

ROOT = Path(__file__).resolve().parent.parent.parent.parent

PLACES: dict[str, Callable[[str], Any]] = {
    "path": Path,
    "local": ObjectStoragePath,
    "memory": lambda at: UPath(f"memory://bucket{at}"),
    "sftp": SftpLike,
}


@pytest.mark.parametrize("place", PLACES)
def test_the_receipts_of_several_tries_are_read_in_order_and_the_folder_need_not_exist(tmp_path: Path, place: str) -> None:
    folder = PathFolder(PLACES[place](str(tmp_path / "a" / "b")))
    for number in (1, 2, 10):
        receipts = Receipts(folder, Try(SCOPE, number))
        receipts.begin()
        receipts.write([line(f"{number}"), line("\ud800", "failed")])
        receipts.write([])
        receipts.write([line(f"{number}", "unknown")])
    found = read(begun(folder, 11))
    assert [digest for digest, _ in found[::3]] == [digest_of(number) for number in ("1", "2", "10")]
    assert [status for _, status in found] == [Status.QUEUED, Status.FAILED, Status.UNKNOWN] * 3
    another = Receipts(folder, Try(("dag", "another run")))
    another.begin()
    assert read(another) == []


@pytest.mark.parametrize("kind", [Path, ObjectStoragePath, SftpLike])
def test_a_full_disk_leaves_no_unfinished_part_and_is_no_reason_to_stop(tmp_path: Path, kind: Any) -> None:
    receipts = begun(PathFolder(kind(str(tmp_path))))
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
    assert read(begun(PathFolder(tmp_path), 2)) == queued("1", "2")


def a_file_in_its_place(path: Path) -> Path:
    path.write_text("")
    return path


@pytest.mark.parametrize("kind", [Path, ObjectStoragePath])
@pytest.mark.parametrize(
    ("make", "reason"),
    [(a_file_in_its_place, "Not a directory"), (lambda path: path / ("x" * 300), "File name too long")],
)
def test_a_local_folder_that_cannot_be_used_stops_the_batch_at_once(tmp_path: Path, kind: Any, make: Any, reason: str) -> None:
    path = make(tmp_path / "place")
    with pytest.raises(BatchStoppedError, match=rf"receipts: {path}/batch-\w+\.json cannot be used: {reason}") as error:
        begun(PathFolder(kind(str(path))))
    assert (error.value.cause, error.value.permanent, error.value.__suppress_context__) == ("receipts", True, True)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_may_not_be_written_stops_the_batch_at_the_first_write_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    receipts = begun(PathFolder(tmp_path))

    def refuses(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", refuses)  # root may write wherever permissions forbid it
    with pytest.raises(BatchStoppedError, match=f"{tmp_path}/part-.* cannot be used: {os.strerror(code)}"):
        receipts.write([line("1")])
    assert [path.name[:6] for path in tmp_path.iterdir()] == ["batch-"]


def test_what_an_object_store_refuses_stays_its_own_error_because_credentials_are_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = UPath("memory://bucket/refused")
    receipts = begun(PathFolder(path))

    def refuses(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "AccessDenied")

    monkeypatch.setattr(type(path.fs), "pipe_file", refuses)
    with pytest.raises(PermissionError, match="AccessDenied"):
        receipts.write([line("1")])


class ResourceNotFoundError(Exception):
    pass


@pytest.mark.parametrize("error", [FileNotFoundError("The specified bucket does not exist"), RuntimeError("adlfs")])
def test_a_missing_bucket_stops_the_batch(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    path = UPath("memory://missing/receipts")
    if isinstance(error, RuntimeError):
        error.__cause__ = ResourceNotFoundError()

    def refuses(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(path.fs), "pipe_file", refuses)
    with pytest.raises(BatchStoppedError, match=r"receipts: memory:.*bucket or container does not exist") as stopped:
        begun(PathFolder(path))
    assert (stopped.value.cause, stopped.value.__suppress_context__) == ("receipts", True)
