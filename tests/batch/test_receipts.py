from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from upath import UPath

from airflow_provider_cloudstore.batch import receipts as module
from airflow_provider_cloudstore.batch.outcomes import Status, digest_of
from airflow_provider_cloudstore.batch.receipts import PART_SIZE, PathFolder, Receipts, to_line
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, BatchStoppedError
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.batch.folders import Kept, SftpLike

ROOT = Path(__file__).resolve().parent.parent.parent
SCOPE = ("dag", "run")


PLACES: dict[str, Callable[[str], Any]] = {
    "path": Path,
    "local": ObjectStoragePath,
    "memory": lambda at: UPath(f"memory://bucket{at}"),
    "sftp": SftpLike,
}


def line(url: str, status: str = "queued", padding: int = 0) -> str:
    return json.dumps({"digest": digest_of(url).hex(), "status": status, "response": "x" * padding})


def read(receipts: Receipts) -> list[tuple[bytes, Status]]:
    found: list[tuple[bytes, Status]] = []
    receipts.read(lambda digest, status: found.append((digest, status)))
    return found


def queued(*urls: str) -> list[tuple[bytes, Status]]:
    return [(digest_of(url), Status.QUEUED) for url in urls]


def begun(folder: module.Folder, number: int = 1, process: str = "aa", place: str = "s3://b/r") -> Receipts:
    receipts = Receipts(folder, Try(SCOPE, number, process), place)
    receipts.begin()
    return receipts


@pytest.mark.parametrize("place", PLACES)
def test_the_receipts_of_several_tries_are_read_in_order_and_the_folder_need_not_exist(tmp_path: Path, place: str) -> None:
    folder = PathFolder(PLACES[place](str(tmp_path / "a" / "b")))
    for number in (1, 2, 10):
        receipts = Receipts(folder, Try(SCOPE, number))
        assert receipts.begin() is (number > 1)
        receipts.write([line(f"{number}"), line("\ud800", "failed")])
        receipts.write([])
        receipts.write([line(f"{number}", "unknown")])
    found = read(begun(folder, 11))
    assert [digest for digest, _ in found[::3]] == [digest_of(number) for number in ("1", "2", "10")]
    assert [status for _, status in found] == [Status.QUEUED, Status.FAILED, Status.UNKNOWN] * 3
    another = Receipts(folder, Try(("dag", "another run")))
    assert another.begin() is False
    assert read(another) == []


def test_an_older_try_and_another_process_of_the_same_try_are_stopped(tmp_path: Path) -> None:
    first, second = (Receipts(PathFolder(tmp_path), Try(SCOPE)) for _ in range(2))
    assert (first.begin(), second.begin()) == (False, True)
    for superseded, newer in ((first, 1), (second, 2)):
        if newer == 2:
            begun(PathFolder(tmp_path), 2)
        with pytest.raises(BatchInterruptedError, match=f"the mark of try {newer}") as error:
            superseded.write([line("1")])
        assert error.value.cause == "superseded"
    with pytest.raises(BatchInterruptedError):
        begun(PathFolder(tmp_path), 1)
    assert not list(tmp_path.glob("part-*"))


@pytest.mark.parametrize("earlier", [False, True])
def test_whether_an_earlier_try_began_is_known_although_beginning_had_to_be_repeated(earlier: bool) -> None:
    class AnswersNoFirstWrite(Kept):
        fails = True

        def write(self, name: str, content: bytes) -> None:
            super().write(name, content)
            if self.fails:
                self.fails = False
                raise ConnectionError

    before = Kept()
    if earlier:
        begun(before)
    folder = AnswersNoFirstWrite(before.files)
    receipts = Receipts(folder, Try(SCOPE, 2))
    with pytest.raises(ConnectionError):
        receipts.begin()
    assert receipts.begin() is earlier


def test_the_same_try_in_another_process_is_read_after_the_first() -> None:
    folder = Kept()
    for process in ("ff", "aa", "bb"):
        begun(folder, 1, process).write([line(process)])
    assert read(begun(folder, 2)) == queued("ff", "aa", "bb")


def test_the_current_part_is_rewritten_until_it_is_full() -> None:
    folder = Kept()
    receipts = begun(folder)
    urls = [f"{number}" for number in range(3_000)]
    for url in urls:
        receipts.write([line(url, padding=1_000)])
    assert read(begun(folder, 2)) == queued(*urls)
    sizes = sorted(len(content) for name, content in folder.files.items() if name.startswith("part-"))
    assert len(sizes) == 4
    assert PART_SIZE <= sizes[1] <= sizes[-1] < PART_SIZE + 2_000


def test_very_many_lines_at_once_become_several_parts() -> None:
    folder = Kept()
    urls = [f"{number}" for number in range(5_000)]
    begun(folder).write([line(url, padding=1_000) for url in urls])
    assert read(begun(folder, 2)) == queued(*urls)
    assert max(map(len, folder.files.values())) < 2 * PART_SIZE + 2_000


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("failing", range(1, 6))
def test_lines_that_are_written_again_after_a_failure_are_there_once(stored: bool, failing: int) -> None:
    class Failing(Kept):
        writes = 0

        def write(self, name: str, content: bytes) -> None:
            self.writes += name.startswith("part-")
            fails = self.writes == failing
            self.writes += fails
            if not fails or stored:
                super().write(name, content)
            if fails:
                raise TimeoutError

    folder = Failing()
    receipts = begun(folder)
    urls = [f"{number}" for number in range(3_000)]
    failures = 0
    for start in range(0, len(urls), 1_500):
        lines = [line(url, padding=1_000) for url in urls[start : start + 1_500]]
        try:
            receipts.write(lines)
        except TimeoutError:
            failures += 1
            receipts.write(lines)
    assert failures == (failing < 5)
    assert sorted(read(begun(folder, 2)), key=str) == sorted(queued(*urls), key=str)


@pytest.mark.parametrize("how", ["failed", "slow"])
def test_a_request_that_was_given_up_and_arrives_late_replaces_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Kept):
        late: tuple[str, bytes] | None = None

        def write(self, name: str, content: bytes) -> None:
            if self.late is None and name.startswith("part-"):
                self.late = name, content
                if how == "failed":
                    raise TimeoutError
                # Else the store's library has given up the request and repeated it, which takes long.
                monkeypatch.setattr(module, "SLOW_WRITE", -1.0)
            super().write(name, content)

    folder = Late()
    receipts = begun(folder)
    if how == "failed":
        with pytest.raises(TimeoutError):
            receipts.write([line("1")])
    receipts.write([line("1")])
    monkeypatch.undo()
    receipts.write([line("2")])
    assert folder.late
    folder.files.update([folder.late])
    assert read(begun(folder, 2)) == queued("1", "2")


WRITER = """
import itertools, json, os, random, signal, sys
from pathlib import Path
from airflow_provider_cloudstore.batch.receipts import PathFolder, Receipts
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.batch.outcomes import digest_of
from tests.batch.folders import SftpLike

kind, folder, kills = sys.argv[1:]
dice = random.Random(1)
for number in range(1, int(kills) + 1):
    reads, writes = os.pipe()
    writer = os.fork()
    if not writer:
        receipts = Receipts(PathFolder({"path": Path, "sftp": SftpLike}[kind](folder)), Try(("dag", "run"), number))
        receipts.begin()
        for count in itertools.count():
            digest = digest_of(f"{number} {count}").hex()
            receipts.write([json.dumps({"digest": digest, "status": "queued", "response": "x" * 40_000})])
            os.write(writes, b".")
    os.close(writes)
    durable, wanted = 0, dice.randrange(1, 40)
    while durable < wanted:
        durable += len(os.read(reads, 1))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    print(durable + len(os.read(reads, 65_536)))
"""


@pytest.mark.parametrize("kind", ["path", "sftp"])
def test_nothing_that_was_durable_is_lost_when_a_process_is_killed_while_it_writes(tmp_path: Path, kind: str) -> None:
    arguments = [sys.executable, "-c", WRITER, kind, str(tmp_path), "40"]
    done = subprocess.run(
        arguments, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    durable = [int(count) for count in done.stdout.split()]
    found = iter(read(begun(PathFolder(tmp_path), 100)))
    assert len(durable) == 40
    unreported = 0
    expected = queued(*(f"{number} {count}" for number, counts in enumerate(durable, 1) for count in range(counts)))
    for one in expected:
        for other in itertools.takewhile(lambda other: other != one, found):  # noqa: B023  (used at once)
            unreported += 1
            assert other not in expected
    unreported += len(list(found))
    assert unreported <= 40  # of each try at most the line that was being written


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
    assert read(receipts) == queued("1")
    receipts.write([line("2", padding=100_000)])
    assert read(receipts) == queued("1", "2")


MOUNTED = """
import subprocess, sys
from pathlib import Path
from airflow_provider_cloudstore.batch.receipts import PathFolder, Receipts
from airflow_provider_cloudstore.batch.tries import Try

def attempt(action):
    try:
        action()
    except Exception as error:
        print(type(error).__name__, getattr(error, "cause", ""), str(error).splitlines()[0])

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", sys.argv[1]], check=True)
receipts = Receipts(PathFolder(Path(sys.argv[1])), Try(), sys.argv[1])
receipts.begin()
attempt(lambda: receipts.write(["x" * 1_000_000]))
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
attempt(lambda: receipts.write(["x"]))
attempt(lambda: Receipts(PathFolder(Path(sys.argv[1])), Try(number=2), sys.argv[1]).begin())
"""


def test_a_full_disk_is_retried_and_a_read_only_one_is_not(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a filesystem")
    arguments = ["unshare", "-m", sys.executable, "-c", MOUNTED, str(tmp_path)]
    done = subprocess.run(
        arguments, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    full, *read_only = done.stdout.splitlines()
    assert full.startswith("OSError")
    assert "No space left on device" in full
    assert len(read_only) == 2
    for message in read_only:
        assert message.startswith(f"BatchStoppedError receipts batch upload: the receipts: {tmp_path}/")
        assert "Read-only file system" in message


def a_file_in_its_place(path: Path) -> Path:
    path.write_text("")
    return path


def a_file_as_its_parent(path: Path) -> Path:
    path.write_text("")
    return path / "receipts"


def a_link_to_nothing(path: Path) -> Path:
    path.symlink_to(path.parent / "missing")
    return path


@pytest.mark.parametrize("kind", [Path, ObjectStoragePath])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_file_in_its_place, "Not a directory"),
        (a_file_as_its_parent, "Not a directory"),
        (a_link_to_nothing, "File exists"),
        (lambda path: path / ("x" * 300), "File name too long"),
    ],
)
def test_a_local_folder_that_cannot_be_used_stops_the_batch_at_once(tmp_path: Path, kind: Any, make: Any, reason: str) -> None:
    path = make(tmp_path / "place")
    folder = PathFolder(kind(str(path)))
    with pytest.raises(BatchStoppedError, match=rf"receipts: {path}/batch-\w+\.json cannot be used: {reason}") as error:
        begun(folder)
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


@pytest.mark.parametrize("name", ["batch-{0}.json", "part-{0}-0001-aa-00000000.jsonl"])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / name.format(Try(SCOPE).batch)
    file.mkdir()
    with pytest.raises(BatchStoppedError, match=f"{file} cannot be used: Is a directory"):
        read(begun(PathFolder(tmp_path)))


def test_what_an_object_store_refuses_stays_its_own_error_because_credentials_are_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = UPath("memory://bucket/refused")
    receipts = begun(PathFolder(path))

    def refuses(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "AccessDenied")

    for method in ("pipe_file", "cat_file"):
        with monkeypatch.context() as patch:
            patch.setattr(type(path.fs), method, refuses)
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


def test_an_outage_in_which_a_library_also_missed_a_file_is_no_missing_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    path = UPath("memory://bucket/away")
    receipts = begun(PathFolder(path))

    def refuses(*_: Any, **__: Any) -> None:
        try:
            Path("/missing/credentials").read_text()
        except FileNotFoundError:
            raise ConnectionError("no credentials yet")  # noqa: B904

    monkeypatch.setattr(type(path.fs), "pipe_file", refuses)
    with pytest.raises(ConnectionError):
        receipts.write([line("1")])


def test_files_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    for name in (
        "part-00000-abc.parquet",
        "part-00000000.jsonl",
        "_SUCCESS",
        f".part-{Try(SCOPE).batch}-0001-aa-00000000.jsonl.ff",
    ):
        (tmp_path / name).write_text("{}")
    receipts = begun(PathFolder(tmp_path))
    receipts.write([line("1")])
    assert read(receipts) == queued("1")


def test_a_batch_whose_mark_disappears_stops(tmp_path: Path) -> None:
    receipts = begun(PathFolder(tmp_path), place=str(tmp_path))
    (mark,) = tmp_path.iterdir()
    mark.unlink()
    with pytest.raises(BatchStoppedError, match=f"{tmp_path} was removed or emptied while the batch ran") as error:
        receipts.write([])
    assert (error.value.cause, error.value.permanent) == ("receipts", True)


@pytest.mark.parametrize("mark", ["", "null", "{", "[]", "7", '{"number": 1}', '{"number": 1, "format": 4}', "\xff"])
def test_a_mark_of_another_format_stops_the_batch_before_it_sends(mark: str) -> None:
    name = f"batch-{Try(SCOPE).batch}.json"
    folder = Kept({name: mark.encode("latin-1")})
    with pytest.raises(BatchStoppedError, match=f"s3://b/r/{name} holds progress .* nothing was sent") as error:
        begun(folder)
    assert error.value.cause == "format"
    assert folder.files[name] == mark.encode("latin-1")


def parts(count: int, content: Callable[[int], bytes] = lambda number: f"{line(f'{number}')}\n".encode()) -> dict[str, bytes]:
    return {f"part-{Try(SCOPE).batch}-0001-aa-{number:08d}.jsonl": content(number) for number in range(count)}


QUEUED = line("1")
DIGEST = digest_of("1").hex()
DAMAGES = {
    "cut": QUEUED[:-20],
    "cut at its start": QUEUED[20:],
    "empty line": "",
    "web page": "<html>",
    "zeros": "\0" * 20,
    "bytes": "\xff",
    "nested": "[" * 100_000,
    "null": "null",
    "number": "7",
    "list": "[]",
    "object": "{}",
    "no digest": QUEUED.replace("digest", "digits"),
    "no status": QUEUED.replace("status", "states"),
    "letters": QUEUED.replace(DIGEST, "zz" * 32),
    "short digest": QUEUED.replace(DIGEST, DIGEST[:-2]),
    "digest is a number": QUEUED.replace(f'"{DIGEST}"', "5"),
    "unknown status": QUEUED.replace("queued", "sent"),
    "status of no receipt": QUEUED.replace("queued", "skipped"),
    "status is a list": QUEUED.replace('"queued"', "[]"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_part_is_named_and_is_no_outage(damage: str) -> None:
    files = parts(3)
    name = list(files)[1]
    files[name] = f"{QUEUED}\n{damage}\n{QUEUED}\n".encode("latin-1")
    with pytest.raises(BatchStoppedError, match=f"receipts: line 2 of s3://b/r/{name} is damaged") as error:
        read(Receipts(Kept(files), Try(SCOPE, 2), "s3://b/r"))
    assert (error.value.cause, error.value.permanent) == ("receipts", True)
    assert error.value.__context__ is None


def test_an_emptied_part_is_damage() -> None:
    with pytest.raises(BatchStoppedError, match="line 1 of"):
        read(Receipts(Kept(parts(1, lambda _: b"")), Try(SCOPE, 2)))


def test_a_few_parts_are_read_at_once_and_no_more() -> None:
    together, lock = threading.Barrier(8), threading.Lock()  # nobody is let on before so many are there

    class Counting(Kept):
        unread = most = 0

        def read(self, name: str) -> bytes | None:
            with lock:
                self.unread += 1
                self.most = max(self.most, self.unread)
            if int(name[-14:-6]) < together.parties:
                together.wait(30)
            return self.files.get(name)

    folder = Counting(parts(300))

    def add(*_: Any) -> None:
        with lock:
            folder.unread -= 1

    Receipts(folder, Try(SCOPE, 2)).read(add)
    assert folder.unread == 0
    assert folder.most <= 9


def test_many_parts_are_read_from_a_store_that_fails_now_and_then() -> None:
    dice = random.Random(1)

    class Unlucky(Kept):
        failures = 0

        def read(self, name: str) -> bytes | None:
            if dice.random() < 0.02:
                self.failures += 1
                raise ConnectionError
            return self.files.get(name)

    unlucky = Unlucky(parts(1_000))
    assert read(Receipts(unlucky, Try(SCOPE, 2))) == queued(*map(str, range(1_000)))
    assert unlucky.failures > 5


@pytest.mark.parametrize(("error", "reads"), [(PermissionError("no"), 5), (BatchStoppedError("it is read-only"), 1)])
def test_a_part_that_cannot_be_read_is_an_error(error: Exception, reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wait_random_exponential", lambda *_, **__: lambda _: 0.0)
    seen = []

    class Broken(Kept):
        def read(self, name: str) -> bytes | None:
            seen.append(name)
            raise error

    with pytest.raises(type(error)):
        read(Receipts(Broken(parts(1)), Try(SCOPE, 2)))
    assert len(seen) == reads


def entry(**fields: Any) -> Any:
    return SimpleNamespace(**{"line": 7, "url": "https://user:hunter22@h/a?sig=hunter3333", "problem": "", "key": None} | fields)


def test_a_receipt_has_the_documented_fields() -> None:
    queued = to_line(entry(key="k1"), digest_of("u"), Status.QUEUED, 2, url="https://***@h/a?***", response={"id": "é"})
    assert "é" in queued
    assert json.loads(queued) == {
        "line": 7,
        "key": "k1",
        "digest": hashlib.sha256(b"u").hexdigest(),
        "url": "https://***@h/a?***",
        "status": "queued",
        "try": 2,
        "response": {"id": "é"},
    }
    failed = json.loads(to_line(entry(), digest_of("u"), Status.FAILED, 1, url="u", error="refused", response={"secret": 1}))
    assert (failed.keys(), failed["error"]) == ({"line", "digest", "url", "status", "try", "error"}, "refused")
    taken_over = json.loads(to_line(entry(), digest_of("u"), Status.UNKNOWN, 1, url="u"))
    assert taken_over.keys() == {"line", "digest", "url", "status", "try"}


@pytest.mark.parametrize("response", [{"a": "x" * 16_000}, {"a": float("nan")}, {"a": b"x"}, {"a": {1: 2}.keys()}])
def test_a_receipt_is_json_of_bounded_length_whatever_the_service_responded(response: Any) -> None:
    found = to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response=response)
    assert json.loads(found)["response"] is None
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    assert json.loads(to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response=nested))["response"] is None
    assert len(to_line(entry(), digest_of("u"), Status.FAILED, 1, url="u", error="x" * 100_000)) < 2_000
    assert len(to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response="x" * 15_000)) > 15_000


@pytest.mark.parametrize("falsy", [0, False, "", [], {}])
def test_a_response_that_is_empty_is_kept(falsy: Any) -> None:
    assert json.loads(to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response=falsy))["response"] == falsy


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("k1", "k1"),
        (5, 5),
        (1.5, 1.5),
        (float("nan"), "nan"),
        ("", ""),
        ("https://h/a?sig=other", "https://h/a?***"),
        ("hunter3333", "***"),
        ("aHVudGVyMzMzMw==", "***"),
        ("the-token", "***"),
        ("\ud800", "\ud800"),
    ],
)
def test_a_key_is_copied_without_secrets(key: Any, stored: Any) -> None:
    found = to_line(entry(key=key), digest_of("u"), Status.QUEUED, 1, url="u", secrets=(Secret("the-token"),))
    assert json.loads(found)["key"] == stored
