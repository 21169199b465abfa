from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from airflow_provider_cloudstore.hooks.targets import atomic_write, object_path
from airflow_provider_cloudstore.protocol.errors import InvalidInputError


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


@pytest.fixture(params=["path", "storage_path", "memory", "transactional"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "path":
            yield tmp_path / "new" / "f", lambda: [*(tmp_path / "new").iterdir()], (tmp_path / "new" / "f").read_bytes
        case "storage_path":
            path = ObjectStoragePath(f"file://{tmp_path}/f")
            yield path, lambda: [*tmp_path.iterdir()], (tmp_path / "f").read_bytes
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
        sink.write(b"wrong")
        sink.restart()
        sink.write(b"he")
        sink.write(b"llo")
        assert not any(Path(str(name)).name == "f" for name in listed())
    assert content() == b"hello"
    assert len(listed()) == 1


def fail(path: Any, error: BaseException) -> None:
    with atomic_write(path) as sink:
        sink.write(b"new" * 10**6)
        raise error


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt()])
def test_a_failed_one_leaves_nothing_and_what_was_there_stays(target: Any, error: BaseException) -> None:
    path, listed, content = target
    for there in (False, True):
        if there:
            with atomic_write(path) as sink:
                sink.write(b"old")
        with pytest.raises(type(error)):
            fail(path, error)
        assert len(listed()) == there
    assert content() == b"old"


def test_a_symlink_stays_one_and_the_file_behind_it_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    with atomic_write(link) as file:
        file.write(b"new")
    assert (link.is_symlink(), real.read_bytes(), real.stat().st_mode & 0o777) == (True, b"new", 0o600)


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_file_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "t"
    if kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(target)
    before = target.stat().st_mode
    with pytest.raises(InvalidInputError, match="not a file"), atomic_write(target):
        pass
    assert target.stat().st_mode == before
    assert [*tmp_path.iterdir()] == [target]


def test_a_long_name_in_any_script_is_a_file(tmp_path: Path) -> None:
    with atomic_write(tmp_path / ("文" * 80)) as file:
        file.write(b"new")
    assert (tmp_path / ("文" * 80)).read_bytes() == b"new"


def test_a_scheme_whose_provider_lacks_its_library_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*arguments: Any) -> None:
        raise ImportError("s3fs")

    try:
        io = import_module("airflow.sdk.io.fs")
    except ImportError:  # before Airflow 3.1
        io = import_module("airflow.io")
    monkeypatch.setitem(io._register_filesystems(), "s3", lacking)
    with pytest.raises(InvalidInputError, match=r"receipts: no filesystem for 's3': check its spelling, or install .*\[s3fs\]"):
        object_path("s3://bucket/folder", "receipts")


def test_a_target_that_cannot_be_written_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InvalidInputError, match=rf"target '{tmp_path}/file/x' cannot be written \(.*\): check its folder"),
        atomic_write(tmp_path / "file" / "x"),
    ):
        pytest.fail("it was opened")
