"""The examples, run on a real Airflow against the emulator."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from dags_examples import bulk_upload, cleanup, read_file, share_link, staged_etl
from tests.support import rendered_fields, run_dag, store_file

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time


@pytest.fixture
def content() -> bytes:
    return os.urandom(1_500_000)


@pytest.fixture
def source(content: bytes) -> Any:
    """A file at a presigned URL: another emulator's download address."""
    with Emulator() as emulator:
        store_file(emulator, content=content)
        token = emulator.call(lambda service: service.store.create_token("f1"))
        assert token is not None
        yield f"{emulator.url}/download?download_token={token.token}"


def test_staged_etl_moves_the_bytes_and_leaves_nothing_behind(
    emulator: Emulator, source: str, content: bytes, tmp_path: Path
) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    conf = {"source_url": source, "expected_sha256": sha256, "target_folder": str(tmp_path), "staging_folder_id": "staging"}
    state, states, values = run_dag(staged_etl.dag, conf)
    assert state == "success"
    assert set(states.values()) == {"success"}
    assert values["load"] == {"bytes": len(content), "sha256": sha256}
    assert values["download"].keys() == {"file_id", "path", "bytes", "sha256"}
    assert list(tmp_path.iterdir()) == []
    after = emulator.state()
    assert after["effects"]["upload"] == after["effects"]["delete"] == 1
    assert after["files"] == after["tokens"] == after["folders"] == []


def test_staged_etl_cleans_up_even_when_the_middle_fails(
    emulator: Emulator, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for task in staged_etl.dag.tasks:
        monkeypatch.setattr(task, "retries", 0)
    conf = {"source_url": source, "expected_sha256": "0" * 64, "target_folder": str(tmp_path), "staging_folder_id": "staging"}
    state, states, _ = run_dag(staged_etl.dag, conf)
    assert state == "failed"
    assert (states["download"], states["load"], states["clean_up"]) == ("failed", "upstream_failed", "success")
    assert list(tmp_path.iterdir()) == []
    assert emulator.state()["files"] == []


def test_share_link_hands_the_token_to_one_task_and_the_link_to_another(emulator: Emulator) -> None:
    store_file(emulator)
    state, _, values = run_dag(share_link.dag, {"file_id": "f1"})
    assert state == "success"
    assert values["use_token"] == len(emulator.state()["tokens"][0]["token"])
    token = emulator.state()["tokens"][0]["token"]
    shown = f"{rendered_fields('example_share_link', 'use_token')} {rendered_fields('example_share_link', 'announce')}"
    assert shown.count("'***'") == 3
    assert token not in shown
    assert values["announce"].startswith("File f1 can be downloaded until 20")


def test_read_file_copies_a_file_and_reads_a_part_of_it_without_a_link_in_an_xcom(emulator: Emulator, tmp_path: Path) -> None:
    store_file(emulator, content=b"first line\n" + b"x" * 100_000)
    state, _, values = run_dag(read_file.dag, {"file_id": "f1", "target": f"file://{tmp_path}/copy"})
    assert state == "success"
    assert values == {"copy": None, "peek": "first line\n"}
    assert (tmp_path / "copy").stat().st_size == 100_011


def test_cleanup_deletes_every_folder_of_the_list_in_a_task_of_its_own(emulator: Emulator) -> None:
    store_file(emulator, folder_id="a")
    store_file(emulator, file_id="f2", folder_id="b")
    state, _, _ = run_dag(cleanup.dag, {"folder_ids": ["a", "b"]})
    assert state == "success"
    assert emulator.state()["effects"] == {"delete": 2}
    assert emulator.state()["folders"] == ["staging"]


def test_bulk_upload_queues_every_url_of_the_manifest_and_records_it(emulator: Emulator, tmp_path: Path) -> None:
    manifest = tmp_path / "urls.csv.gz"
    manifest.write_bytes(gzip.compress(b"id,url\n1,ftp://127.0.0.1:9/1\n2,ftp://127.0.0.1:9/2\n3,ftp://127.0.0.1:9/1\n"))
    state, _, values = run_dag(bulk_upload.dag, {"manifest": str(manifest), "receipts": str(tmp_path / "receipts")})
    assert state == "success"
    assert values["summarize"] == "2 of 3 URLs queued, 1 duplicates"
    assert emulator.state()["effects"] == {"upload": 2}
    assert len(list((tmp_path / "receipts").glob("*/part-*.jsonl"))) >= 1
