from __future__ import annotations

from contextlib import nullcontext

import pytest

from airflow_provider_cloudstore.batch.recording import PART_SIZE, Receipts, Try
from airflow_provider_cloudstore.exceptions import BatchInterruptedError, BatchStoppedError
from tests.unit.batch.folders import SCOPE, MemoryFolder, begun, digest_of, line, queued, read


def test_an_older_try_and_another_process_of_the_same_try_are_stopped() -> None:
    folder = MemoryFolder()
    first, second = (Receipts(folder, Try(SCOPE)) for _ in range(2))
    first.begin()
    second.begin()
    for superseded, newer in ((first, 1), (second, 2)):
        if newer == 2:
            begun(folder, 2)
        with pytest.raises(BatchInterruptedError, match=f"the mark of try {newer}") as error:
            superseded.write([line("1")])
        assert error.value.cause == "superseded"
    with pytest.raises(BatchInterruptedError):
        begun(folder, 1)
    assert len(folder.files) == 1


@pytest.mark.parametrize("is_local", [True, False])
def test_a_later_try_that_finds_no_mark_refuses_a_local_folder_and_warns_of_a_store(
    is_local: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = MemoryFolder(is_local=is_local)
    for _ in range(2 if is_local else 1):
        with pytest.raises(BatchStoppedError) if is_local else nullcontext() as stopped:
            begun(folder, 2, place="/data/receipts")
        assert bool(folder.files) is not is_local
    if stopped:
        assert "no receipts of an earlier try in /data/receipts: is the folder shared by all workers?" in str(stopped.value)
        for way in ("folder that every worker shares", "start a new DAG run", "receipts=None"):
            assert way in str(stopped.value)
    assert caplog.messages == ([] if is_local else ["No receipts of an earlier try in /data/receipts: this try sends every URL."])
    folder.files.clear()
    begun(folder, 1)
    begun(folder, 3)


def test_a_folder_that_is_emptied_while_a_batch_runs_stops_it() -> None:
    folder = MemoryFolder()
    receipts = begun(folder)
    folder.files.clear()
    for lines in ([], [line("1")]):
        with pytest.raises(BatchStoppedError, match="s3://b/r was removed or emptied while the batch ran") as error:
            receipts.write(lines)
        assert (error.value.cause, error.value.permanent) == ("receipts", True)
    assert folder.files == {}


def test_the_id_of_a_batch_differs_with_each_part_of_its_scope_and_not_with_the_try() -> None:
    scopes = [("dag", "run", "task", "0"), ("dag", "run", "task", "1"), ("dagrun", "task", "0"), ("dag", "ru", "ntask", "0")]
    assert len({Try(scope).batch for scope in scopes}) == len(scopes)
    assert Try(SCOPE, 1).batch == Try(SCOPE, 2).batch


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


QUEUED = line("1")
DIGEST = digest_of("1").hex()
DAMAGES = {
    "cut": QUEUED[:-20],
    "empty line": "",
    "bytes": "\xff",
    "nested": "[" * 100_000,
    "list": "[]",
    "object": "{}",
    "short digest": QUEUED.replace(DIGEST, DIGEST[:-2]),
    "unknown status": QUEUED.replace("queued", "sent"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_part_is_named_and_is_no_outage(damage: str) -> None:
    names = [f"part-{Try(SCOPE).batch}-0001-{number:08d}-aa.jsonl" for number in range(3)]
    files = {name: f"{QUEUED}\n".encode() for name in names}
    files[names[1]] = f"{QUEUED}\n{damage}\n{QUEUED}\n".encode("latin-1")
    with pytest.raises(BatchStoppedError, match=f"receipts: line 2 of s3://b/r/{names[1]} is damaged") as error:
        read(begun(MemoryFolder(files), 2))
    assert (error.value.cause, error.value.permanent) == ("receipts", True)
    assert error.value.__context__ is None
