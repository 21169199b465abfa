from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.stores import atomic_write, resolve_target


class Store(MemoryFileSystem):  # type: ignore[misc]
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        super().put_file(lpath, rpath)

    def content(self) -> dict[str, bytes]:
        return {path: self.cat_file(path) for path in self.find("/")}


class StoredPath:
    """A path on one of fsspec's stores, as ``atomic_write`` sees an ``ObjectStoragePath``."""

    def __init__(self, protocol: str) -> None:
        self.fs, self.protocol, self.path = Store(), protocol, "/bucket/f"


@pytest.fixture(params=["local", "s3", "sftp"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A path, and what yields all contents beside it."""
    if request.param == "local":
        folder = tmp_path / "new"
        return folder / "f", lambda: [one.read_bytes() for one in folder.iterdir()]
    path = StoredPath(request.param)
    return path, lambda: [*path.fs.content().values()]


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which is empty after each test."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not [*folder.iterdir()]


def write(path: Any, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


def interrupt(path: Any) -> None:
    with atomic_write(path) as file:
        file.write(b"new" * 10**6)
        raise KeyboardInterrupt


def test_a_file_is_complete_or_as_it_was(target: Any) -> None:
    path, contents = target
    with pytest.raises(KeyboardInterrupt):
        interrupt(path)
    assert contents() == []
    for content in (b"old", b"new and longer"):
        write(path, content)
        with pytest.raises(KeyboardInterrupt):
            interrupt(path)
        assert contents() == [content]


def test_a_download_may_start_over_and_read_what_it_wrote(target: Any) -> None:
    path, contents = target
    with atomic_write(path) as file:
        file.write(b"wrong and longer")
        file.seek(0)
        file.truncate()
        file.write(b"hello")
        file.seek(0)
        assert file.read() == b"hello"
    assert contents() == [b"hello"]


@pytest.mark.parametrize("step", ["put_file", "mv"])
def test_a_store_that_shows_incomplete_files_has_them_under_another_name(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(fs: Store, _: str, part: str, **options: Any) -> None:
        if step == "put_file":
            fs.pipe_file(part, b"ne")
        raise OSError

    path = StoredPath("sftp")
    write(path, b"old")
    monkeypatch.setattr(Store, step, fail)
    with pytest.raises(OSError):  # noqa: PT011  (has no text)
        write(path, b"new")
    assert path.fs.content() == {"/bucket/f": b"old"}


def test_the_bytes_are_on_the_disk_before_the_file_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append((os.fstat(number).st_size, (tmp_path / "f").exists())))
    write(tmp_path / "f", b"new")
    assert synced == [(3, False)]


def test_a_symlink_stays_one_and_the_file_behind_it_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    write(link, b"new")
    assert (link.is_symlink(), real.read_bytes(), real.stat().st_mode & 0o777) == (True, b"new", 0o600)


@pytest.mark.parametrize(
    ("refused", "code", "content"),
    [
        ("fchmod", errno.EPERM, b"new"),
        ("fsync", errno.EINVAL, b"new"),
        ("fsync", errno.ENOSPC, b"old"),  # what could not be synced is no file
    ],
)
def test_a_mounted_share_needs_neither_modes_nor_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, code: int, content: bytes
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    write(tmp_path / "f", b"old")
    monkeypatch.setattr(os, refused, refuse)
    if content == b"old":
        with pytest.raises(OSError, match=os.strerror(code)):
            write(tmp_path / "f", b"new")
    else:
        write(tmp_path / "f", b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [content]


def test_a_folder_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"is not a file \(end the path of a folder with '/'\)"):
        resolve_target(tmp_path, "f1")
