from __future__ import annotations

import logging
import os
import pickle
from importlib.metadata import entry_points
from pathlib import Path

import fsspec
import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from airflow.providers.common.io.operators.file_transfer import FileTransferOperator

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.fs import cloudstore
from airflow_provider_cloudstore.fs.cloudstore import CloudStoreFileSystem
from airflow_provider_cloudstore.protocol import errors

DATA = os.urandom(300_000)


@pytest.fixture
def fs(emulator: Emulator) -> CloudStoreFileSystem:
    emulator.put_file(DATA, "f1")
    return CloudStoreFileSystem()


def tokens(emulator: Emulator) -> list[str]:
    return [token["token"] for token in emulator.state()["tokens"]]


def test_fsspec_finds_it_by_its_entry_point(fs: CloudStoreFileSystem) -> None:
    assert [point.load() for point in entry_points(group="fsspec.specs", name="cloudstore")] == [CloudStoreFileSystem]
    with fsspec.open("cloudstore://cloudstore_default@/f1") as file:
        assert file.read() == DATA
    with fsspec.open("cloudstore:///f1") as file:
        assert file.read(3) == DATA[:3]


@pytest.mark.parametrize("url", ["cloudstore://cloudstore_default@/f1", "cloudstore://cloudstore_default@f1"])
def test_airflow_finds_it_by_the_provider(fs: CloudStoreFileSystem, tmp_path: Path, url: str) -> None:
    path = ObjectStoragePath(url)
    assert isinstance(path.fs, CloudStoreFileSystem)
    assert path.exists()
    assert path.is_file()
    assert not path.is_dir()
    assert path.size() == path.stat().st_size == len(DATA)
    assert path.read_bytes() == DATA
    with path.open("rb") as file:
        file.seek(1000)
        assert file.read(10) == DATA[1000:1010]
    assert ObjectStoragePath(str(path)).read_block(5, 10) == DATA[5:15]


def test_airflows_own_transfer_copies_a_file(fs: CloudStoreFileSystem, tmp_path: Path) -> None:
    source, target = "cloudstore://cloudstore_default@/f1", tmp_path / "folder" / "f"
    FileTransferOperator(task_id="t", src=source, dst=f"file://{target}", overwrite=True).execute({})
    assert target.read_bytes() == DATA
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/f", DATA)
    FileTransferOperator(task_id="t", src=source, dst=str(tmp_path / "g")).execute({})
    assert (tmp_path / "g").read_bytes() == DATA


def test_parts_and_details_of_a_file(fs: CloudStoreFileSystem) -> None:
    found = fs.info("f1")
    assert (found["name"], found["size"], found["type"]) == ("f1", len(DATA), "file")
    assert found["etag"]
    assert fs.ls("f1", detail=False) == ["f1"]
    assert fs.cat_file("f1", 10, 20) == DATA[10:20]
    assert fs.cat_file("f1", -10) == DATA[-10:]
    assert fs.cat("f1") == DATA
    assert fs.ukey("f1") == fs.ukey("f1")
    assert fs.isfile("f1")
    assert not fs.isdir("f1")


def test_an_empty_file_can_be_read(emulator: Emulator, fs: CloudStoreFileSystem, tmp_path: Path) -> None:
    emulator.put_file(b"", "empty")
    assert fs.cat("empty") == b""
    fs.get("empty", str(tmp_path / "empty"))
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_file_that_is_not_there_is_not_found_and_no_other_error_says_so(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    assert not fs.exists("nope")
    for work in (lambda: fs.open("nope"), lambda: fs.cat("nope"), lambda: fs.get_file("nope", "/tmp/nope")):
        with pytest.raises(FileNotFoundError, match="nope"):
            work()
    emulator.fault("status", operation="link", status=403)
    with pytest.raises(errors.PermissionDeniedError):
        fs.exists("f1")


def test_it_cannot_be_written(fs: CloudStoreFileSystem) -> None:
    with pytest.raises(OSError, match="read"):
        fs.open("f1", "wb")


def test_a_link_that_ends_between_two_blocks_is_replaced(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    with fs.open("f1", block_size=50_000) as file:
        assert file.read(10) == DATA[:10]
        emulator.expire_links()
        emulator.fault("drop_body", operation="download", after=1_000)
        assert file.read() == DATA[10:]
    assert emulator.state()["requests"]["link"] == 2


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    with fs.open("f1", block_size=50_000) as file:
        assert file.read(10) == DATA[:10]
        emulator.put_file(DATA[::-1], "f1")
        with pytest.raises(errors.FileChangedError):
            file.read()


def test_no_link_is_shown_or_pickled(emulator: Emulator, fs: CloudStoreFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with fs.open("f1", block_size=50_000) as file:
        file.read(10)
        shown = f"{file!r} {file} {vars(file)} {fs!r} {vars(fs)} {fs.to_json()} {file.details}"
        pickled = pickle.dumps(file) + pickle.dumps(fs)
        assert pickle.loads(pickled).read(5) == DATA[10:15]
        emulator.fault("status", operation="download", status=402, times=0)
        with pytest.raises(errors.RequestRejectedError) as failed:
            file.read()
    assert len(tokens(emulator)) == 2
    for token in tokens(emulator):
        assert token.encode() not in pickled
        assert token not in f"{shown} {failed.value!r} {failed.value} {vars(failed.value)} {caplog.text}"


def test_each_connection_is_a_filesystem_of_its_own() -> None:
    assert cloudstore.get_fs("a") != cloudstore.get_fs("b")
    assert cloudstore.get_fs(None).conn_id == "cloudstore_default"
    assert cloudstore.get_fs("a", {"skip_instance_cache": True}).fsid == "cloudstore-a"


def test_pandas_reads_it(emulator: Emulator) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not in this environment")
    emulator.put_file(b"a,b\n1,2\n", "table")
    assert pandas.read_csv("cloudstore://cloudstore_default@/table").to_dict("list") == {"a": [1], "b": [2]}


@pytest.mark.parametrize("work", ["mkdir", "makedirs", "touch", "rm", "rm_file"])
def test_nothing_can_be_written_or_removed(work: str) -> None:
    with pytest.raises(OSError, match="can only be read"):
        getattr(cloudstore.get_fs(None), work)("f1")
