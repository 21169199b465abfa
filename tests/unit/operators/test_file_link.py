from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.base import FileLink
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator, RemoteUrlUploadOperator
from tests.dag_runs import succeed
from tests.dags import operator_dags as dags
from tests.real_airflow import AIRFLOW_2
from tests.support import context, store_file

PAGE = "https://files.example.com/#/files/{file_id}"


@pytest.fixture
def with_pages(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator, and a connection whose service has pages of files."""
    connection = {**json.loads(emulator.connection), "extra": {"file_page_url": PAGE}}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    return emulator


def links(dag: Any) -> dict[str, str | None]:
    """By task, what the UI shows as its link: what Airflow stored of it, or on Airflow 2 what the link reads."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        run: Any = session.query(DagRun).filter(DagRun.dag_id == dag.dag_id).order_by(DagRun.id.desc()).first()
        instances = run.get_task_instances(session=session)
        if AIRFLOW_2:
            return {ti.task_id: FileLink().get_link(dag.get_task(ti.task_id), ti_key=ti.key) for ti in instances}
        return {ti.task_id: ti.xcom_pull(task_ids=ti.task_id, key=FileLink().xcom_key) for ti in instances}


@pytest.mark.usefixtures("airflow_db")
def test_each_task_with_a_file_links_to_its_page(with_pages: Emulator, tmp_path: Path) -> None:
    params = {"source": with_pages.serve(b"x"), "target": str(tmp_path / "file")}
    run = succeed(dags.pages, params)
    page = PAGE.replace("{file_id}", run.values["upload"])
    assert links(dags.pages) == dict.fromkeys(("upload", "sensor", "link", "download"), page)


@pytest.mark.usefixtures("airflow_db")
def test_without_the_extra_there_is_no_link(emulator: Emulator, tmp_path: Path) -> None:
    succeed(dags.pages, {"source": emulator.serve(b"x"), "target": str(tmp_path / "file")})
    assert not any(links(dags.pages).values())


def test_an_id_is_encoded_in_the_address_of_its_page(with_pages: Emulator) -> None:
    pushed: dict[str, Any] = {}
    store_file(with_pages, file_id="a/b #1")
    DownloadLinkOperator(task_id="link", file_id="a/b #1").execute(context(pushed))
    assert pushed["file_page"] == "https://files.example.com/#/files/a%2Fb%20%231"


@pytest.mark.skipif(AIRFLOW_2, reason="Airflow 2 asks for a link in its webserver")
def test_a_task_without_a_page_looks_for_no_xcom_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "XCom", None, raising=False)
    assert FileLink().get_link(RemoteUrlUploadOperator(task_id="t", url="https://h/f"), ti_key=None) == ""
