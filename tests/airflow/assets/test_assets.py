"""The pair of DAGs over an asset, retry times and lineage, on a whole Airflow at DEBUG.

Slow: ``make test-assets`` runs it on both Airflows, with the OpenLineage provider.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.leaks import leaks
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAIR = ("publish_file.py", "use_published_file.py")
CONTENT = b"x" * 200_000
ACCESS_TOKEN = "canary+access/token=%&#é"
DOWNLOAD_TOKEN = "canary+download/token=%&#é"  # how each of them begins
PASSWORD = "canary+pass/word=%&#é x"
SIGNATURE = "canary+signature/=%&#é x"
SOURCE = f"ftp://user:{quote(PASSWORD, safe='')}@127.0.0.1:9/file?a=b&sig={quote(SIGNATURE, safe='')}"
SECRETS = (ACCESS_TOKEN, DOWNLOAD_TOKEN, PASSWORD, SIGNATURE)
EVENTS = "dataset_event" if AIRFLOW_2 else "asset_event"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    numbers = itertools.count()
    patch = pytest.MonkeyPatch()
    patch.setattr("secrets.token_urlsafe", lambda size: f"{DOWNLOAD_TOKEN}{next(numbers)}")
    with Emulator(access_token=ACCESS_TOKEN, fetch_delay=3) as running:
        yield running
    patch.undo()


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


def unpause(airflow: RealAirflow, dag_id: str) -> None:
    airflow.until(f"{dag_id} is known", lambda: airflow.rows("select 1 from serialized_dag where dag_id = ?", dag_id))
    airflow.cli("dags", "unpause", dag_id)


def extras(airflow: RealAirflow) -> list[dict[str, Any]]:
    return [json.loads(extra) for (extra,) in airflow.rows(f"select extra from {EVENTS} order by id")]


def test_a_published_file_starts_the_dag_that_uses_it(airflow: RealAirflow, emulator: Emulator) -> None:
    unpause(airflow, "example_use_published_file")
    file_id = emulator.put_file(CONTENT, "f1")
    run_id = airflow.trigger("example_publish_file", file_id=file_id)
    assert set(airflow.finish(run_id).values()) == {"success"}
    assert extras(airflow) == [{"file_id": file_id}]
    over = "select state from dag_run where dag_id = 'example_use_published_file' and state in ('success', 'failed')"
    assert airflow.until("the consumer has run", lambda: airflow.rows(over)) == [("success",)]
    assert "200000" in str(airflow.rows("select value from xcom where task_id = 'use'"))


def test_lineage_leads_from_source_to_file_and_from_manifest_to_receipts(airflow: RealAirflow, emulator: Emulator) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="make test-assets has the OpenLineage provider")
    emulator.put_file(CONTENT, "downloaded")
    before = {stored["file_id"] for stored in emulator.state()["files"]}
    run_id = airflow.trigger("lineage")
    assert set(airflow.finish(run_id).values()) == {"success"}
    service = emulator.url.removeprefix("http://")
    new = {stored["file_id"] for stored in emulator.state()["files"]} - before

    def complete() -> dict[str, tuple[set[Any], set[Any]]]:
        lines = lineage_file(airflow).read_text().splitlines() if lineage_file(airflow).exists() else []
        events = [event for event in map(json.loads, lines) if event["eventType"] == "COMPLETE" and "." in event["job"]["name"]]
        return {event["job"]["name"]: (datasets(event["inputs"]), datasets(event["outputs"])) for event in events}

    wanted = {"lineage.upload", "lineage.batch", "lineage.by_hook", "lineage.download"}
    airflow.until("the events are written", lambda: wanted <= complete().keys())
    found = complete()
    source = {("ftp://127.0.0.1:9", "file")}
    assert found["lineage.upload"][0] == source
    uploaded = found["lineage.upload"][1] | found["lineage.by_hook"][1]
    assert uploaded <= {(f"cloudstore://{service}", file_id) for file_id in new}
    assert len(uploaded) == 2
    work = airflow.home.parent
    assert found["lineage.batch"] == ({("file", str(work / "urls.csv"))}, {("file", str(work / "receipts"))})
    assert found["lineage.download"] == ({(f"cloudstore://{service}", "downloaded")}, {("file", str(work / "target"))})


def datasets(given: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["namespace"], one["name"]) for one in given}


def lineage_file(airflow: RealAirflow) -> Path:
    return airflow.home.parent / "lineage.jsonl"


def test_no_event_lineage_table_or_log_shows_a_secret(airflow: RealAirflow) -> None:
    texts = [*airflow.logs(), *airflow.consoles()]
    if lineage_file(airflow).exists():
        texts.append((lineage_file(airflow), lineage_file(airflow).read_text()))
    texts += [(receipt, receipt.read_text()) for receipt in (airflow.home.parent / "receipts").rglob("*.jsonl")]
    tables: list[tuple[Path, str]] = []
    for table, row in airflow.tables():
        values = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row.values()]
        tables.append((Path(table), "\n".join(values)))
    assert {EVENTS, "xcom", "rendered_task_instance_fields"} <= {str(table) for table, _ in tables}
    assert not leaks([*texts, *tables], SECRETS)
