"""A batch's manifest and receipts, and downloads, in object stores that people really use, by Airflow's ``ObjectStoragePath``.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.folder import PathFolder
from airflow_provider_cloudstore.batch.recording import Receipts, Try
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator
from airflow_provider_cloudstore.receipts import read_receipts
from tests.one_try import result, start
from tests.support import eventually
from tests.unit.batch.folders import line
from tests.wire.neighbours.buckets import NAME
from tests.wire.neighbours.conftest import Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]

URLS = [f"https://source.example/{number}?sig=hunter{number}" for number in range(200)]
MANIFEST = "\n".join(URLS).encode()
SECONDS = 0.05
"""How long an upload takes; one at a time."""
TWICE = 1 + 2 / SECONDS  # what one outage may send twice: what was in flight, and two seconds of sending
MIB = 1024 * 1024


def slow_uploads(emulator: Emulator) -> None:
    emulator.fault("delay", operation="upload", seconds=SECONDS, times=0)


def uploads(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


def assert_every_url_arrived_and_has_a_receipt(store: Store, emulator: Emulator, twice: float) -> None:
    arrived = Counter(stored["source"] for stored in emulator.state()["files"])
    print(f"{uploads(emulator)} requests, {arrived.total() - len(arrived)} sent twice of at most {twice}")
    assert arrived.keys() == set(URLS)
    assert arrived.total() - len(arrived) <= twice
    receipts = [receipt for name, receipt in store.bucket.contents().items() if name.startswith("receipts/part-")]
    lines = [json.loads(line) for receipt in receipts for line in receipt.splitlines()]
    assert {line["digest"] for line in lines if line["status"] == "queued"} == {
        hashlib.sha256(url.encode()).hexdigest() for url in URLS
    }
    assert b"hunter" not in b"".join(receipts)


def test_a_batch_pauses_while_its_object_store_is_away_and_resumes(store: Store, emulator: Emulator) -> None:
    store.bucket.put("urls.txt", MANIFEST)
    slow_uploads(emulator)
    running = start(f"{store.root}/receipts", 1, f"{store.root}/urls.txt")  # a prefix that does not exist at first
    eventually(lambda: uploads(emulator) > 20, 60)
    store.bucket.server.program.freeze()
    before = uploads(emulator)
    time.sleep(6)  # longer than the lease
    paused = uploads(emulator)
    time.sleep(2)
    assert uploads(emulator) == paused <= before + TWICE
    assert len(URLS) > paused
    store.bucket.server.program.thaw()
    assert json.loads(result(running))["queued"] == len(URLS)
    assert_every_url_arrived_and_has_a_receipt(store, emulator, twice=0)


def test_a_retry_resumes_from_the_receipts_of_a_killed_process(store: Store, emulator: Emulator) -> None:
    store.bucket.put("urls.txt", MANIFEST)
    slow_uploads(emulator)
    running = start(f"{store.root}/receipts", 1, f"{store.root}/urls.txt")
    eventually(lambda: uploads(emulator) > len(URLS) / 2, 60)
    running.kill()
    running.communicate()
    summary = json.loads(result(start(f"{store.root}/receipts", 2, f"{store.root}/urls.txt")))
    assert summary["queued"] == len(URLS)
    assert summary["queued_earlier"] > 0
    assert_every_url_arrived_and_has_a_receipt(store, emulator, TWICE)


def receipts_in(place: str) -> Receipts:
    return Receipts(PathFolder(ObjectStoragePath(place)), Try(("dag",), 1), place)


def test_a_missing_bucket_stops_the_batch_and_none_is_created(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(exceptions.BatchStoppedError, match="its bucket or container does not exist"):
            receipts_in(f"{store.at('missing')}/receipts").begin()
    with pytest.raises(exceptions.InvalidInputError, match="there are no receipts at"):
        read_receipts(f"{store.at('missing')}/receipts")
    assert store.bucket.buckets() == [NAME]


def test_credentials_that_expire_are_no_reason_to_stop(store: Store) -> None:
    receipts = receipts_in(f"{store.at(NAME, 'revocable')}/receipts")
    receipts.begin()
    store.bucket.revoke()
    with pytest.raises(Exception, match=r"\S") as error:
        receipts.write([line("1")])
    assert not isinstance(error.value, exceptions.BatchStoppedError)
    store.bucket.restore()
    receipts.write([line("1")])
    assert len([name for name in store.bucket.contents() if name.startswith("receipts/part-")]) == 1


@pytest.mark.parametrize("size", [1000, 12 * MIB])
def test_a_download_through_lost_connections_is_one_whole_object(emulator: Emulator, store: Store, size: int) -> None:
    data = os.urandom(size)
    emulator.put_file(data, "f1")
    for after in (7 * MIB, MIB, 1):
        emulator.fault("drop_body", operation="download", after=after)
    target = f"{store.root}/folder/whole"
    found = DownloadFileOperator(task_id="t", file_id="f1", target=target).execute({})
    assert (found["path"], found["bytes"]) == (target, size)
    assert store.bucket.contents() == {"folder/whole": data}
    assert ObjectStoragePath(found["path"]).read_bytes() == data


@pytest.mark.parametrize("size", [1000, 12 * MIB])
def test_a_download_that_fails_leaves_what_was_there(emulator: Emulator, store: Store, size: int) -> None:
    emulator.put_file(os.urandom(size), "f1")
    store.bucket.put("old", b"old")
    for target in (f"{store.root}/new", f"{store.root}/old"):
        with pytest.raises(exceptions.ChecksumError):
            CloudStoreHook().download("f1", target, expected_sha256="0" * 64)
    assert store.bucket.contents() == {"old": b"old"}
