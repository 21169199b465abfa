"""The pair of DAGs over an asset, retry times and lineage, on a whole Airflow at DEBUG.

Slow: ``make test-assets`` runs it on both Airflows, with the OpenLineage provider.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.leaks import leaks, texts_of
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAIR = ("publish_file.py", "use_published_file.py")
CONTENT = b"x" * 200_000
ACCESS_TOKEN = "canary+access/token=%&#é"
PASSWORD = "canary+pass/word=%&#é x"
SIGNATURE = "canary+signature/=%&#é x"
SOURCE = f"ftp://user:{quote(PASSWORD, safe='')}@127.0.0.1:9/file?a=b&sig={quote(SIGNATURE, safe='')}"
EVENTS = "dataset_event" if AIRFLOW_2 else "asset_event"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(access_token=ACCESS_TOKEN, fetch_delay=3600) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    work = tmp_path_factory.mktemp("assets")
    shutil.copytree(Path(__file__).resolve().parent / "dags", work / "dags")
    for name in PAIR:
        shutil.copy(ROOT / "dags_examples" / name, work / "dags" / name)
    (work / "urls.csv").write_text(f"url\n{SOURCE}\n")
    env = {
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(work / "lineage.jsonl"), "append": True}
        ),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
        "PYTHONPATH": str(ROOT),
        "STAGED_MANIFEST": str(work / "urls.csv"),
        "STAGED_RECEIPTS": str(work / "receipts"),
        "STAGED_TARGET": str(work / "target"),
    }
    with RealAirflow(work / "home", work / "dags", **env) as running:
        running.store({"cloudstore_default": json.loads(emulator.connection)}, {"canary_source": SOURCE})
        running.start_all()
        yield running


def test_a_published_file_starts_the_dag_that_uses_it(airflow: RealAirflow, emulator: Emulator) -> None:
    airflow.unpause("example_use_published_file")
    file_id = emulator.put_file(CONTENT, "f1")
    run_id = airflow.trigger("example_publish_file", file_id=file_id)
    assert set(airflow.finish(run_id).values()) == {"success"}
    assert [json.loads(extra) for (extra,) in airflow.rows(f"select extra from {EVENTS}")] == [{"file_id": file_id}]
    over = "select state from dag_run where dag_id = 'example_use_published_file' and state in ('success', 'failed')"
    assert airflow.until("the consumer has run", lambda: airflow.rows(over)) == [("success",)]
    assert "200000" in str(airflow.rows("select value from xcom where task_id = 'use'"))


def test_lineage_leads_from_source_to_file_and_from_manifest_to_receipts(airflow: RealAirflow, emulator: Emulator) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="make test-assets has the OpenLineage provider")
    emulator.put_file(CONTENT, "downloaded")
    run_id = airflow.trigger("lineage")
    assert set(airflow.finish(run_id).values()) == {"success"}
    service, work = f"cloudstore://{emulator.url.removeprefix('http://')}", airflow.home.parent

    def found() -> dict[str, tuple[set[Any], set[Any]]]:
        lines = (work / "lineage.jsonl").read_text().splitlines() if (work / "lineage.jsonl").exists() else []
        events = [event for event in map(json.loads, lines) if event["eventType"] == "COMPLETE" and "." in event["job"]["name"]]
        return {event["job"]["name"]: (datasets(event["inputs"]), datasets(event["outputs"])) for event in events}

    wanted = {"lineage.upload", "lineage.batch", "lineage.by_hook", "lineage.download"}
    airflow.until("the events are written", lambda: wanted <= found().keys())
    complete = found()
    assert complete["lineage.upload"][0] == {("ftp://127.0.0.1:9", "file")}
    uploaded = complete["lineage.upload"][1] | complete["lineage.by_hook"][1]
    assert uploaded < {(service, stored["file_id"]) for stored in emulator.state()["files"] if stored["source"] == SOURCE}
    assert len(uploaded) == 2  # the third is the batch's
    assert complete["lineage.batch"] == ({("file", str(work / "urls.csv"))}, {("file", str(work / "receipts"))})
    assert complete["lineage.download"] == ({(service, "downloaded")}, {("file", str(work / "target"))})


def datasets(given: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["namespace"], one["name"]) for one in given}


def test_no_event_lineage_table_or_log_shows_a_secret(airflow: RealAirflow, emulator: Emulator) -> None:
    work, tables = airflow.home.parent, list(airflow.tables())
    assert {EVENTS, "xcom", "rendered_task_instance_fields"} <= {table for table, _ in tables}
    written = [*work.glob("lineage.jsonl"), *(work / "receipts").rglob("*.jsonl")]
    texts = [*airflow.logs(), *airflow.consoles(), *((file, file.read_text()) for file in written), *texts_of(tables)]
    secrets = [ACCESS_TOKEN, PASSWORD, SIGNATURE, *(token["token"] for token in emulator.state()["tokens"])]
    assert not leaks(texts, secrets)
