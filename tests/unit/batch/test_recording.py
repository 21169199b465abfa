from __future__ import annotations

from contextlib import nullcontext

import pytest

from airflow_provider_cloudstore.batch.recording import Receipts, Try
from airflow_provider_cloudstore.exceptions import BatchInterruptedError, BatchStoppedError
from tests.unit.batch.folders import SCOPE, MemoryFolder, begun, digest_of, line, read


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
    refused = pytest.raises(BatchStoppedError, match="no receipts of an earlier try in s3://b/r: is the folder shared")
    with refused if is_local else nullcontext():
        begun(folder, 2)
    assert bool(folder.files) is not is_local
    assert caplog.messages == ([] if is_local else ["No receipts of an earlier try in s3://b/r: this try sends every URL."])
    folder.files.clear()
    begun(folder, 1)
    begun(folder, 3)


def test_a_folder_that_is_emptied_while_a_batch_runs_stops_it() -> None:
    folder = MemoryFolder()
    receipts = begun(folder)
    folder.files.clear()
    with pytest.raises(BatchStoppedError, match="s3://b/r was removed or emptied while the batch ran") as error:
        receipts.write([])
    assert (error.value.cause, error.value.permanent) == ("receipts", True)
    assert folder.files == {}


def test_the_id_of_a_batch_differs_with_each_part_of_its_scope_and_not_with_the_try() -> None:
    scopes = [("dag", "run", "task", "0"), ("dag", "run", "task", "1"), ("dag", "ru", "ntask", "0")]
    assert len({Try(scope).batch for scope in scopes}) == len(scopes)
    assert Try(SCOPE, 1).batch == Try(SCOPE, 2).batch


QUEUED = line("1")
DIGEST = digest_of("1").hex()
DAMAGES = {
    "cut": QUEUED[:-20],
    "empty line": "",
    "bytes": "\xff",
    "list": "[]",
    "short digest": QUEUED.replace(DIGEST, DIGEST[:-2]),
    "long digest": QUEUED.replace(DIGEST, DIGEST + "00"),
    "unknown status": QUEUED.replace("queued", "sent"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_part_is_named_and_is_no_outage(damage: str) -> None:
    names = [f"part-{Try(SCOPE).batch}-0001-{number:08d}-aa.jsonl" for number in range(3)]
    files = {name: f"{QUEUED}\n".encode() for name in names}
    files[names[1]] = f"{QUEUED}\n{damage}\n{QUEUED}\n".encode("latin-1")
    with pytest.raises(BatchStoppedError, match=f"receipts: line 2 of s3://b/r/{names[1]} is damaged") as error:
        read(MemoryFolder(files), 2)
    assert (error.value.cause, error.value.permanent) == ("receipts", True)


@pytest.mark.parametrize("damage", ["", "{", "[]", "7", "{}", '{"number": "1", "process": "aa"}', '{"number": 1}', "\xff", "[" * 10**5])
def test_a_damaged_owner_file_is_named_and_is_no_outage(damage: str) -> None:
    folder = MemoryFolder()
    receipts = begun(folder)
    (name,) = folder.files
    folder.files[name] = damage.encode("latin-1")
    for fails in (lambda: receipts.write([line("1")]), lambda: begun(folder, 2)):
        with pytest.raises(BatchStoppedError, match=f"receipts: s3://b/r/{name} is damaged") as error:
            fails()
        assert (error.value.cause, error.value.permanent) == ("receipts", True)
