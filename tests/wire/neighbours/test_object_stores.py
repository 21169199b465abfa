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

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Try
from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator
from airflow_provider_cloudstore.receipts import read_receipts
from tests.one_try import start
from tests.support import assert_within_bounds, eventually
from tests.wire.neighbours.buckets import Bucket, url_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]

URLS = [f"https://source.example/{number}?sig=hunter{number}" for number in range(200)]
SECONDS = 0.05
"""How long an upload takes; one at a time."""
TWICE = 1 + 2 / SECONDS  # what one interruption may send twice: what was in flight, and two seconds of sending
MIB = 1024 * 1024


def test_a_batch_pauses_while_its_object_store_is_away_and_a_retry_resumes_after_a_kill(
    bucket: Bucket, emulator: Emulator
) -> None:
    def uploads() -> int:
        return int(emulator.state()["requests"].get("upload", 0))

    emulator.fault("delay", operation="upload", seconds=SECONDS, times=0)
    bucket.put("urls.txt", "\n".join(URLS).encode())
    manifest, receipts = f"{url_of(bucket)}/urls.txt", f"{url_of(bucket)}/receipts"  # a prefix that does not exist at first
    running = start(receipts, 1, manifest)
    eventually(lambda: uploads() > 20, 60)
    bucket.server.program.freeze()
    before = uploads()
    time.sleep(4)  # longer than the lease
    paused = uploads()
    time.sleep(2)
    assert uploads() == paused <= before + TWICE
    bucket.server.program.thaw()
    eventually(lambda: uploads() > paused + 40, 60)
    state = emulator.state()
    assert state["effects"]["upload"] == len({stored["source"] for stored in state["files"]})
    running.kill()
    running.communicate()
    assert uploads() < len(URLS)
    printed, _ = start(receipts, 2, manifest).communicate(timeout=300)
    summary = json.loads(printed.splitlines()[-1])
    assert summary["queued"] == len(URLS)
    assert summary["queued_earlier"] > 20
    arrived = Counter(stored["source"] for stored in emulator.state()["files"])
    assert_within_bounds(twice=arrived.total() - len(arrived), at_most=TWICE, lost=len({*URLS} - arrived.keys()))
    parts = [part for name, part in bucket.contents().items() if name.startswith("receipts/part-")]
    lines = [json.loads(line) for part in parts for line in part.splitlines()]
    digests = {hashlib.sha256(url.encode()).hexdigest() for url in URLS}
    assert {line["digest"] for line in lines if line["status"] == "queued"} == digests


def test_a_missing_bucket_stops_the_batch_and_none_is_created(bucket: Bucket) -> None:
    missing = f"{url_of(bucket, 'missing')}/receipts"
    for _ in range(2):
        with pytest.raises(exceptions.BatchFailedError, match="its bucket or container does not exist"):
            Receipts(Folder(ObjectStoragePath(missing)), Try(("dag",), 1)).begin()
    with pytest.raises(exceptions.InvalidInputError, match="there are no receipts at"):
        read_receipts(missing)


@pytest.mark.parametrize("size", [1000, 12 * MIB])
def test_a_target_is_complete_or_as_it_was(emulator: Emulator, bucket: Bucket, size: int) -> None:
    data = os.urandom(size)
    emulator.put_file(data, "f1")
    bucket.put("old", b"old")
    for name in ("new", "old"):
        with pytest.raises(exceptions.ChecksumError):
            CloudStoreHook().download("f1", f"{url_of(bucket)}/{name}", expected_sha256="0" * 64)
    assert bucket.contents() == {"old": b"old"}
    for after in (7 * MIB, 1):
        emulator.fault("drop_body", operation="download", after=after)
    found = DownloadFileOperator(task_id="t", file_id="f1", target=f"{url_of(bucket)}/old").execute({})
    assert (found["path"], found["bytes"]) == (f"{url_of(bucket)}/old", size)
    assert bucket.contents() == {"old": data}
