"""The DAG of every how-to page runs, copied out of the page, and does what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "howto"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)


def dag_of(page: str) -> Any:
    """The page's DAG; Airflow runs only what lies in its DAGs folder."""
    file = Path(os.environ["AIRFLOW_HOME"]) / "dags" / f"howto_{page.replace('-', '_')}.py"
    file.write_text(blocks(page)[0])
    names: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["dag"]


def test_every_page_is_tested_here() -> None:
    source = Path(__file__).read_text()
    assert not [page.stem for page in PAGES.glob("*.md") if f'"{page.stem}"' not in source]


def test_nightly_cleanup(emulator: Emulator) -> None:
    dag = dag_of("nightly-cleanup")
    emulator.make_folder("exports-2026-03-01")
    for day in (8, 9):
        run = run_dag(dag, logical_date=datetime(2026, 3, day, tzinfo=UTC))
        assert run.state == "success", run
        assert [run.values[f"delete[{index}]"]["existed"] for index in (0, 1)] == [day == 8, False]
    assert emulator.state()["effects"] == {"delete": 1}


def test_upload_wait_hand_on(emulator: Emulator) -> None:
    run = run_dag(dag_of("upload-wait-hand-on"), {"source_url": emulator.serve(b"x" * 1000)})
    assert run.state == "success", run
    assert run.values["download"] == 1000


def test_outcome_unknown(emulator: Emulator) -> None:
    dag = dag_of("outcome-unknown")
    run = run_dag(dag, {"source_url": emulator.serve(b"x")})
    assert run.values["upload"] == emulator.state()["files"][0]["file_id"], run
    emulator.fault("drop_after", operation="upload")
    run = run_dag(dag, {"source_url": "http://127.0.0.1:9/a.csv?sig=secret"})
    assert run.values["upload"] == "look it up: http://127.0.0.1:9/a.csv?***", run
    assert emulator.state()["requests"]["upload"] == 2


def test_rotate_the_token(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = dag_of("rotate-the-token")
    assert run_dag(dag).state == "success"
    emulator.call(lambda service: setattr(service, "access_token", "the-new-token"))
    run = run_dag(dag)
    assert run.state == "failed"
    assert "token" in run.errors["check"]
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
    assert run_dag(dag).state == "success"


def test_many_uploads(emulator: Emulator, tmp_path: Path) -> None:
    manifest = tmp_path / "urls.csv"
    manifest.write_text("url\n" + "".join(f"{emulator.serve(b'x', str(number))}\n" for number in range(5)))
    run = run_dag(dag_of("many-uploads"), {"manifest": str(manifest), "receipts": str(tmp_path / "receipts")})
    assert run.state == "success", run
    assert run.values["upload"]["queued"] == 5
    receipts = "".join(file.read_text() for file in (tmp_path / "receipts").rglob("*.jsonl"))
    assert {json.loads(line)["status"] for line in receipts.splitlines()} == {"queued"}


def test_the_sample_of_test_your_dag_passes_from_an_empty_folder(tmp_path: Path) -> None:
    dag, conftest, test = blocks("test-your-dag")
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "share.py").write_text(dag)
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_share.py").write_text(test)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout[-4000:] + done.stderr[-1000:]
