from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.stores import atomic_write


class StoredPath:
    """A path on one of fsspec's stores, as ``atomic_write`` sees an ``ObjectStoragePath``."""

    def __init__(self, fs: Any, protocol: str, path: str) -> None:
        self.fs, self.protocol, self.path = fs, protocol, path


@pytest.fixture(params=["path", "memory", "sftp"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "path":
            yield tmp_path / "new" / "f", lambda: [*(tmp_path / "new").iterdir()], (tmp_path / "new" / "f").read_bytes
        case kind:
            fs = fsspec.filesystem("memory", skip_instance_cache=True)
            fs.store.clear()
            yield StoredPath(fs, kind, "/bucket/f"), lambda: fs.find("/"), lambda: fs.cat_file("/bucket/f")
            fs.store.clear()


def test_a_file_is_there_whole_once_the_block_ends(target: Any) -> None:
    path, listed, content = target
    with atomic_write(path) as sink:
        sink.write(b"he")
        sink.write(b"llo")
        assert not any(Path(str(name)).name == "f" for name in listed())
    assert content() == b"hello"
    assert len(listed()) == 1


def interrupt(path: Any) -> None:
    with atomic_write(path) as sink:
        sink.write(b"new" * 10**6)
        raise KeyboardInterrupt


def test_a_failed_one_leaves_nothing_and_what_was_there_stays(target: Any) -> None:
    path, listed, content = target
    with pytest.raises(KeyboardInterrupt):
        interrupt(path)
    assert not listed()
    with atomic_write(path) as sink:
        sink.write(b"old")
    with pytest.raises(KeyboardInterrupt):
        interrupt(path)
    assert (len(listed()), content()) == (1, b"old")


def test_the_bytes_are_on_the_disk_before_the_file_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append((os.fstat(number).st_size, (tmp_path / "f").exists())))
    with atomic_write(tmp_path / "f") as file:
        file.write(b"new")
    assert synced == [(3, False)]


def test_a_symlink_stays_one_and_the_file_behind_it_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    with atomic_write(link) as file:
        file.write(b"new")
    assert (link.is_symlink(), real.read_bytes(), real.stat().st_mode & 0o777) == (True, b"new", 0o600)


@pytest.mark.parametrize("refused", ["fchmod", "fsync"])
@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL])
def test_a_mounted_share_that_has_no_modes_or_no_sync_can_be_written_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, code: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, refused, refuse)
    for number in (1, 2):
        with atomic_write(tmp_path / "f") as file:
            file.write(b"%d" % number)
        assert (tmp_path / "f").read_bytes() == b"%d" % number


def test_bytes_that_could_not_be_synced_are_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), atomic_write(tmp_path / "f") as file:
        file.write(b"new")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("below", ["file", "file/a/b", "/dev/null/x", "x" * 300])
def test_a_target_that_can_never_be_created_is_an_error_with_its_path(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=rf"{below}/f' cannot be created: .*; nothing was sent") as refused:
        interrupt(tmp_path / below / "f")
    assert refused.value.__suppress_context__ is (refused.value.__context__ is not None)
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_a_folder_is_refused_and_stays(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"is not a file \(end the path of a folder with '/'\)"), atomic_write(tmp_path):
        pass
    assert tmp_path.is_dir()
    assert not [*tmp_path.iterdir()]


def test_two_downloads_to_one_target_do_not_mix(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "f") as one:
        one.write(b"one")
        with atomic_write(tmp_path / "f") as two:
            two.write(b"two")
        assert (tmp_path / "f").read_bytes() == b"two"
    assert (tmp_path / "f").read_bytes() == b"one"
    assert len([*tmp_path.iterdir()]) == 1


def test_a_store_that_shows_incomplete_files_gets_the_name_last_and_keeps_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("memory", skip_instance_cache=True)
    fs.store.clear()
    moved: list[list[str]] = []

    def refuse(*paths: str) -> None:
        moved.append([*paths, *fs.find("/")])
        raise OSError("no")

    monkeypatch.setattr(fs, "mv", refuse)
    with pytest.raises(OSError, match="no"), atomic_write(StoredPath(fs, "sftp", "/folder/f")) as file:
        file.write(b"new")
    ((part, target, *there),) = moved
    assert (target, there) == ("/folder/f", [part])
    assert not fs.find("/")
