from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import receipts as module
from airflow_provider_cloudstore.batch.outcomes import Status, digest_of
from airflow_provider_cloudstore.batch.receipts import PART_SIZE, Receipts, to_line
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, BatchStoppedError
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.unit.batch.folders import SCOPE, MemoryFolder, begun, line, queued, read


def test_an_older_try_and_another_process_of_the_same_try_are_stopped() -> None:
    folder = MemoryFolder()
    first, second = (Receipts(folder, Try(SCOPE)) for _ in range(2))
    first.begin()
    second.begin(expects_earlier=True)
    for superseded, newer in ((first, 1), (second, 2)):
        if newer == 2:
            begun(folder, 2)
        with pytest.raises(BatchInterruptedError, match=f"the mark of try {newer}") as error:
            superseded.write([line("1")])
        assert error.value.cause == "superseded"
    with pytest.raises(BatchInterruptedError):
        begun(folder, 1)
    assert len(folder.files) == 1


def test_receipts_that_earlier_tries_wrote_and_that_are_gone_are_an_error_as_often_as_one_looks() -> None:
    folder = MemoryFolder()
    for _ in range(2):
        with pytest.raises(BatchStoppedError, match="earlier tries kept the batch's progress in receipts, and there are none"):
            Receipts(folder, Try(SCOPE, 2)).begin(expects_earlier=True)
        assert folder.files == {}


def test_the_same_try_in_another_process_is_read_after_the_first() -> None:
    folder = MemoryFolder()
    for process in ("ff", "aa", "bb"):
        begun(folder, 1, process).write([line(process)])
    assert read(begun(folder, 2)) == queued("ff", "aa", "bb")


def test_the_current_part_is_rewritten_until_it_is_full() -> None:
    folder = MemoryFolder()
    receipts = begun(folder)
    urls = [f"{number}" for number in range(3_000)]
    for url in urls:
        receipts.write([line(url, padding=1_000)])
    assert read(begun(folder, 2)) == queued(*urls)
    sizes = sorted(len(content) for name, content in folder.files.items() if name.startswith("part-"))
    assert len(sizes) == 4
    assert PART_SIZE <= sizes[1] <= sizes[-1] < PART_SIZE + 2_000


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("failing", range(1, 6))
def test_lines_that_are_written_again_after_a_failure_are_there_once(stored: bool, failing: int) -> None:
    class Failing(MemoryFolder):
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
    for start in range(0, len(urls), 600):
        lines = [line(url, padding=1_000) for url in urls[start : start + 600]]
        try:
            receipts.write(lines)
        except TimeoutError:
            failures += 1
            receipts.write(lines)
    assert failures == 1
    assert read(begun(folder, 2)) == queued(*urls)


def test_a_request_that_failed_and_arrives_late_replaces_nothing() -> None:
    class Late(MemoryFolder):
        late: tuple[str, bytes] | None = None

        def write(self, name: str, content: bytes) -> None:
            if self.late is None and name.startswith("part-"):
                self.late = name, content
                raise TimeoutError
            super().write(name, content)

    folder = Late()
    receipts = begun(folder)
    with pytest.raises(TimeoutError):
        receipts.write([line("1")])
    receipts.write([line("1")])
    receipts.write([line("2")])
    assert folder.late
    folder.files.update([folder.late])
    assert read(begun(folder, 2)) == queued("1", "2")


def test_files_of_other_programs_are_left_alone() -> None:
    hidden = f".part-{Try(SCOPE).batch}-0001-00000000-aa.jsonl.ff"
    names = ("part-00000-abc.parquet", "part-00000000.jsonl", "_SUCCESS", hidden)
    folder = MemoryFolder(dict.fromkeys(names, b"{}"))
    begun(folder).write([line("1")])
    assert read(begun(folder, 2)) == queued("1")


def test_a_batch_whose_mark_disappears_stops() -> None:
    folder = MemoryFolder()
    receipts = begun(folder)
    folder.files.clear()
    with pytest.raises(BatchStoppedError, match="s3://b/r was removed or emptied while the batch ran") as error:
        receipts.write([])
    assert (error.value.cause, error.value.permanent) == ("receipts", True)


@pytest.mark.parametrize("mark", ["", "null", "{", "[]", "7", '{"number": 1}', '{"number": 1, "format": 4}', "\xff"])
def test_a_mark_of_another_format_stops_the_batch_before_it_sends(mark: str) -> None:
    name = f"batch-{Try(SCOPE).batch}.json"
    folder = MemoryFolder({name: mark.encode("latin-1")})
    with pytest.raises(BatchStoppedError, match=f"s3://b/r/{name} holds progress .* nothing was sent") as error:
        begun(folder)
    assert error.value.cause == "format"
    assert folder.files[name] == mark.encode("latin-1")


def parts(count: int, content: Callable[[int], bytes] = lambda number: f"{line(f'{number}')}\n".encode()) -> dict[str, bytes]:
    return {f"part-{Try(SCOPE).batch}-0001-{number:08d}-aa.jsonl": content(number) for number in range(count)}


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
    "status is a list": QUEUED.replace('"queued"', "[]"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_part_is_named_and_is_no_outage(damage: str) -> None:
    files = parts(3)
    name = list(files)[1]
    files[name] = f"{QUEUED}\n{damage}\n{QUEUED}\n".encode("latin-1")
    with pytest.raises(BatchStoppedError, match=f"receipts: line 2 of s3://b/r/{name} is damaged") as error:
        read(begun(MemoryFolder(files), 2))
    assert (error.value.cause, error.value.permanent) == ("receipts", True)
    assert error.value.__context__ is None


def test_many_parts_are_read_from_a_store_that_fails_now_and_then() -> None:
    dice = random.Random(1)

    class Unlucky(MemoryFolder):
        failures = 0

        def read(self, name: str) -> bytes | None:
            if dice.random() < 0.02:
                self.failures += 1
                raise ConnectionError
            return self.files.get(name)

    unlucky = Unlucky(parts(1_000))
    assert read(begun(unlucky, 2)) == queued(*map(str, range(1_000)))
    assert unlucky.failures > 5


def test_a_part_that_cannot_be_read_is_an_error_after_five_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wait_random_exponential", lambda *_, **__: lambda _: 0.0)
    attempts = []

    class Broken(MemoryFolder):
        def read(self, name: str) -> bytes | None:
            if name.startswith("part"):
                attempts.append(name)
                raise PermissionError("no")
            return super().read(name)

    with pytest.raises(PermissionError):
        read(begun(Broken(parts(1)), 2))
    assert len(attempts) == 5


def entry(**fields: Any) -> Any:
    return SimpleNamespace(**{"line": 7, "url": "https://user:hunter22@h/a?sig=hunter3333", "problem": "", "key": None} | fields)


def test_a_receipt_has_the_documented_fields() -> None:
    queued = to_line(
        entry(key="k1"), digest_of("u"), Status.QUEUED, 2, url="https://***@h/a?***", file_id="f1", response={"id": "é"}
    )
    assert "é" in queued
    assert json.loads(queued) == {
        "line": 7,
        "key": "k1",
        "digest": hashlib.sha256(b"u").hexdigest(),
        "url": "https://***@h/a?***",
        "status": "queued",
        "try": 2,
        "file_id": "f1",
        "response": {"id": "é"},
    }
    failed = json.loads(to_line(entry(), digest_of("u"), Status.FAILED, 1, url="u", error="refused", response={"secret": 1}))
    assert (failed.keys(), failed["error"]) == ({"line", "digest", "url", "status", "try", "error"}, "refused")
    taken_over = json.loads(to_line(entry(), digest_of("u"), Status.UNKNOWN, 1, url="u"))
    assert taken_over.keys() == {"line", "digest", "url", "status", "try"}


def test_a_receipt_has_a_bounded_length() -> None:
    large = to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response={"a": "x" * 16_000})
    assert json.loads(large)["response"] is None
    assert len(to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response="x" * 15_000)) > 15_000
    assert len(to_line(entry(), digest_of("u"), Status.FAILED, 1, url="u", error="x" * 100_000)) < 17_000


def test_a_number_that_json_does_not_have_is_an_error_rather_than_a_line_that_other_programs_cannot_read() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response=float("nan"))


@pytest.mark.parametrize("falsy", [0, False, "", [], {}])
def test_a_response_that_is_empty_is_kept(falsy: Any) -> None:
    assert json.loads(to_line(entry(), digest_of("u"), Status.QUEUED, 1, url="u", response=falsy))["response"] == falsy


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("k1", "k1"),
        (5, 5),
        (1.5, "1.5"),
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
