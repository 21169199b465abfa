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

DAG = "approve_and_delete"
QUESTION = "/taskInstances/approve/-1/hitlDetails"
FOLDERS = ["exports-2025", "logs-2025"]
"""What the page's listing task returns."""


class Approvals:
    """The questions that a running Airflow asks."""

    def __init__(self, airflow: RealAirflow) -> None:
        self.airflow, self._base = airflow, f"http://127.0.0.1:{airflow.port}"
        token = airflow.until("Airflow responds", self._token)
        self._headers = {"Authorization": f"Bearer {token}"}

    def _token(self) -> str:
        try:
            return str(requests.get(f"{self._base}/auth/token", timeout=10).json()["access_token"])
        except requests.RequestException:
            return ""

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        url = f"{self._base}/api/v2/dags/{DAG}/dagRuns{path}"
        response = requests.request(method, url, json=body, headers=self._headers, timeout=120)
        assert response.ok, response.text
        return dict(response.json())

    def question(self, run_id: str) -> dict[str, Any]:
        """Wait until a run asks, and return the question as the UI gets it.

        No person answers before the scheduler knows that the asking process has ended; it would fail the task
        (apache/airflow 67287).
        """
        waits = ("awaiting_input", "deferred")
        self.airflow.until(f"{run_id} asks", lambda: self.airflow.states(run_id).get(("approve", -1)) in waits)
        ended = re.compile(rf"executor event with state success .*'approve'.*{re.escape(run_id)}")
        output = self.airflow.output / "scheduler.txt"
        self.airflow.until("the scheduler knows", lambda: ended.search(output.read_text(errors="replace")))
        assert self.airflow.states(run_id)["approved", -1] is None  # nothing that deletes has begun
        return self.call("GET", f"/{run_id}{QUESTION}")

    def answer(self, run_id: str, option: str) -> dict[tuple[str, int], str]:
        """Click Approve or Reject, wait until the run is finished, and return the states of its tasks."""
        self.call("PATCH", f"/{run_id}{QUESTION}", {"chosen_options": [option]})
        return self.airflow.finish(run_id)


def test_what_is_shown_is_deleted_once_it_is_approved_and_never_if_it_is_rejected(
    airflow: RealAirflow, emulator: Emulator
) -> None:
    for folder_id in [*FOLDERS, "kept"]:
        emulator.make_folder(folder_id)
    approvals = Approvals(airflow)
    airflow.unpause(DAG)
    conf = {"folder_ids": ["kept", 'a"\n\n# Nothing else\n\n```', "b  \u202e<script>"]}
    by_hand = approvals.call("POST", "", {"logical_date": None, "conf": conf})["dag_run_id"]
    run_id = approvals.call("POST", "", {"logical_date": None, "conf": {"folder_ids": [*FOLDERS]}})["dag_run_id"]
    question = approvals.question(run_id)
    assert question["subject"].startswith("Permanently delete 2 folders")
    assert question["body"].split("\n") == ["", '    "exports-2025"', '    "logs-2025"']
    lines = approvals.question(by_hand)["body"].split("\n")[1:]
    assert len(lines) == 3  # no id can hide another
    assert all(line.startswith('    "') and line.isascii() and line.isprintable() for line in lines)
    states = approvals.answer(by_hand, "Reject")
    assert (states["approve", -1], states["delete", -1]) == ("success", "skipped")
    assert emulator.state()["requests"] == {}
    states = approvals.answer(run_id, "Approve")
    assert (states["delete", 0], states["delete", 1]) == ("success", "success")
    assert emulator.state()["effects"] == {"delete": 2}
    assert set(FOLDERS).isdisjoint(emulator.state()["folders"])
    assert "kept" in emulator.state()["folders"]
