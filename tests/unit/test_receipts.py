from __future__ import annotations

import gc
import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Status, Try
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.receipts import read_receipts, write_failed
from tests.unit.batch.folders import digest_of

Outcome = tuple[str, Status]
FAILED = Status.FAILED


def write(path: Path, number: int, *outcomes: Outcome, run: str = "run", size: int = 0) -> Try:
    """Let one try of a batch write its receipts."""
    writer = Try(("dag", run), number)
    receipts = Receipts(Folder(path), writer)
    receipts.begin()
    for start in range(0, len(outcomes), 100):
        receipts.write([line_of(url, status, number, size) for url, status in outcomes[start : start + 100]])
    return writer


def line_of(url: str, status: Status, number: int, size: int) -> str:
    response = {"file_id": url, "more": "x" * size} if status is Status.QUEUED else None
    told: dict[str, Any] = {"error": "refused"} if response is None else {"file_id": url, "response": response}
    ledger = Ledger(number)
    ledger.record(Entry(1, url), status, url=url, **told)
    return ledger.drain_receipts()[0]


def test_each_url_of_each_batch_is_returned_once_with_its_last_outcome(tmp_path: Path) -> None:
    write(tmp_path, 1, ("a", FAILED), ("b", Status.QUEUED), ("c", FAILED), ("c", Status.QUEUED))
    write(tmp_path, 2, ("a", Status.UNKNOWN), ("d", FAILED))
    writer = write(tmp_path, 10, ("d", Status.QUEUED))
    another = write(tmp_path, 1, ("a", FAILED), run="another")
    receipts = list(read_receipts(str(tmp_path)))
    found = [(receipt["url"], receipt["status"], receipt["try"]) for receipt in receipts if receipt["batch"] == writer.batch]
    assert found == [("d", "queued", 10), ("a", "unknown", 2), ("c", "queued", 1), ("b", "queued", 1)]
    fields = {"batch": writer.batch, "line": 1, "digest": digest_of("d").hex(), "url": "d", "status": "queued", "try": 10}
    assert {**fields, "file_id": "d", "response": {"file_id": "d", "more": ""}} in receipts
    fields = {"batch": another.batch, "line": 1, "digest": digest_of("a").hex(), "url": "a", "status": "failed", "try": 1}
    assert {**fields, "error": "refused"} in receipts


def test_a_folder_without_receipts_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text("{}")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidInputError, match=f"there are no receipts at {path}: check the path"):
            read_receipts(path)


def test_the_receipts_are_streamed(tmp_path: Path) -> None:
    write(tmp_path, 1, *((f"{number}", Status.QUEUED) for number in range(800)), size=15_000)
    assert len(list(tmp_path.glob("part-*"))) > 7
    stored = sum(file.stat().st_size for file in tmp_path.iterdir())
    gc.collect()
    tracemalloc.start()
    assert sum(1 for _ in read_receipts(tmp_path)) == 800
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000 < stored


MANIFESTS: dict[str, tuple[bytes, list[Outcome], bytes]] = {
    "urls.csv": (
        b'id,url,note\r\n1,https://h/a,"one, \xff"\r\n2\r\n\r\n3,https://h/b,x\r\n4,https://h/c,y\r\n5,https://h/a,again\r\n',
        [("https://h/a", FAILED), ("line 3", FAILED), ("https://h/b", Status.QUEUED), ("https://h/c", Status.UNKNOWN)],
        b'id,url,note\r\n1,https://h/a,"one, \xff"\r\n2\r\n',
    ),
    "list.tsv": (
        b"TsvHttpData-1.0\nhttps://h/a\t1357\twHENa08V36iPYAsOa2JAdw==\nhttps://h/b\t2\nhttps://h/c\n",
        [("https://h/a", FAILED), ("https://h/b", Status.QUEUED), ("https://h/c", FAILED)],
        b"TsvHttpData-1.0\nhttps://h/a\t1357\twHENa08V36iPYAsOa2JAdw==\nhttps://h/c\n",
    ),
    "urls.txt": (
        b"# ours\nhttps://h/a?s=1\n\nnot-a-url\n# more\nhttps://h/b",
        [("https://h/a?s=1", Status.QUEUED), ("not-a-url", FAILED), ("https://h/b", FAILED)],
        b"# ours\nnot-a-url\nhttps://h/b",
    ),
    "urls.jsonl": (
        b'{"url": "https://h/a", "more": [1]}\n{"ur\n{"url": "https://h/b"}\n{"url": "https://h/c"}\n',
        [("https://h/a", FAILED), ("line 2", FAILED), ("https://h/b", FAILED)],  # the last one was not sent
        b'{"url": "https://h/a", "more": [1]}\n{"ur\n{"url": "https://h/b"}\n',
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_lines_that_failed_are_a_manifest_with_the_same_header_uncompressed(tmp_path: Path, name: str) -> None:
    content, outcomes, expected = MANIFESTS[name]
    manifest, target = tmp_path / name, tmp_path / f"failed-{name}"
    manifest.write_bytes(gzip.compress(content))
    write(tmp_path / "receipts", 1, *outcomes)
    assert write_failed(tmp_path / "receipts", manifest, target) == sum(status is FAILED for _, status in outcomes)
    assert target.read_bytes() == expected


def test_the_receipts_of_two_batches_make_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("https://h/a\n")
    for run in ("run", "another"):
        write(tmp_path / "receipts", 1, ("https://h/a", FAILED), run=run)
    with pytest.raises(InvalidInputError, match=r"(?s)the receipts of several batches.*Give each run a folder"):
        write_failed(tmp_path / "receipts", tmp_path / "urls", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_manifest_itself_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("https://h/a\nhttps://h/b\n")
    write(tmp_path / "receipts", 1, ("https://h/a", FAILED))
    with pytest.raises(InvalidInputError, match="the target is the manifest itself"):
        write_failed(tmp_path / "receipts", str(tmp_path / "urls"), tmp_path / "urls")
    assert (tmp_path / "urls").read_text() == "https://h/a\nhttps://h/b\n"
