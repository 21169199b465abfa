"""The connection form in a browser: filled in, tested and saved, in the Airflow of ``make up`` and in Airflow 2.

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
        yield page
        if not AIRFLOW_2:
            print((FOLDER / "airflow.log").read_text()[-10_000:])  # shown if the test fails


@pytest.mark.skipif(AIRFLOW_2, reason="the form of Airflow 3.2 and later")
def test_the_connection_form_is_filled_in_saved_and_tested(page: Any) -> None:
    conn_id = f"form_{time.time_ns()}"  # the database of make up stays
    with running() as up, Emulator(access_token="typed-into-the-form") as emulator:
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
        row = page.get_by_role("row", name=re.compile(conn_id))
        with page.expect_response("**/connections/test") as response:
            row.get_by_role("button", name="Test Connection").click()
        reported = response.value.json()
        assert WORKS.search(reported.get("message", "")), reported
        assert reported["status"] is True
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
