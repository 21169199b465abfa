from __future__ import annotations

import hashlib
import json
import random
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from upath import UPath

from airflow_provider_cloudstore.batch.keys import KEY_SIZE
from airflow_provider_cloudstore.batch.ledger import RecordedOutcomes, Status
from airflow_provider_cloudstore.batch.receipts import PathFolder, Receipts, Try
from airflow_provider_cloudstore.protocol.errors import BatchSupersededError, InvalidInputError


def read(receipts: Receipts, since: int = 0) -> list[Any]:
    found: list[Any] = []
    receipts.read(found.append, since)
    return found


@pytest.mark.parametrize("place", ["path", "local", "memory"])
def test_parts_of_several_tries_are_read_in_order_and_the_folder_need_not_exist(tmp_path: Path, place: str) -> None:
    where = str(tmp_path / "a" / "b")
    kinds: dict[str, Any] = {"path": Path, "local": ObjectStoragePath, "memory": lambda at: UPath(f"memory://bucket{at}")}
    path = kinds[place](where)
    for number in (1, 2, 10):
        receipts = Receipts(PathFolder(path), Try(("dag", "run"), number))
        receipts.begin()
        receipts.write([json.dumps({"try": number, "url": "é\ud800"})])
        receipts.write([])
    last = Receipts(PathFolder(path), Try(("dag", "run"), 11))
    assert [receipt["try"] for receipt in read(last)] == [1, 2, 10]
    assert [receipt["try"] for receipt in read(last, 2)] == [2, 10]
    assert read(Receipts(PathFolder(path), Try(("dag", "another run"), 1))) == []


def test_an_older_try_and_another_process_of_the_same_try_are_stopped(tmp_path: Path) -> None:
    first, second = (Receipts(PathFolder(tmp_path), Try(("dag",), 1)) for _ in range(2))
    first.begin()
    second.begin()
    with pytest.raises(BatchSupersededError):
        first.write(["{}"])
    second.write(["{}"])
    third = Receipts(PathFolder(tmp_path), Try(("dag",), 2))
    third.begin()
    with pytest.raises(BatchSupersededError):
        second.write([])
    with pytest.raises(BatchSupersededError):
        Receipts(PathFolder(tmp_path), Try(("dag",), 1)).begin()


def test_a_part_that_was_not_finished_is_absent_and_its_lines_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts = Receipts(PathFolder(tmp_path), Try())
    receipts.begin()
    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError))
        with pytest.raises(OSError, match=r"^$"):
            receipts.write(['{"position": 0}'])
    assert read(receipts) == []
    receipts.write(['{"position": 0}'])
    assert read(receipts) == [{"position": 0}]


@pytest.mark.parametrize("kind", [Path, ObjectStoragePath])
def test_a_full_disk_leaves_no_unfinished_part(tmp_path: Path, kind: Any) -> None:
    receipts = Receipts(PathFolder(kind(str(tmp_path))), Try())
    receipts.begin()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            receipts.write(["x" * 100_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == [f"batch-{Try().batch}.json"]


def test_parts_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    for name in ("part-00000-abc.parquet", "part-00000000.jsonl", "_SUCCESS", ".part-x"):
        (tmp_path / name).write_text("{}")
    receipts = Receipts(PathFolder(tmp_path), Try())
    receipts.begin()
    receipts.write(['{"position": 0}'])
    assert read(receipts) == [{"position": 0}]


class Kept:
    """A folder in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.reads: list[str] = []

    def read(self, name: str) -> bytes | None:
        self.reads.append(name)
        return self.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def names(self) -> list[str]:
        return list(self.files)


LINES = [
    {
        "digest": hashlib.sha256(b"%d" % number).hexdigest(),
        "status": "unknown" if number % 7 == 0 else "queued",
        "url": f"u{number}",
        "error": "lost",
    }
    for number in range(3_650)
]


def an_hour_written(folder: Kept) -> None:
    receipts = Receipts(folder, Try(("dag",), 1))
    receipts.begin()
    for line in LINES:
        receipts.write([json.dumps({**line, "position": 1, "response": "x"})])


def outcomes(folder: Kept) -> tuple[int, list[Any]]:
    recorded = RecordedOutcomes()
    folder.reads.clear()
    Receipts(folder, Try(("dag",), 2)).read(recorded.add)
    return len(folder.reads), [recorded.pop(bytes.fromhex(str(line["digest"]))[:KEY_SIZE]) for line in LINES]


def test_a_try_reads_an_index_a_minute_instead_of_a_part_a_second_and_finds_the_same() -> None:
    folder = Kept({})
    an_hour_written(folder)
    reads, found = outcomes(folder)
    assert reads == 3_650 // 60 + 3_650 % 60
    assert found[:2] == [(Status.UNKNOWN, {"url": "u0", "error": "lost"}), (Status.QUEUED, {})]
    for name in [name for name in folder.files if name.startswith("index-")]:
        del folder.files[name]
    assert outcomes(folder) == (3_650, found)


def test_a_deleted_part_counts_as_deleted_although_an_index_repeats_it() -> None:
    folder = Kept({})
    an_hour_written(folder)
    del folder.files[next(name for name in folder.files if name.endswith("-00000061.jsonl"))]
    _, found = outcomes(folder)
    assert [number for number, outcome in enumerate(found) if outcome is None] == [61]


def test_an_index_of_many_lines_is_written_sooner() -> None:
    folder = Kept({})
    receipts = Receipts(folder, Try(("dag",), 1))
    receipts.begin()
    for part in range(5):
        receipts.write([json.dumps({"digest": f"{part:02x}{line:062x}", "status": "queued"}) for line in range(4_000)])
    indexes = sorted(name[-23:-6] for name in folder.files if name.startswith("index-"))
    assert indexes == ["00000000-00000001", "00000002-00000003"]
    recorded = RecordedOutcomes()
    folder.reads.clear()
    Receipts(folder, Try(("dag",), 2)).read(recorded.add)
    assert len(folder.reads) == 3
    assert recorded.finished == 20_000


@pytest.mark.parametrize("damage", [b"", b"{", b"{}\n", None], ids=["empty", "cut", "another line", "shortened"])
def test_the_parts_are_read_in_place_of_a_damaged_index(damage: bytes | None) -> None:
    folder = Kept({})
    an_hour_written(folder)
    _, found = outcomes(folder)
    damaged = [name for name in folder.files if name.startswith("index-")][1]
    folder.files[damaged] = folder.files[damaged][: folder.files[damaged].rindex(b"{")] if damage is None else damage
    reads, healed = outcomes(folder)
    assert healed == found
    assert reads == 3_650 // 60 + 3_650 % 60 + 60


def test_an_index_that_cannot_be_written_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Kept):
        def write(self, name: str, content: bytes) -> None:
            if name.startswith("index-"):
                raise ConnectionError
            super().write(name, content)

    folder = Failing({})
    an_hour_written(folder)
    assert "a retry reads its parts: ConnectionError" in caplog.text
    assert outcomes(folder)[0] == 3_650


def test_an_hour_of_parts_is_read_many_at_once() -> None:
    together = threading.Barrier(30)  # nobody is let on before so many are there

    class Gathering(Kept):
        def read(self, name: str) -> bytes | None:
            if int(name[-14:-6]) < together.parties:
                together.wait(30)
            return self.files.get(name)

    writer = Try(("dag",), 2)
    names = (f"part-{writer.batch}-0001-aa-{number:08d}.jsonl" for number in range(3600))
    gathering = Gathering({name: f'{{"n": {number}}}\n'.encode() for number, name in enumerate(names)})
    assert [receipt["n"] for receipt in read(Receipts(gathering, writer))] == list(range(3600))


def test_an_hour_of_parts_is_read_from_a_store_that_fails_now_and_then() -> None:
    dice = random.Random(1)

    class Unlucky(Kept):
        failures = 0

        def read(self, name: str) -> bytes | None:
            if dice.random() < 0.02:
                self.failures += 1
                raise ConnectionError
            return self.files.get(name)

    writer = Try(("dag",), 2)
    names = (f"part-{writer.batch}-0001-aa-{number:08d}.jsonl" for number in range(3600))
    unlucky = Unlucky({name: f'{{"n": {number}}}\n'.encode() for number, name in enumerate(names)})
    assert [receipt["n"] for receipt in read(Receipts(unlucky, writer))] == list(range(3600))
    assert unlucky.failures > 36


def test_a_part_that_cannot_be_read_is_an_error() -> None:
    class Broken(Kept):
        def read(self, name: str) -> bytes | None:
            raise PermissionError("no")

    writer = Try(("dag",), 2)
    broken = Broken({f"part-{writer.batch}-0001-aa-00000000.jsonl": b""})
    with pytest.raises(PermissionError):
        read(Receipts(broken, writer))


QUEUED = json.dumps({"position": 0, "digest": "ab" * 32, "status": "queued"})


@pytest.mark.parametrize(
    "line",
    [
        QUEUED[:-20],
        QUEUED[20:],
        "<html>",
        "\0" * 20,
        "\xff",
        "[" * 100_000,
        "null",
        "7",
        "[]",
        "{}",
        QUEUED.replace("ab", "zz"),
        QUEUED.replace("ab", ""),
        QUEUED.replace("queued", "sent"),
        QUEUED.replace('"queued"', "[]"),
        QUEUED.replace(f'"{"ab" * 32}"', "5"),
        QUEUED.replace('"queued"', '"unknown", "url": 5'),
    ],
)
def test_a_damaged_part_is_named_and_is_no_outage(line: str) -> None:
    writer = Try(("dag",), 2)
    names = [f"part-{writer.batch}-0001-aa-{number:08d}.jsonl" for number in range(3)]
    files = dict.fromkeys(names, f"{QUEUED}\n".encode())
    files[names[1]] = f"{QUEUED}\n{line}\n{QUEUED}\n".encode("latin-1")
    message = f"line 2 of the receipts s3://b/r/{names[1]} is damaged.*nothing was sent"
    with pytest.raises(InvalidInputError, match=message) as error:
        Receipts(Kept(files), writer, "s3://b/r/").read(RecordedOutcomes().add)
    assert error.value.permanent
    assert error.value.__context__ is None


@pytest.mark.parametrize("kind", ["empty", "folder"])
def test_an_emptied_part_and_a_folder_in_its_place_are_damage_and_no_outage(tmp_path: Path, kind: str) -> None:
    writer = Try(("dag",), 1)
    receipts = Receipts(PathFolder(tmp_path), writer, str(tmp_path))
    receipts.begin()
    receipts.write([QUEUED])
    (part,) = tmp_path.glob("part-*")
    part.unlink()
    part.touch() if kind == "empty" else part.mkdir()
    with pytest.raises(InvalidInputError, match=f"line 1 of the receipts {part} is damaged"):
        Receipts(PathFolder(tmp_path), Try(("dag",), 2), str(tmp_path)).read(RecordedOutcomes().add)


def test_a_folder_in_place_of_the_mark_is_named_and_is_no_outage(tmp_path: Path) -> None:
    writer = Try(("dag",), 1)
    (tmp_path / f"batch-{writer.batch}.json").mkdir()
    with pytest.raises(InvalidInputError, match=rf"batch-{writer.batch}\.json is a folder"):
        Receipts(PathFolder(tmp_path), writer, str(tmp_path)).begin()
