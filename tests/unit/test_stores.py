from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.stores import atomic_write


class StoredPath:
    """A path on one of fsspec's stores, as ``atomic_write`` sees an ``ObjectStoragePath``."""

    def __init__(self, fs: Any, protocol: str, path: str) -> None:
        self.fs, self.protocol, self.path = fs, protocol, path


class Upload(AbstractBufferedFile):  # type: ignore[misc]
    """An upload in parts that nobody sees before it is committed, as s3fs and gcsfs have it."""

    def _initiate_upload(self) -> None:
        self.parts: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        assert not self.autocommit
        self.parts.append(self.buffer.getvalue())
        return True

    def commit(self) -> None:
        assert self.closed
        self.fs.store[self.path] = b"".join(self.parts)

    def discard(self) -> None:
        self.parts = []


class ObjectStore(AbstractFileSystem):  # type: ignore[misc]
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, bytes] = {}

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Upload:
        return Upload(self, path, mode, **kwargs)


@pytest.fixture(params=["path", "memory", "transactional"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "path":
            yield tmp_path / "new" / "f", lambda: [*(tmp_path / "new").iterdir()], (tmp_path / "new" / "f").read_bytes
        case "transactional":
            store = ObjectStore()
            yield StoredPath(store, "s3", "bucket/f"), lambda: [*store.store], lambda: store.store["bucket/f"]
        case kind:
            fs = fsspec.filesystem("memory", skip_instance_cache=True)
            fs.store.clear()
            yield StoredPath(fs, kind, "/bucket/f"), lambda: fs.find("/"), lambda: fs.cat_file("/bucket/f")
            fs.store.clear()


def test_a_file_is_there_whole_once_the_block_ends(target: Any) -> None:
    path, listed, content = target
    with atomic_write(path) as sink:
        sink.restart()
        sink.write(b"wrong and longer")
        sink.restart()
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


@pytest.mark.parametrize("refused", ["fchmod", "fsync", "rm"])
@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL])
def test_a_mounted_share_that_has_no_modes_no_sync_or_keeps_parts_can_be_written_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, code: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(LocalFileSystem if refused == "rm" else os, refused, refuse)
    for number in (1, 2):
        (tmp_path / ".f.task-1.part").write_bytes(b"of an earlier try")
        with atomic_write(tmp_path / "f", ["task-1", "task-2"]) as file:
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


def test_a_retry_removes_the_parts_of_lower_tries_of_its_task_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / ("f" * 255)
    killed: list[Any] = []  # collected, they would end
    for tries in (["other-1"], ["task-1"], ["task-1", "task-2"], ["task-1", "task-2", "task-3", "task-4"]):
        killed.append(atomic_write(path, tries))
        killed[-1].__enter__().write(b"old")
    as_third = ["task-1", "task-2", "task-3"]
    with atomic_write(path, as_third) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    parts = sorted(one.name.removeprefix(f".{'f' * 100}.") for one in tmp_path.iterdir() if one != path)
    assert parts == ["other-1.part", "task-4.part"]


def test_two_downloads_of_one_try_to_one_target_have_parts_of_their_own(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "f", ["task-1"]) as one:
        one.write(b"one")
        with atomic_write(tmp_path / "f", ["task-1"]) as two:
            two.write(b"two")
        assert (tmp_path / "f").read_bytes() == b"two"
    assert (tmp_path / "f").read_bytes() == b"one"
    assert len([*tmp_path.iterdir()]) == 1


def overtaken(path: Path) -> None:
    """Write as the first try, which freezes while the second one writes the target."""
    with atomic_write(path, ["task-1"]) as frozen:
        frozen.write(b"old")
        with atomic_write(path, ["task-1", "task-2"]) as file:
            file.write(b"new")
        frozen.write(b"old")


def test_an_older_try_that_thaws_fails_and_leaves_the_target_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"-1\.part"):
        overtaken(tmp_path / "f")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"new"]
