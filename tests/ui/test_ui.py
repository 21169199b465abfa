"""The first day in a browser: ``make up`` and one click, and the connection form filled in, tested and saved.

Slow: ``make test-ui`` runs it on both Airflows. It needs Debian's Chromium.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.browser import CHROMIUM, LIMIT, local_page
from scripts.cluster import responds
from scripts.up import FOLDER, running
from tests.real_airflow import AIRFLOW_2, RealAirflow
from tests.support import eventually

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-ui installs it")

WORKS = re.compile(r"works", re.IGNORECASE)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # a test waits for several things, for minutes each on a busy machine
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not there: apt-get install chromium"),
]


@pytest.fixture
def page() -> Iterator[Any]:
    with local_page() as page:
        sync_api.expect.set_options(timeout=LIMIT)
        page.on("response", print_change)
        yield page
        if not AIRFLOW_2:
            print((FOLDER / "airflow.log").read_text()[-10_000:])  # shown if the test fails


def print_change(response: Any) -> None:
    """Print a request that changes something, which is shown if the test fails."""
    if response.request.method != "GET":
        print(response.status, response.url)


@pytest.fixture(scope="module")
def up() -> Iterator[dict[str, str]]:
    with running() as addresses:
        yield addresses


@pytest.mark.skipif(AIRFLOW_2, reason="make up runs Airflow 3")
def test_one_click_runs_an_example_green(up: dict[str, str], page: Any) -> None:
    dag = f"{up['Airflow']}/api/v2/dags/example_staged_etl"
    eventually(lambda: page.request.get(dag).ok, seconds=60)  # Airflow lists a DAG some seconds after it has started
    runs = f"{dag}/dagRuns"
    earlier = {run["dag_run_id"] for run in page.request.get(runs).json()["dag_runs"]}
    page.goto(f"{up['Airflow']}/dags/example_staged_etl")
    page.get_by_role("button", name="Trigger").first.click()
    dialog = page.get_by_role("dialog")
    submit = dialog.get_by_role("button", name="Trigger")
    sync_api.expect(submit).to_be_enabled()
    submit.click()
    sync_api.expect(dialog).not_to_be_visible(timeout=3 * LIMIT)  # SQLite may wait for its lock more than once

    def state() -> Any:
        started = [run for run in page.request.get(runs).json()["dag_runs"] if run["dag_run_id"] not in earlier]
        states = [run["state"] for run in started if run["run_type"] == "manual"]
        return not {"queued", "running"} & set(states) and states

    assert set(eventually(state, seconds=180)) == {"success"}


def click_test(page: Any, conn_id: str) -> bool:
    """Click a connection's Test button, and read what Airflow was told; the page shows it too."""
    row = page.get_by_role("row", name=re.compile(conn_id))
    with page.expect_response("**/connections/test") as response:
        row.get_by_role("button", name="Test Connection").click()
    reported = response.value.json()
    assert WORKS.search(reported.get("message", "")), reported
    return bool(reported["status"])


@pytest.mark.skipif(AIRFLOW_2, reason="the form of Airflow 3.2 and later")
def test_the_connection_form_is_filled_in_saved_and_tested(up: dict[str, str], page: Any) -> None:
    conn_id = f"form_{time.time_ns()}"  # the database of make up stays
    with Emulator(access_token="typed-into-the-form") as emulator:
        page.goto(f"{up['Airflow']}/connections")
        page.get_by_role("button", name="Add Connection").click()
        dialog = page.get_by_role("dialog")
        dialog.locator("input[name=connection_id]").fill(conn_id)
        dialog.get_by_role("combobox").focus()
        page.keyboard.type("cloudstore")
        sync_api.expect(page.get_by_role("option")).to_have_count(1)  # the types are loaded after the form
        page.keyboard.press("Enter")
        sync_api.expect(dialog.get_by_text("Base URL").first).to_be_visible()
        host, _, port = emulator.url.rpartition(":")
        dialog.locator("[name=host]").fill(host)
        sync_api.expect(dialog.locator("[name=port]")).to_have_attribute("placeholder", "443")
        dialog.locator("[name=port]").fill(port)
        dialog.locator("[name=password]").fill(emulator.access_token)
        dialog.get_by_role("button", name="Save").click()
        sync_api.expect(dialog).not_to_be_visible()
        assert click_test(page, conn_id) is True
        assert emulator.state()["requests"] == {"link": 1}


@pytest.mark.skipif(not AIRFLOW_2, reason="the form of Airflow 2")
def test_airflow_2_shows_fills_tests_and_saves_the_same_form(page: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "webserver_config.py").write_text("AUTH_ROLE_PUBLIC = 'Admin'\nWTF_CSRF_ENABLED = True\n")
    with (
        RealAirflow(home, tmp_path, AIRFLOW__CORE__TEST_CONNECTION="Enabled", AIRFLOW__WEBSERVER__WORKERS="1") as airflow,
        Emulator(access_token="typed-into-the-form") as emulator,
    ):
        base = f"http://127.0.0.1:{airflow.port}"
        airflow.env["AIRFLOW__WEBSERVER__WEB_SERVER_PORT"] = str(airflow.port)
        airflow.start("webserver")
        airflow.until("the webserver answers", lambda: responds(f"{base}/health"))
        page.goto(f"{base}/connection/add")
        page.locator("#conn_id").fill("from_the_form")
        page.locator("#conn_type").select_option("cloudstore", force=True)
        page.locator("#conn_type").dispatch_event("change")
        sync_api.expect(page.get_by_text("Base URL").first).to_be_visible()
        page.locator("#host").fill(emulator.url)
        page.locator("#password").fill(emulator.access_token)
        page.locator("#extra__cloudstore__timeout").fill("20")
        page.locator("#test-connection").click()
        sync_api.expect(page.get_by_text(WORKS).first).to_be_visible()
        assert emulator.state()["requests"] == {"link": 1}
        page.get_by_role("button", name=re.compile("Save")).first.click()
        sync_api.expect(page.get_by_text("Added Row")).to_be_visible()
        assert airflow.rows("select conn_type, host from connection where conn_id = 'from_the_form'") == [
            ("cloudstore", emulator.url)
        ]
