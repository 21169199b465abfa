from __future__ import annotations

import errno
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from fsspec.callbacks import Callback
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
    assert (fs.cat_file("f1", 10, 20), fs.cat_file("f1", -10)) == (DATA[10:20], DATA[-10:])
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


def test_each_connection_is_a_filesystem_of_its_own() -> None:
    assert cloudstore.get_fs("a") != cloudstore.get_fs("b")
    assert cloudstore.get_fs(None).conn_id == "cloudstore_default"
    assert cloudstore.get_fs("a", {"skip_instance_cache": True}).fsid == "cloudstore-a"


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
    "ls": lambda fs: fs.ls(""),
    "listdir": lambda fs: fs.listdir("cloudstore://cloudstore_default@/"),
    "walk": lambda fs: list(fs.walk("")),
    "find": lambda fs: fs.find("/"),
    "find withdirs": lambda fs: fs.find("", withdirs=True, detail=True),
    "du": lambda fs: fs.du(""),
    "tree": lambda fs: fs.tree(""),
    "glob": lambda fs: fs.glob("*"),
    "glob below": lambda fs: fs.glob("folder/*.csv"),
    "cat": lambda fs: fs.cat("f?"),
    "expand_path": lambda fs: fs.expand_path(["f1", "[ab]"]),
    "get": lambda fs: fs.get("*", "/nowhere/"),
    "iterdir": lambda fs: list(ObjectStoragePath("cloudstore://cloudstore_default@/").iterdir()),
}


@pytest.mark.parametrize("name", LISTS)
def test_what_the_service_cannot_list_is_unsupported_and_never_empty(fs: CloudStoreFileSystem, name: str) -> None:
    with pytest.raises(NotImplementedError, match="cannot list files"):
        LISTS[name](fs)


@pytest.mark.parametrize("root", ["", "/", "cloudstore://", "cloudstore:///", "cloudstore://cloudstore_default@/"])
def test_the_root_is_a_folder_and_no_file(fs: CloudStoreFileSystem, root: str) -> None:
    assert fs.exists(root)
    assert not fs.isfile(root)
    assert fs.isdir(root)  # so that a reader lists it, and is told that it cannot
    with pytest.raises(exceptions.InvalidInputError):
        fs.open(root)


@pytest.mark.parametrize("path", ["None", "null", "{{ file_id }}", "%20", "a%0Ab", "%00"])
def test_what_no_file_can_have_as_its_id_is_refused_before_anything_is_sent(
    emulator: Emulator, fs: CloudStoreFileSystem, path: str
) -> None:
    for work in (fs.exists, fs.open, fs.info, fs.ls, fs.size, lambda path: fs.get_file(path, "/nowhere/x")):
        with pytest.raises(exceptions.InvalidInputError):
            work(path)
    assert not emulator.state()["requests"].get("link")


def test_a_file_is_found_where_fsspec_looks_for_many(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    emulator.put_file(b"two", "f2")
    assert fs.find("f1") == fs.ls("f1", detail=False) == fs.glob("f1") == ["/f1"]
    assert fs.find("nope") == fs.glob("nope") == []
    assert fs.du("f1") == fs.size("f1") == len(DATA)
    assert fs.sizes(["f1", "f2"]) == [len(DATA), 3]
    assert fs.cat(["f1", "f2"]) == {"/f1": DATA, "/f2": b"two"}
    assert fs.cat_ranges(["f1", "f2"], [1, 0], [3, 2]) == [DATA[1:3], b"tw"]
    assert (fs.head("f1", 5), fs.tail("f1", 5)) == (DATA[:5], DATA[-5:])
    for work in (fs.sign, fs.created):
        with pytest.raises(NotImplementedError):  # as fsspec documents
            work("f1")


@pytest.mark.parametrize(
    "file_id", ["a/b", "/a/", "a%2Fb", "100%", "%FF", "x y", "ü", "f?*[1]", "../../x", "..", "a#b?c", "c:\\x", "a@b"]
)
def test_an_id_is_one_percent_encoded_segment_in_paths_as_in_asset_uris(emulator: Emulator, file_id: str) -> None:
    emulator.put_file(DATA, file_id)
    path = ObjectStoragePath(f"cloudstore://cloudstore_default@/{quote(file_id, safe='')}")
    assert path.read_bytes() == DATA
    assert ObjectStoragePath(str(path)).read_bytes() == DATA
    fs = CloudStoreFileSystem()
    stripped = fs._strip_protocol(f"cloudstore:///{quote(file_id, safe='')}")
    assert stripped == fs._strip_protocol(stripped) == fs._strip_protocol(fs.unstrip_protocol(stripped)) == f"/{segment(file_id)}"
    assert fs.cat(stripped) == DATA


@pytest.mark.parametrize("file_id", ["a/b", "100%", "x y", "ü", "a@b", "c:\\x"])
def test_an_unencoded_id_without_escapes_works_as_well(emulator: Emulator, file_id: str) -> None:
    emulator.put_file(DATA, file_id)
    for path in (file_id, f"/{file_id}/", f"cloudstore://cloudstore_default@/{file_id}", f"cloudstore:///{file_id}"):
        assert fs_of(path).cat_file(path) == DATA


def fs_of(path: str) -> CloudStoreFileSystem:
    return CloudStoreFileSystem(**CloudStoreFileSystem._get_kwargs_from_urls(path))


@pytest.mark.parametrize(
    "work", [fsspec.open, lambda uri: CloudStoreFileSystem().exists(uri), lambda uri: fsspec.open_files([uri])]
)
def test_an_asset_uri_is_no_path_and_the_error_says_what_to_write(work: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match=r"asset URI.*write cloudstore://CONNECTION@/f1"):
        work("cloudstore://files.example.com/eu/f1")


HOSTILE = ["../../x", "/etc/passwd", "C:\\x", "..\\x", "%2e%2e", "~root", "ü", "-rf", "x" * 255, "a b", "file:x", "*", "..."]


@pytest.mark.parametrize("file_id", HOSTILE)
def test_a_copy_into_a_folder_is_named_by_the_id_and_stays_there(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_id: str
) -> None:
    fs, name = CloudStoreFileSystem(), quote(file_id, safe="")
    emulator.put_file(DATA, file_id)
    emulator.put_file(b"two", "f2")
    monkeypatch.chdir(tmp_path)
    for folder in ("there", "airflow"):  # Airflow's paths drop a slash at the end
        (tmp_path / folder).mkdir()
    path = ObjectStoragePath(f"cloudstore://cloudstore_default@/{name}")
    copies: dict[str, Callable[[], Any]] = {
        "new": lambda: fs.get(name, "new/"),
        "there": lambda: fs.get(name, str(tmp_path / "there")),
        "url": lambda: fs.get(f"cloudstore:///{name}", f"{tmp_path}/url/"),
        "one": lambda: fs.get([name], str(tmp_path / "one")),
        "many": lambda: fs.get([name, "f2"], "many"),
        "airflow": lambda: path.copy(f"file://{tmp_path}/airflow"),
    }
    for folder, copy in copies.items():
        copy()
        assert (tmp_path / folder / name).read_bytes() == DATA
    assert (tmp_path / "many" / "f2").read_bytes() == b"two"
    assert {one.name for one in tmp_path.iterdir()} == set(copies)
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    import_module(ObjectStoragePath.__module__.replace("path", "store")).attach("memory", fs=memory)
    memory.makedirs("/folder", exist_ok=True)
    path.copy("memory:///folder")
    assert memory.find("/") == [f"/folder/{name}"]


@pytest.mark.parametrize("file_id", [".", "..", "x" * 256])
def test_an_id_that_cannot_be_a_files_name_leaves_no_file(emulator: Emulator, tmp_path: Path, file_id: str) -> None:
    fs, folder = CloudStoreFileSystem(), tmp_path / "folder"
    folder.mkdir()
    emulator.put_file(DATA, file_id)
    for path in (file_id, [file_id]):
        with pytest.raises((OSError, ValueError, exceptions.InvalidInputError)):
            fs.get(path, f"{folder}/")
    assert list(tmp_path.rglob("*")) == [folder]
    fs.get(file_id, str(tmp_path / "named"))
    assert (tmp_path / "named").read_bytes() == DATA


def test_lists_are_copied_to_lists_and_progress_is_told(emulator: Emulator, fs: CloudStoreFileSystem, tmp_path: Path) -> None:
    emulator.put_file(b"two", "a/b")
    callback = Callback()
    fs.get(["f1", "a/b"], [str(tmp_path / "one"), str(tmp_path / "two")], callback=callback)
    assert ((tmp_path / "one").read_bytes(), (tmp_path / "two").read_bytes()) == (DATA, b"two")
    assert (callback.size, callback.value) == (2, 2)
    with (tmp_path / "open").open("wb") as file:
        fs.get_file("f1", file)
    assert (tmp_path / "open").read_bytes() == DATA


@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        ("put", ("SOURCE", "/target")),
        ("put_file", ("SOURCE", "/target")),
        ("touch", ("/target",)),
        ("pipe", ("/target", b"x")),
    ],
)
def test_a_write_is_refused_with_the_name_of_its_target(
    fs: CloudStoreFileSystem, tmp_path: Path, work: str, arguments: tuple[Any, ...]
) -> None:
    (tmp_path / "source").write_bytes(b"x")
    given = [str(tmp_path / "source") if argument == "SOURCE" else argument for argument in arguments]
    with pytest.raises(OSError, match="can only be read") as refused:
        getattr(fs, work)(*given)
    assert (refused.value.errno, refused.value.filename) == (errno.EROFS, "/target")


@pytest.mark.parametrize(("work", "arguments"), [("copy", ("f1", "f2")), ("mv", ("f1", "f2")), ("rm", ("f1",))])
def test_a_file_is_neither_copied_nor_removed_in_the_service(
    emulator: Emulator, fs: CloudStoreFileSystem, work: str, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(NotImplementedError):
        getattr(fs, work)(*arguments)
    assert [file["file_id"] for file in emulator.state()["files"]] == ["f1"]


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
