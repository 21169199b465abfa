from __future__ import annotations

import errno
import logging
import os
import pickle
import random
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pytest
from upath import UPath

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.fs import cloudstore
from airflow_provider_cloudstore.fs.cloudstore import CloudStoreFile, CloudStoreFileSystem
from airflow_provider_cloudstore.fs.paths import CloudStorePath
from airflow_provider_cloudstore.hooks import file_reader
from airflow_provider_cloudstore.protocol.file_uris import path_segment
from tests.support import eventually

DATA = b"".join(struct.pack(">Q", number) for number in range(40_000))  # every eight bytes are others


@pytest.fixture
def fs(emulator: Emulator) -> CloudStoreFileSystem:
    emulator.put_file(DATA, "f1")
    return CloudStoreFileSystem()


@pytest.fixture
def opened(fs: CloudStoreFileSystem) -> Iterator[CloudStoreFile]:
    with fs.open("f1", block_size=50_000) as file:
        yield file


def test_fsspec_finds_it_by_its_entry_point(fs: CloudStoreFileSystem) -> None:
    assert [point.load() for point in entry_points(group="fsspec.specs", name="cloudstore")] == [CloudStoreFileSystem]
    for url in ("cloudstore://cloudstore_default@/f1", "cloudstore:///f1"):
        with fsspec.open(url) as file:
            assert file.read() == DATA


@pytest.mark.parametrize("url", ["cloudstore://cloudstore_default@/f1", "cloudstore://cloudstore_default@f1"])
def test_airflow_finds_it_by_the_provider(fs: CloudStoreFileSystem, url: str) -> None:
    path = ObjectStoragePath(url)
    assert isinstance(path.fs, CloudStoreFileSystem)
    assert (path.exists(), path.is_file(), path.is_dir()) == (True, True, False)
    assert path.size() == path.stat().st_size == len(DATA)
    assert path.read_bytes() == DATA
    with path.open("rb") as file:
        file.seek(1000)
        assert file.read(10) == DATA[1000:1010]
    assert ObjectStoragePath(str(path)).read_block(5, 10) == DATA[5:15]


def test_parts_and_details_of_a_file(fs: CloudStoreFileSystem) -> None:
    found = fs.info("f1")
    assert (found["name"], found["size"], found["type"]) == ("/f1", len(DATA), "file")
    assert found["etag"]
    assert (fs.ls("f1"), fs.ls("f1", detail=False)) == ([found], ["/f1"])
    assert (fs.cat_file("f1", 10, 20), fs.tail("f1", 10)) == (DATA[10:20], DATA[-10:])
    assert cloudstore.get_fs("a") != cloudstore.get_fs("b")
    assert cloudstore.get_fs(None, {"skip_instance_cache": True}).fsid == "cloudstore-cloudstore_default"


def test_a_file_that_is_not_there_is_not_found_and_no_other_error_says_so(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    assert not fs.exists("nope")
    for work in (fs.open, fs.modified, lambda path: fs.get_file(path, "/tmp/nope")):
        with pytest.raises(FileNotFoundError, match="nope"):
            work("nope")
    emulator.fault("status", operation="link", status=403)
    with pytest.raises(exceptions.PermissionDeniedError):
        fs.exists("f1")


def test_a_link_that_ends_between_two_blocks_is_replaced(emulator: Emulator, opened: CloudStoreFile) -> None:
    assert opened.read(10) == DATA[:10]
    emulator.expire_links()
    assert opened.read() == DATA[10:]
    assert emulator.state()["requests"]["link"] == 2


def test_blocks_share_a_link_for_seconds_only(
    emulator: Emulator, fs: CloudStoreFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fs.open("f1", block_size=50_000, cache_type="none") as file:
        for _ in range(3):
            file.read(10)
        assert emulator.state()["requests"]["link"] == 1
        monkeypatch.setattr(file_reader, "_LINK_SECONDS", 0.0)
        for _ in range(3):
            file.read(10)
    assert emulator.state()["requests"]["link"] == 4


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(emulator: Emulator, opened: CloudStoreFile) -> None:
    assert opened.read(10) == DATA[:10]
    emulator.put_file(DATA[::-1], "f1")
    with pytest.raises(exceptions.FileChangedError):
        opened.read()
    with pytest.raises(exceptions.FileChangedError):  # a copy for another process must not mix versions, either
        pickle.loads(pickle.dumps(opened))


def test_no_link_is_shown_or_pickled(emulator: Emulator, opened: CloudStoreFile, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    opened.read(10)
    fs = opened.fs
    shown = f"{opened!r} {opened} {vars(opened)} {fs!r} {vars(fs)} {fs.to_json()} {opened.details}"
    pickled = pickle.dumps(opened) + pickle.dumps(fs)
    emulator.fault("status", operation="download", status=402, times=0)
    with pytest.raises(exceptions.RequestRejectedError) as failed:
        opened.read()
    tokens = [token["token"] for token in emulator.state()["tokens"]]
    assert tokens
    for token in tokens:
        assert token.encode() not in pickled
        assert token not in f"{shown} {failed.value!r} {failed.value} {vars(failed.value)} {caplog.text}"


def test_the_time_of_a_file_is_the_hosts_and_unsupported_where_it_sends_none(
    emulator: Emulator, fs: CloudStoreFileSystem
) -> None:
    assert abs(fs.modified("f1") - datetime.now(UTC)) < timedelta(minutes=1)
    for header in ("Sun, 06 Nov 1994 10:49:37 +0200", "yesterday", ""):
        headers = {"Last-Modified": header, "Content-Range": "bytes 0-0/5"}
        emulator.fault("status", operation="download", status=206, headers=headers, body="x")
    found = fs.modified("f1")
    assert (found, found.tzinfo) == (datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC), UTC)
    for _ in ("yesterday", ""):
        with pytest.raises(NotImplementedError, match="Last-Modified"):
            fs.modified("f1")


@pytest.mark.parametrize(
    "work",
    [
        lambda fs: fs.ls("cloudstore://cloudstore_default@/"),
        lambda fs: fs.glob("folder/*.csv"),
        lambda fs: fs.get("*", "/nowhere/"),
        lambda fs: list(ObjectStoragePath("cloudstore://cloudstore_default@/").iterdir()),
    ],
)
def test_what_the_service_cannot_list_is_unsupported_and_never_empty(
    fs: CloudStoreFileSystem, work: Callable[[CloudStoreFileSystem], Any]
) -> None:
    with pytest.raises(NotImplementedError, match="cannot list files"):
        work(fs)


@pytest.mark.parametrize("path", ["None", "{{ file_id }}", "%20", "a%0Ab"])
def test_what_no_file_can_have_as_its_id_is_refused_before_anything_is_sent(
    emulator: Emulator, fs: CloudStoreFileSystem, path: str
) -> None:
    for work in (fs.exists, fs.open, lambda path: fs.get_file(path, "/nowhere/x")):
        with pytest.raises(exceptions.InvalidInputError):
            work(path)
    assert emulator.state()["requests"] == {}


@pytest.mark.parametrize("file_id", ["/a/b/", "a%2Fb", "ü", "f?*[1]#", "../../x", "c:\\x", "a@b"])
def test_an_id_is_one_percent_encoded_segment_in_paths_as_in_asset_uris(emulator: Emulator, file_id: str) -> None:
    emulator.put_file(DATA, file_id)
    path = ObjectStoragePath(f"cloudstore://cloudstore_default@/{quote(file_id, safe='')}")
    assert ObjectStoragePath(str(path)).read_bytes() == DATA
    fs = CloudStoreFileSystem()
    stripped = fs._strip_protocol(f"cloudstore:///{quote(file_id, safe='')}")
    assert (
        stripped
        == fs._strip_protocol(stripped)
        == fs._strip_protocol(fs.unstrip_protocol(stripped))
        == f"/{path_segment(file_id)}"
    )
    assert fs.cat(stripped) == DATA


@pytest.mark.parametrize("work", [fsspec.open, lambda uri: CloudStoreFileSystem().exists(uri)])
def test_an_asset_uri_is_no_path_and_the_error_says_what_to_write(work: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match=r"asset URI.*write cloudstore://CONNECTION@/f1"):
        work("cloudstore://files.example.com/eu/f1")


@pytest.mark.parametrize("file_id", ["../../x", "C:\\x", "%2e%2e", "~root", "a b"])
def test_a_copy_into_a_folder_is_named_by_the_id_and_stays_there(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_id: str
) -> None:
    fs, name = CloudStoreFileSystem(), quote(file_id, safe="")
    emulator.put_file(DATA, file_id)
    emulator.put_file(b"", "f2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "airflow").mkdir()  # Airflow's paths drop a slash at the end
    fs.get(f"cloudstore:///{name}", f"{tmp_path}/one/")
    fs.get([name, "f2"], "many")
    ObjectStoragePath(f"cloudstore://cloudstore_default@/{name}").copy(f"file://{tmp_path}/airflow")
    for folder in ("one", "many", "airflow"):
        assert (tmp_path / folder / name).read_bytes() == DATA
    assert (tmp_path / "many" / "f2").read_bytes() == b""
    assert len([*tmp_path.iterdir()]) == 3


def test_an_empty_file_of_a_host_without_ranges_is_read_as_empty(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    emulator.fault("status", operation="download", status=200, times=0)
    path = ObjectStoragePath("cloudstore://cloudstore_default@/f1")
    assert (path.read_bytes(), path.stat().st_size, fs.cat("f1"), fs.info("f1")["size"]) == (b"", 0, b"", 0)


def test_the_root_is_a_folder_and_nothing_can_be_written(fs: CloudStoreFileSystem, tmp_path: Path) -> None:
    for root in ("", "/", "cloudstore://", "cloudstore://cloudstore_default@/"):
        assert (fs.isdir(root), fs.isfile(root)) == (True, False)  # so that a reader lists it, and is told that it cannot
        with pytest.raises(exceptions.InvalidInputError):
            fs.open(root)
    (tmp_path / "source").write_bytes(b"x")
    for write in (lambda: fs.put(str(tmp_path / "source"), "/target"), lambda: fs.pipe("/target", b"x")):
        with pytest.raises(OSError, match="can only be read") as refused:
            write()
        assert (refused.value.errno, refused.value.filename) == (errno.EROFS, "/target")


def test_universal_pathlib_reads_it_by_a_class_of_its_own(emulator: Emulator) -> None:
    emulator.put_file(DATA, "a/b")
    path = UPath("cloudstore://cloudstore_default@/a%2Fb")
    assert type(path) is CloudStorePath
    assert str(path) == "cloudstore:///a%2Fb"
    for same in (path, UPath("cloudstore://cloudstore_default@/") / "a%2Fb", pickle.loads(pickle.dumps(path))):
        assert same.read_bytes() == DATA
        assert (same.is_file(), same.name) == (True, "a%2Fb")


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work`` returns in each of so many threads; the first error is raised."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_threads_that_seek_and_read_get_the_bytes_that_they_sought(emulator: Emulator, opened: CloudStoreFile) -> None:
    def wrong(number: int) -> list[tuple[int, int]]:
        """The reads at random places that returned other bytes."""
        choose = random.Random(number)
        places = [(choose.randrange(len(DATA)), choose.randrange(1, 5_000)) for _ in range(20)]
        return [(at, length) for at, length in places if opened.seek(at) != at or opened.read(length) != DATA[at : at + length]]

    assert in_threads(8, wrong) == [[]] * 8
    opened.close()
    eventually(lambda: not emulator.call(lambda service: service.connections()))


def test_threads_that_only_read_share_one_position(opened: CloudStoreFile) -> None:
    found = in_threads(8, lambda _: list(iter(lambda: opened.read(800), b"")))
    assert b"".join(sorted(piece for pieces in found for piece in pieces)) == DATA


def test_a_position_passes_from_thread_to_thread(opened: CloudStoreFile) -> None:
    """As asyncio.to_thread does, whose calls may each run in another thread."""

    def elsewhere(work: Callable[..., Any], *arguments: Any) -> Any:
        return in_threads(1, lambda _: work(*arguments))[0]

    assert elsewhere(opened.seek, 0, 2) == opened.tell() == len(DATA)
    assert opened.seek(0) == 0
    assert elsewhere(opened.read, 10) == DATA[:10]
    assert elsewhere(opened.tell) == opened.tell() == 10
    assert elsewhere(opened.seek, 5, 1) == 15
    assert opened.read(5) == DATA[15:20]
    assert (opened.seek(7), opened.seek(5, 1)) == (7, 12)
    assert opened.read(3) == DATA[12:15]
    opened.seek(0, 2)  # asks for the size only
    elsewhere(opened.seek, 20)
    assert opened.read(5) == DATA[20:25]


def test_a_pickled_file_continues_at_its_position(emulator: Emulator, fs: CloudStoreFileSystem, opened: CloudStoreFile) -> None:
    opened.seek(100)
    with pickle.loads(pickle.dumps(opened)) as copy:
        assert copy.read(10) == DATA[100:110]
        assert copy.blocksize == opened.blocksize
    assert opened.read(10) == DATA[100:110]
    emulator.put_file(b"", "empty")
    with fs.open("empty") as empty, pickle.loads(pickle.dumps(empty)) as copy:
        assert copy.read() == b""
    assert pickle.loads(pickle.dumps(fs)).cat("f1") == DATA


def test_a_forked_process_cannot_read_an_open_file(opened: CloudStoreFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 0)
    for work in (lambda: opened.seek(0), lambda: opened.read(10)):
        with pytest.raises(OSError, match="forked process"):
            work()
