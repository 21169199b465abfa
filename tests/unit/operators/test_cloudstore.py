from __future__ import annotations

import asyncio
import json
import logging
from datetime import datetime
from typing import Any

import pytest

from airflow_provider_cloudstore.compat import AirflowFailException
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.hooks import connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DeleteFolderOperator, DownloadLinkOperator, RemoteUrlUploadOperator
from tests.dag_runs import run_dag, succeed
from tests.dags import operator_dags as dags
from tests.support import context, rendered_fields
from tests.unit.operators.tries import SHOWN, SOURCE


def test_deleting_returns_what_was_asked_when_and_what_the_service_said(emulator: Emulator) -> None:
    for folder_id, existed in (("gone", False), ("staging", True)):
        deleted: Any = DeleteFolderOperator(task_id="delete", folder_id=folder_id, ignore_missing=True).execute({})
        assert (deleted["folder_id"], deleted["existed"]) == (folder_id, existed)
    assert datetime.fromisoformat(deleted["requested_at"]).utcoffset() is not None
    assert deleted["response"]["_status"] == "success"
    assert emulator.state()["effects"] == {"delete": 1}


def test_a_url_rendered_twice_is_sent_as_it_was_and_shown_redacted(emulator: Emulator) -> None:
    operator = RemoteUrlUploadOperator(task_id="upload", url=SOURCE)
    for _ in range(2):
        operator.render_template_fields({})
        assert operator.url == SHOWN
    operator.execute({})
    assert [stored["source"] for stored in emulator.state()["files"]] == [SOURCE]


def test_a_callback_that_logs_the_url_before_it_is_sent_reveals_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr(connection, "mask_secret", masked.append)
    RemoteUrlUploadOperator(task_id="upload", url="{{ params.url }}").render_template_fields({"params": {"url": SOURCE}})
    line = f"on_execute_callback: {SOURCE}"
    for secret in masked:
        line = line.replace(secret, "***")
    assert "hunter" not in line


@pytest.mark.parametrize(
    "given",
    ["user:hunter2@host/x", "https:/user:hunter2@host/x", "https://[bad/?sig=hunter2", ["https://u:hunter2@h/x"]],
)
def test_a_source_that_is_no_url_is_refused_and_its_credentials_are_shown_nowhere(emulator: Emulator, given: Any) -> None:
    operator = RemoteUrlUploadOperator(task_id="upload", url=given)
    for _ in range(2):
        operator.render_template_fields({})
        assert "hunter" not in operator.url
    with pytest.raises(InvalidInputError) as refused:
        operator.execute({})
    assert "hunter" not in str(refused.value)
    assert isinstance(refused.value, AirflowFailException)
    assert emulator.state()["requests"] == {}


def test_a_link_without_a_url_has_that_of_the_connection_or_the_log_says_that_there_is_none(
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    emulator.fault("status", operation="link", times=0, status=200, body=json.dumps({"download_token": "t0ken+"}))
    extra = {"download_url": f"{emulator.url}/get?t={{token}}"}
    caplog.set_level(logging.INFO)
    for given, url in (({}, None), (extra, f"{emulator.url}/get?t=t0ken%2B")):
        connection = json.loads(emulator.connection) | {"extra": given}
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
        pushed: dict[str, Any] = {}
        caplog.clear()
        assert DownloadLinkOperator(task_id="link", file_id="f1", wait_for_file=bool(url)).execute(context(pushed)) == "t0ken+"
        logged = caplog.text + capsys.readouterr().out  # Airflow 2 logs by the first way, Airflow 3 by the second
        assert ("url_with_token is null: the response has no URL, and extra 'download_url'" in logged) is (url is None)
        assert pushed["download_link"]["url_with_token"] == asyncio.run(url_of_a_link()) == url


async def url_of_a_link() -> str | None:
    async with CloudStoreAsyncHook() as hook:
        return (await hook.create_download_link("f1")).url_with_token


@pytest.mark.usefixtures("airflow_db")
def test_mapped_tasks_chain_from_a_list_of_urls_that_are_shown_redacted_to_a_list_of_links(emulator: Emulator) -> None:
    sources = [f"{emulator.serve(b'%d' % number, f'{number}')}?sig=hunter{number}" for number in range(2)]
    run = succeed(dags.chain, {"sources": sources})
    assert sorted(stored["source"] for stored in emulator.state()["files"]) == sources  # mapped tasks run in any order
    assert [fields["url"] for fields in rendered_fields("chain", "upload")] == [f"{url.partition('?')[0]}?***" for url in sources]
    links, uploads = run.values["collect"]["links"], run.values["collect"]["uploads"]
    ids = [upload["file_id"] for upload in uploads]
    assert [link["file_id"] for link in links] == ids
    tokens = [link["token"] for link in links]
    assert [link["url_with_token"] for link in links] == [f"{emulator.url}/download?download_token={token}" for token in tokens]
    for name, values in (("upload", ids), ("wait", ids), ("link", tokens)):
        assert [run.values[f"{name}[{index}]"] for index in range(2)] == values


def test_what_the_hook_returns_as_a_dict_is_what_the_operator_returns(emulator: Emulator) -> None:
    emulator.fault("status", status=200, body="{}", operation="upload", times=2)
    pushed: dict[str, Any] = {}
    assert RemoteUrlUploadOperator(task_id="upload", url=SOURCE).execute(context(pushed)) == ""
    stored = pushed["upload"]
    with CloudStoreHook() as hook:
        told = hook.upload_from_url(SOURCE).to_dict()
    assert stored == {**told, "requested_at": stored["requested_at"]}
    assert (stored["file_id"], stored["url"], stored["response"]) == ("", SHOWN, {})


@pytest.mark.usefixtures("airflow_db")
def test_an_upload_whose_answer_tells_no_id_is_followed_by_a_refusal_that_no_retry_repeats(emulator: Emulator) -> None:
    emulator.fault("status", operation="upload", status=200, body=json.dumps({"result": {"key": "f77"}}))
    run = run_dag(dags.uploaded_id, {"source": "http://127.0.0.1:9/x"})
    assert run.tasks == {"upload": "success", "echo": "success", "link": "failed"}  # failed, and not up_for_retry
    assert run.values["echo"] == ""  # the XCom, which is pushed all the same
    assert emulator.state()["requests"] == {"upload": 1}
