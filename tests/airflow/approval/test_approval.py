"""The DAGs of docs/guides/approve-a-deletion.md in a full Airflow: questions are read and answered through its REST API."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import RealAirflow

pytestmark = [
    pytest.mark.slow,  # make test-airflow
    pytest.mark.skipif(
        tuple(map(int, version("apache-airflow").split(".")[:2])) < (3, 1), reason="ApprovalOperator needs Airflow 3.1"
    ),
]

DAG, PROPOSALS = "approve_and_delete", "propose_deletions"
FOLDERS = ["exports-2025", "logs-2025"]
"""What the page's listing task returns."""


class Approvals:
    """The questions that an Airflow asks.

    :param airflow: a running one.
    """

    def __init__(self, airflow: RealAirflow) -> None:
        self.airflow, self._base = airflow, f"http://127.0.0.1:{airflow.port}"
        token = airflow.until("Airflow responds", self._token)
        self._headers = {"Authorization": f"Bearer {token}"}

    def _token(self) -> str:
        try:
            return str(requests.get(f"{self._base}/auth/token", timeout=10).json()["access_token"])
        except requests.RequestException:
            return ""

    def call(self, method: str, path: str, body: Any = None) -> requests.Response:
        return requests.request(method, f"{self._base}/api/v2{path}", json=body, headers=self._headers, timeout=120)

    def question(self, run_id: str, dag_id: str = DAG) -> dict[str, Any]:
        """Wait until a run asks, and return the question as the UI gets it.

        No person answers before the scheduler knows that the asking process has ended; it would fail the task
        (apache/airflow 67287).
        """
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/approve"
        waits = ("awaiting_input", "deferred")
        self.airflow.until(f"{run_id} asks", lambda: self.airflow.states(run_id).get(("approve", -1)) in waits)
        ended = re.compile(rf"executor event with state success .*'approve'.*{re.escape(run_id)}")
        output = self.airflow.output / "scheduler.txt"
        self.airflow.until("the scheduler knows", lambda: ended.search(output.read_text(errors="replace")))
        return dict(self.call("GET", f"{path}/-1/hitlDetails").json())

    def answer(self, run_id: str, option: str) -> dict[tuple[str, int], str]:
        """Click Approve or Reject, and wait until the run is finished.

        :returns: the states of its tasks.
        """
        path = f"/dags/{DAG}/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"
        response = self.call("PATCH", path, {"chosen_options": [option]})
        assert response.ok, response.text
        return self.airflow.finish(run_id)

    def state(self, run_id: str) -> str:
        return str(self.airflow.rows("select state from dag_run where run_id = ?", run_id)[0][0])


@pytest.fixture(scope="module")
def approvals(airflow: RealAirflow) -> Approvals:
    airflow.unpause(DAG)
    return Approvals(airflow)


def deletions(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("delete", 0))


def test_what_was_listed_is_shown_and_deleted_once_it_is_approved(approvals: Approvals, emulator: Emulator) -> None:
    for folder_id in [*FOLDERS, "kept"]:
        emulator.make_folder(folder_id)
    before = deletions(emulator)
    approvals.airflow.finish(approvals.airflow.trigger(PROPOSALS))
    # A scheduled run may have proposed the same.
    run_id = approvals.airflow.rows("select run_id from dag_run where dag_id = ? order by id", DAG)[0][0]
    question = approvals.question(run_id)
    assert question["subject"].startswith("Permanently delete 2 folders")
    assert question["body"].split("\n") == ["", '    "exports-2025"', '    "logs-2025"']
    assert question["options"] == ["Approve", "Reject"]
    assert deletions(emulator) == before
    states = approvals.answer(run_id, "Approve")
    assert states == {(name, -1): "success" for name in ("approve", "approved")} | {
        ("delete", 0): "success",
        ("delete", 1): "success",
    }
    assert (approvals.state(run_id), deletions(emulator)) == ("success", before + 2)
    assert set(FOLDERS).isdisjoint(emulator.state()["folders"])
    assert "kept" in emulator.state()["folders"]


def test_nothing_is_deleted_once_it_is_rejected(approvals: Approvals, emulator: Emulator) -> None:
    before = deletions(emulator)
    run_id = approvals.airflow.trigger(DAG, folder_ids=["a"])
    approvals.question(run_id)
    states = approvals.answer(run_id, "Reject")
    assert (states["approve", -1], states["approved", -1], states["delete", -1]) == ("success", "skipped", "skipped")
    assert (approvals.state(run_id), deletions(emulator)) == ("success", before)


def test_the_list_that_was_shown_cannot_change_before_it_is_deleted(approvals: Approvals, emulator: Emulator) -> None:
    for folder_id in ("shown", "other"):
        emulator.make_folder(folder_id)
    run_id = approvals.airflow.trigger(DAG, folder_ids=["shown"])
    assert '"shown"' in approvals.question(run_id)["body"]
    run = f"/dags/{DAG}/dagRuns/{run_id}"
    assert approvals.call("PATCH", run, {"conf": {"folder_ids": ["other"]}}).status_code == 422
    again = approvals.call("POST", f"/dags/{DAG}/dagRuns", {"dag_run_id": run_id, "conf": {"folder_ids": ["other"]}})
    assert again.status_code in (409, 422)
    approvals.answer(run_id, "Approve")
    assert "shown" not in emulator.state()["folders"]
    assert "other" in emulator.state()["folders"]


def test_an_id_cannot_hide_another_in_the_question(approvals: Approvals) -> None:
    ids = ['a"\n\n# Nothing else\n\n```', "b  \u202e<script>"]
    run_id = approvals.airflow.trigger(DAG, folder_ids=ids)
    lines = approvals.question(run_id)["body"].split("\n")
    assert len(lines) == 3
    assert all(line.startswith('    "') and line.isascii() and line.isprintable() for line in lines[1:])
    approvals.answer(run_id, "Reject")


def test_no_response_in_time_fails_the_run_and_deletes_nothing(approvals: Approvals, emulator: Emulator) -> None:
    before = deletions(emulator)
    run_id = approvals.airflow.trigger("impatient", folder_ids=["a"])
    states = approvals.airflow.finish(run_id)
    assert (states["approve", -1], states["delete", -1]) == ("failed", "upstream_failed")
    assert (approvals.state(run_id), deletions(emulator)) == ("failed", before)


@pytest.mark.parametrize("folder_ids", [[], None, "a"])
def test_a_run_without_a_list_is_refused(approvals: Approvals, folder_ids: Any) -> None:
    conf = {} if folder_ids is None else {"folder_ids": folder_ids}
    response = approvals.call("POST", f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": conf})
    assert response.status_code in (400, 422), response.text
