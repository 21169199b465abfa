from __future__ import annotations

import errno
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from upath import UPath

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.fs import cloudstore
from airflow_provider_cloudstore.fs.cloudstore import CloudStoreFileSystem
from airflow_provider_cloudstore.fs.paths import CloudStorePath
from airflow_provider_cloudstore.hooks import file_reader
from airflow_provider_cloudstore.protocol.file_uris import segment

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


def test_parts_and_details_of_a_file(fs: CloudStoreFileSystem) -> None:
    found = fs.info("f1")
    assert (found["name"], found["size"], found["type"]) == ("/f1", len(DATA), "file")
    assert found["etag"]
    assert (fs.cat_file("f1", 10, 20), fs.tail("f1", 10)) == (DATA[10:20], DATA[-10:])
    assert fs.isfile("f1")
    assert not fs.isdir("f1")
    assert cloudstore.get_fs("a") != cloudstore.get_fs("b")
    assert cloudstore.get_fs(None, {"skip_instance_cache": True}).fsid == "cloudstore-cloudstore_default"


def test_a_file_that_is_not_there_is_not_found_and_no_other_error_says_so(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    assert not fs.exists("nope")
    for work in (lambda: fs.open("nope"), lambda: fs.cat("nope"), lambda: fs.get_file("nope", "/tmp/nope")):
        with pytest.raises(FileNotFoundError, match="nope"):
            work()
    emulator.fault("status", operation="link", status=403)
    with pytest.raises(exceptions.PermissionDeniedError):
        fs.exists("f1")


def test_a_link_that_ends_between_two_blocks_is_replaced(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    with fs.open("f1", block_size=50_000) as file:
        assert file.read(10) == DATA[:10]
        emulator.expire_links()
        emulator.fault("drop_body", operation="download", after=1_000)
        assert file.read() == DATA[10:]
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


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    with fs.open("f1", block_size=50_000) as file:
        assert file.read(10) == DATA[:10]
        emulator.put_file(DATA[::-1], "f1")
        with pytest.raises(exceptions.FileChangedError):
            file.read()


def test_no_link_is_shown_or_pickled(emulator: Emulator, fs: CloudStoreFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with fs.open("f1", block_size=50_000) as file:
        file.read(10)
        shown = f"{file!r} {file} {vars(file)} {fs!r} {vars(fs)} {fs.to_json()} {file.details}"
        pickled = pickle.dumps(file) + pickle.dumps(fs)
        assert pickle.loads(pickled).read(5) == DATA[10:15]
        emulator.fault("status", operation="download", status=402, times=0)
        with pytest.raises(exceptions.RequestRejectedError) as failed:
            file.read()
    assert len(tokens(emulator)) == 2
    for token in tokens(emulator):
        assert token.encode() not in pickled
        assert token not in f"{shown} {failed.value!r} {failed.value} {vars(failed.value)} {caplog.text}"


def test_the_time_of_a_file_is_the_hosts_and_unsupported_where_it_sends_none(
    emulator: Emulator, fs: CloudStoreFileSystem
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    assert before <= fs.modified("f1") <= datetime.now(UTC) + timedelta(seconds=2)
    for header, wanted in {
        "Sun, 06 Nov 1994 10:49:37 +0200": datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC),
        "yesterday": None,
        "": None,
    }.items():
        headers = {"Last-Modified": header, "Content-Range": "bytes 0-0/5"}
        emulator.fault("status", operation="download", status=206, headers=headers, body="x")
        if wanted:
            found = fs.modified("f1")
            assert (found, found.tzinfo) == (wanted, UTC)
        else:
            with pytest.raises(NotImplementedError, match="Last-Modified"):
                fs.modified("f1")
    with pytest.raises(FileNotFoundError):
        fs.modified("nope")


LISTS: dict[str, Callable[[Any], Any]] = {
    "ls": lambda fs: fs.ls("cloudstore://cloudstore_default@/"),
    "walk": lambda fs: list(fs.walk("")),
    "find": lambda fs: fs.find("/"),
    "glob": lambda fs: fs.glob("folder/*.csv"),
    "cat": lambda fs: fs.cat("f?"),
    "get": lambda fs: fs.get("*", "/nowhere/"),
    "iterdir": lambda fs: list(ObjectStoragePath("cloudstore://cloudstore_default@/").iterdir()),
}


@pytest.mark.parametrize("name", LISTS)
def test_what_the_service_cannot_list_is_unsupported_and_never_empty(fs: CloudStoreFileSystem, name: str) -> None:
    with pytest.raises(NotImplementedError, match="cannot list files"):
        LISTS[name](fs)


@pytest.mark.parametrize("path", ["None", "null", "{{ file_id }}", "%20", "a%0Ab", "%00"])
def test_what_no_file_can_have_as_its_id_is_refused_before_anything_is_sent(
    emulator: Emulator, fs: CloudStoreFileSystem, path: str
) -> None:
    for work in (fs.exists, fs.open, fs.info, fs.ls, fs.size, lambda path: fs.get_file(path, "/nowhere/x")):
        with pytest.raises(exceptions.InvalidInputError):
            work(path)
    assert not emulator.state()["requests"].get("link")


@pytest.mark.parametrize("file_id", ["a/b", "/a/", "a%2Fb", "%FF", "ü", "f?*[1]", "../../x", "a#b?c", "c:\\x", "a@b"])
def test_an_id_is_one_percent_encoded_segment_in_paths_as_in_asset_uris(emulator: Emulator, file_id: str) -> None:
    emulator.put_file(DATA, file_id)
    path = ObjectStoragePath(f"cloudstore://cloudstore_default@/{quote(file_id, safe='')}")
    assert path.read_bytes() == DATA
    assert ObjectStoragePath(str(path)).read_bytes() == DATA
    fs = CloudStoreFileSystem()
    stripped = fs._strip_protocol(f"cloudstore:///{quote(file_id, safe='')}")
    assert stripped == fs._strip_protocol(stripped) == fs._strip_protocol(fs.unstrip_protocol(stripped)) == f"/{segment(file_id)}"
    assert fs.cat(stripped) == DATA


@pytest.mark.parametrize(
    "work", [fsspec.open, lambda uri: CloudStoreFileSystem().exists(uri), lambda uri: fsspec.open_files([uri])]
)
def test_an_asset_uri_is_no_path_and_the_error_says_what_to_write(work: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match=r"asset URI.*write cloudstore://CONNECTION@/f1"):
        work("cloudstore://files.example.com/eu/f1")


@pytest.mark.parametrize(
    "file_id", ["../../x", "/etc/passwd", "C:\\x", "%2e%2e", "~root", "ü", "-rf", "a b", "file:x", "*", "..."]
)
def test_a_copy_into_a_folder_is_named_by_the_id_and_stays_there(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_id: str
) -> None:
    fs, name = CloudStoreFileSystem(), quote(file_id, safe="")
    emulator.put_file(DATA, file_id)
    emulator.put_file(b"", "f2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "airflow").mkdir()  # Airflow's paths drop a slash at the end
    copies: dict[str, Callable[[], Any]] = {
        "new": lambda: fs.get(name, "new/"),
        "url": lambda: fs.get(f"cloudstore:///{name}", f"{tmp_path}/url/"),
        "many": lambda: fs.get([name, "f2"], "many"),
        "airflow": lambda: ObjectStoragePath(f"cloudstore://cloudstore_default@/{name}").copy(f"file://{tmp_path}/airflow"),
    }
    for folder, copy in copies.items():
        copy()
        assert (tmp_path / folder / name).read_bytes() == DATA
    assert (tmp_path / "many" / "f2").read_bytes() == b""
    assert {one.name for one in tmp_path.iterdir()} == set(copies)


def test_the_root_is_a_folder_and_nothing_can_be_written(fs: CloudStoreFileSystem, tmp_path: Path) -> None:
    for root in ("", "/", "cloudstore://", "cloudstore://cloudstore_default@/"):
        assert fs.isdir(root)  # so that a reader lists it, and is told that it cannot
        assert not fs.isfile(root)
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
        assert (same.is_file(), same.exists(), same.name) == (True, True, "a%2Fb")
    with pytest.raises((NotImplementedError, FileNotFoundError)):  # older releases call the root "."
        list(path.parent.iterdir())


@pytest.mark.slow
def test_airflow_3_2_and_later_know_the_path_without_a_warning() -> None:
    if not hasattr(ObjectStoragePath, "copy_into"):
        pytest.skip("an older universal_pathlib has no classes for Airflow's paths")
    code = (
        "import warnings; warnings.simplefilter('error', UserWarning)\n"
        "from airflow.providers.common.compat.sdk import ObjectStoragePath\n"
        "print(ObjectStoragePath('cloudstore://c@/a%2Fb').key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["a%2Fb"], done.stderr
