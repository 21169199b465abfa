"""Receipts in object stores that people really use: what one request writes, and which errors no retry mends.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath

from airflow_provider_cloudstore.batch.folder import PathFolder
from airflow_provider_cloudstore.batch.recording import Receipts, Try
from airflow_provider_cloudstore.exceptions import BatchStoppedError, InvalidInputError
from airflow_provider_cloudstore.receipts import read_receipts
from tests.unit.batch.folders import digest_of
from tests.wire.neighbours.buckets import FIRST, NAME
from tests.wire.neighbours.conftest import Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]


def receipts_of(store: Store, number: int, folder: str = f"{NAME}/receipts") -> Receipts:
    place = f"{store.root}{folder}"
    return Receipts(PathFolder(ObjectStoragePath(place)), Try(("dag",), number), place)


@contextmanager
def requests(store: Store) -> Iterator[list[int]]:
    """Appends the number of requests within the block."""
    before, found = store.gateway.requests, [0]
    yield found
    found[0] = store.gateway.requests - before


def line(url: str) -> str:
    return json.dumps(
        {"line": 1, "digest": digest_of(url).hex(), "url": url, "status": "queued", "try": 1, "response": "x" * 990}
    )


def test_a_part_is_rewritten_with_one_request_and_read_with_two_at_most(store: Store) -> None:
    first = receipts_of(store, 1)
    first.begin()
    urls = [f"{number}" for number in range(1_100)]
    first.write([line(url) for url in urls[:400]])
    with requests(store) as for_the_mark:
        first.write([])
    with requests(store) as found:
        first.write([line(url) for url in urls[400:800]])
    assert found[0] - for_the_mark[0] == 1
    first.write([line(url) for url in urls[800:]])
    first.write([line("last")])
    texts = store.bucket.texts("receipts/part-")
    assert [text.count("\n") for text in texts] == [1_100, 1]
    retry = receipts_of(store, 2)
    retry.begin()
    with requests(store) as found:
        read = [digest for part in retry.parts for digest, _ in retry.read(part)]
    assert read == list(map(digest_of, [*urls, "last"]))
    assert found[0] <= 6  # two for each part, since s3fs asks for the size first, and the list of files
    assert [receipt["url"] for receipt in read_receipts(f"{store.root}{NAME}/receipts")] == ["last", *urls[::-1]]


def test_a_missing_bucket_stops_the_batch_and_none_is_created(store: Store) -> None:
    with pytest.raises(BatchStoppedError, match="its bucket or container does not exist") as error:
        receipts_of(store, 1, "missing/receipts").begin()
    assert error.value.cause == "receipts"
    with pytest.raises(InvalidInputError, match="there are no receipts at"):
        read_receipts(f"{store.root}missing/receipts")
    with pytest.raises(BatchStoppedError):
        receipts_of(store, 1, "missing/receipts").begin()


def test_credentials_that_expire_are_no_reason_to_stop(store: Store) -> None:
    receipts = receipts_of(store, 1)
    receipts.begin()
    store.gateway.expired = store.bucket.marks(FIRST)
    with pytest.raises(Exception, match=r"\S") as error:
        receipts.write([line("1")])
    assert not isinstance(error.value, BatchStoppedError)
    store.gateway.expired = b""
    receipts.write([line("1")])
    assert len(store.bucket.texts("receipts/part-")) == 1
