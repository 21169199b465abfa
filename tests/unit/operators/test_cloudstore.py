from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from airflow_provider_cloudstore.protocol import waiting
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.dag_runs import run_dag as run_and_tell
from tests.dags import operator_dags as dags
from tests.support import rendered_fields, run_dag, store_file

SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"
SHOWN = "ftp://***@127.0.0.1:9/file?***"

pytestmark = pytest.mark.usefixtures("airflow_db")


def test_deleting_returns_what_was_asked_when_and_what_the_service_said(emulator: Emulator) -> None:
    deleted = DeleteFolderOperator(task_id="delete", folder_id="staging").execute({})
    assert deleted.keys() == {"folder_id", "requested_at", "response", "existed"}
    assert deleted["existed"] is True
    assert deleted["folder_id"] == "staging"
    assert datetime.fromisoformat(deleted["requested_at"]).utcoffset() is not None
    assert deleted["response"]["_status"] == "success"
    assert emulator.state()["effects"] == {"delete": 1}


def test_mapped_uploads_send_the_real_urls_and_show_the_redacted_ones(emulator: Emulator) -> None:
    assert run_dag(dags.mapped_upload, {"sources": [f"{SOURCE}{number}" for number in range(3)]})[0] == "success"
    assert sorted(stored["source"] for stored in emulator.state()["files"]) == [f"{SOURCE}{number}" for number in range(3)]
    assert [fields["url"] for fields in rendered_fields("mapped_upload", "upload")] == [SHOWN] * 3


def test_a_url_rendered_twice_is_still_sent_as_it_was() -> None:
    operator = RemoteUrlUploadOperator(task_id="upload", url=SOURCE)
    for _ in range(2):
        operator.render_template_fields({})
        assert operator.url == SHOWN
        assert operator._unredacted_url is not None
        assert operator._unredacted_url.reveal() == SOURCE


@pytest.mark.parametrize("broken", ["user:hunter2@host/x", "https:/user:hunter2@host/x", "https://[bad/?sig=hunter2"])
def test_a_text_that_is_no_url_but_holds_credentials_is_not_shown(broken: str) -> None:
    operator = RemoteUrlUploadOperator(task_id="upload", url=broken)
    operator.render_template_fields({})
    assert "hunter2" not in operator.url


@pytest.mark.parametrize("given", [["https://u:hunter2@h/x"], {"https://u:hunter2@h/x": 1}, "https://user:hunter/2@host/x"])
def test_a_source_that_is_no_text_or_ambiguous_is_refused_and_shown_nowhere(emulator: Emulator, given: Any) -> None:
    operator = RemoteUrlUploadOperator(task_id="upload", url=given)
    for _ in range(2):
        operator.render_template_fields({})
        assert operator.url == "***"
    with pytest.raises(InvalidInputError) as refused:
        operator.execute({})
    assert "hunter" not in str(refused.value)
    assert isinstance(refused.value, AirflowFailException)


def test_a_link_is_a_token_for_one_task_and_a_whole_link_for_another(emulator: Emulator) -> None:
    store_file(emulator)
    state, _, values = run_dag(dags.link)
    assert state == "success"
    token, link = values["use"]
    assert token == values["link"] == emulator.state()["tokens"][0]["token"]
    assert link.keys() == {"file_id", "token", "url_with_token", "created_at", "expires_at"}
    assert (link["file_id"], link["token"]) == ("f1", token)
    assert link["url_with_token"] == f"{emulator.url}/download?download_token={token}"
    assert datetime.fromisoformat(link["created_at"]) < datetime.fromisoformat(link["expires_at"])


def test_a_link_is_not_stored_where_xcoms_are_off(emulator: Emulator) -> None:
    store_file(emulator)
    run = dags.link_without_xcom.test()
    assert run.state == "success"
    ti = run.get_task_instances()[0]
    assert ti.xcom_pull(task_ids="link") is None
    assert ti.xcom_pull(task_ids="link", key="download_link") is None


def test_a_missing_upstream_value_deletes_nothing_and_spends_no_retry(emulator: Emulator) -> None:
    run = dags.delete_nothing.test()
    assert run.state == "failed"
    assert run.get_task_instances()[0].try_number == 1
    assert emulator.state()["requests"] == {}


def test_a_wait_that_timed_out_is_not_begun_again_by_airflows_retries(emulator: Emulator) -> None:
    run = dags.impatient.test()
    assert {ti.task_id: (str(ti.state), ti.try_number) for ti in run.get_task_instances()} == {
        "link": ("failed", 1),
        "sensor": ("failed", 1),
    }


@pytest.fixture(params=dags.SOFT_FAIL)
def soft_fail(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A DAG with a sensor that has ``soft_fail``, in each mode; in mode ``deferred`` it defers after one poll."""
    if request.param == "reschedule" and version("apache-airflow").startswith("3.0."):
        pytest.skip("dag.test() of Airflow 3.0 cannot run a sensor in mode reschedule")
    for seconds in ("ON_WORKER_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(waiting, seconds, 0.0)
    return dags.SOFT_FAIL[request.param]


def outcome(dag: Any) -> tuple[str, int]:
    """Run a DAG of one task; the task's state and its number of tries."""
    (task,) = dag.test().get_task_instances()
    return str(task.state), task.try_number


def test_with_soft_fail_a_refused_token_skips_too(emulator: Emulator, soft_fail: Any) -> None:
    emulator.fault("status", status=404)
    emulator.fault("status", status=401, times=0)
    assert outcome(soft_fail) == ("skipped", 1)
    assert emulator.state()["requests"] == {"link": 2}


def test_a_folder_that_is_gone_is_a_success_that_says_so_where_that_was_asked_for(emulator: Emulator) -> None:
    for folder_id, existed in (("gone", False), (emulator.make_folder("there"), True)):
        deleted = DeleteFolderOperator(task_id="delete", folder_id=folder_id, ignore_missing=True).execute({})
        assert deleted["existed"] is existed
    assert emulator.state()["effects"] == {"delete": 1}


def test_the_id_of_an_uploaded_file_works_in_taskflow_and_as_an_argument(emulator: Emulator) -> None:
    run = run_and_tell(dags.uploaded_id, {"source": emulator.serve(b"a")})
    assert run.state == "success", run
    assert run.values["echo"] == emulator.state()["files"][0]["file_id"]
    assert list(run.values["upload"]) == ["file_id", "url", "requested_at", "response"]
    assert run.values["upload"]["file_id"] == run.values["echo"]


def test_mapped_tasks_chain_from_a_list_of_urls_to_one_file_of_links(emulator: Emulator, tmp_path: Path) -> None:
    sources = [emulator.serve(b"%d" % number, f"{number}") for number in range(2)]
    run = run_and_tell(dags.chain, {"sources": sources, "target": str(tmp_path / "links")})
    assert run.state == "success", run
    collected = [line.split() for line in (tmp_path / "links").read_text().splitlines()]
    assert [file_id for file_id, _ in collected] == [run.values[f"upload[{index}]"]["file_id"] for index in range(2)]
    assert len({url for _, url in collected if url.startswith(f"{emulator.url}/download?download_token=")}) == 2
    assert emulator.state()["files"] == []


def test_what_the_hook_returns_as_a_dict_is_what_the_operator_returns(emulator: Emulator) -> None:
    source = emulator.serve(b"a")
    for body, file_id in ((None, None), ("{}", "")):
        for _ in range(2 if body else 0):
            emulator.fault("status", status=200, body=body, operation="upload")
        stored = RemoteUrlUploadOperator(task_id="upload", url=source).execute({})
        with CloudStoreHook() as hook:
            told = hook.upload_from_url(source).to_dict()
        assert list(stored) == list(told) == ["file_id", "url", "requested_at", "response"]
        assert file_id is None or stored["file_id"] == told["file_id"] == file_id


@pytest.mark.parametrize(
    "operator",
    [
        lambda: DeleteFolderOperator(task_id="t", folder_id="staging"),
        lambda: RemoteUrlUploadOperator(task_id="t", url="ftp://127.0.0.1:9/f"),
        lambda: RemoteUrlBatchUploadOperator(task_id="t", urls=["ftp://127.0.0.1:9/f"], receipts=None),
        lambda: DownloadLinkOperator(task_id="t", file_id="f1", wait_for_file=True),
        lambda: DownloadFileOperator(task_id="t", file_id="f1", target="/dev/null", execution_timeout=timedelta(minutes=1)),
        lambda: FileAvailableSensor(task_id="t", file_id="f1"),
    ],
)
def test_an_operator_runs_in_a_unit_test_without_a_task_instance(
    emulator: Emulator, operator: Callable[[], BaseOperator], tmp_path: Path
) -> None:
    store_file(emulator)
    task: Any = operator()
    if isinstance(task, DownloadFileOperator):
        task.target = str(tmp_path / "file")
    task.execute({})
    assert len(emulator.state()["requests"]) >= 1


def test_an_upload_whose_answer_tells_no_id_is_followed_by_a_refusal_that_names_the_extra(emulator: Emulator) -> None:
    emulator.fault("status", operation="upload", status=200, body=json.dumps({"result": {"key": "f77"}}))
    run = run_and_tell(dags.uploaded_id, {"source": "http://127.0.0.1:9/x"})
    assert run.tasks == {"upload": "success", "echo": "success", "link": "failed"}  # failed, and not up_for_retry
    assert "'file_id_path'" in run.errors["link"]
    assert run.values["echo"] == ""  # the XCom, which is pushed all the same
    assert emulator.state()["requests"] == {"upload": 1}


@pytest.mark.parametrize("name", ["timeout", "poll_interval"])
@pytest.mark.parametrize("value", ["60", None, 0, -1, float("nan")])
def test_what_is_no_number_of_seconds_is_refused_in_words_of_our_own(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a number above 0"):
        DownloadLinkOperator(task_id="link", file_id="f1", **{name: value})
