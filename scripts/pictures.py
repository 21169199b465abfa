"""Makes the pictures of the documentation: real runs in ``make up``, photographed in Chromium."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.airflow_home import ROOT
from scripts.browser import browser, local_page
from scripts.up import running

PICTURES = ROOT / "docs" / "pictures"
LARGEST = 150_000
"""Bytes of a picture."""
MARGIN = 16
"""CSS pixels around what a picture shows."""
RUNS = 3
"""Of the pipeline, in the grid."""
WAIT = 180
"""Seconds that a run may take."""


class Camera:
    """Drives Airflow's UI and takes pictures of it.

    :param page: a page of the browser.
    :param airflow: the address of the UI.
    :param emulator: the address of the emulator.
    """

    def __init__(self, page: Any, airflow: str, emulator: str) -> None:
        self.page = page
        self.airflow = airflow
        self.emulator = emulator

    def api(self, path: str, data: Any = None) -> Any:
        """Call Airflow's REST API: POST with data, otherwise GET."""
        url = f"{self.airflow}/api/v2/{path}"
        response = self.page.request.post(url, data=data) if data is not None else self.page.request.get(url)
        assert response.ok, f"{path}: {response.status} {response.text()}"
        return response.json()

    def start(self, dag_id: str, **conf: str) -> str:
        """Trigger a DAG once Airflow has listed it.

        :returns: the path of the run in the API.
        """
        until(lambda: self.page.request.get(f"{self.airflow}/api/v2/dags/{dag_id}").ok)
        run = self.api(f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})
        return f"dags/{dag_id}/dagRuns/{run['dag_run_id']}"

    def finish(self, run: str) -> str:
        """Wait until a run succeeds.

        :returns: the path of its page in the UI.
        """
        until(lambda: self.api(run)["state"] in ("success", "failed"))
        assert self.api(run)["state"] == "success", run
        return run.replace("/dagRuns/", "/runs/")

    def open(self, path: str) -> None:
        """Open a page of the UI, and wait until everything on it has loaded."""
        self.page.goto(f"{self.airflow}/{path}")
        self.page.wait_for_load_state("networkidle")

    def take(self, name: str, of: Any = None, **options: Any) -> None:
        """Store a picture of an element, or of the whole page."""
        self.page.mouse.move(0, 0)
        file = PICTURES / f"{name}.png"
        (of or self.page).screenshot(path=file, animations="disabled", **options)
        assert file.stat().st_size <= LARGEST, f"{file.name} has {file.stat().st_size} bytes"
        print(f"docs/pictures/{file.name}  {file.stat().st_size} bytes", flush=True)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to happen in Airflow."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"waited for {WAIT} seconds"
        time.sleep(0.2)


def staged_etl(camera: Camera) -> None:
    """The trigger form, the grid and the graph of the pipeline."""
    page = camera.page
    for _ in range(RUNS):
        run = camera.finish(camera.start("example_staged_etl"))
    camera.open(run)
    page.get_by_label("Show Grid").first.click()
    page.get_by_text("finished").first.wait_for()
    until(lambda: page.locator("a[href*='/tasks/'] svg").count() >= RUNS * 5)
    camera.take("staged-etl-grid", clip={"x": 72, "y": 60, "width": 300, "height": 300})
    page.get_by_label("Show Graph").first.click()
    page.get_by_label("Collapse Details Panel").click()
    graph(camera, "staged-etl-graph")
    page.set_viewport_size({"width": 1100, "height": 1000})
    camera.open("dags/example_staged_etl")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    form.get_by_role("button", name="Trigger").wait_for()
    camera.take("trigger-form", form)


def graph(camera: Camera, name: str) -> None:
    """A graph without the controls around it."""
    page = camera.page
    page.add_style_tag(content=".react-flow__panel { display: none }")
    page.locator(".react-flow__node").first.wait_for()
    page.mouse.move(0, 0)
    boxes = [node.bounding_box() for node in page.locator(".react-flow__node").all()]
    left, top = min(box["x"] for box in boxes) - MARGIN, min(box["y"] for box in boxes) - MARGIN
    right, bottom = (max(box[at] + box[size] for box in boxes) + MARGIN for at, size in (("x", "width"), ("y", "height")))
    camera.take(name, clip={"x": left, "y": top, "width": right - left, "height": bottom - top})


def share_link(camera: Camera) -> None:
    """The rendered template of a task that got a token: it is masked."""
    run = camera.finish(camera.start("example_share_link"))
    page = camera.page
    page.set_viewport_size({"width": 1400, "height": 640})
    camera.open(f"{run}/tasks/use_token/rendered_templates")
    page.get_by_text("op_kwargs").wait_for()
    tab, table = page.get_by_role("tab", name="Logs").or_(page.get_by_text("Logs")).first, page.locator("table").last
    left, top = table.bounding_box()["x"] - MARGIN, tab.bounding_box()["y"] - MARGIN
    box = table.bounding_box()
    camera.take(
        "token-masked",
        clip={"x": left, "y": top, "width": box["width"] + 2 * MARGIN, "height": box["y"] + box["height"] - top + MARGIN},
    )


def assets(camera: Camera) -> None:
    """Producer, asset and consumer."""
    camera.finish(camera.start("example_publish_file"))
    (asset,) = camera.api("assets")["assets"]
    camera.open(f"assets/{asset['id']}")
    graph(camera, "assets")


def killed_batch(camera: Camera) -> None:
    """The log of a batch that was killed and resumed."""
    with tempfile.TemporaryDirectory(prefix="batch-") as folder:
        manifest = Path(folder) / "urls.csv"
        manifest.write_text("url\n" + "".join(f"https://example.com/{number}.csv\n" for number in range(1000)))
        run = camera.start("example_bulk_upload", manifest=str(manifest), receipts=f"{folder}/receipts")
        before = requests(camera)
        until(lambda: requests(camera) > before + 400)
        kill(camera.api(f"{run}/taskInstances/batch")["id"])
        path = camera.finish(run)
    page = camera.page
    page.set_viewport_size({"width": 1100, "height": 1100})
    camera.open(f"{path}/tasks/batch?try_number=2")
    page.get_by_text("Batch finished").wait_for()
    page.keyboard.press("w")  # wraps the lines
    page.get_by_text("Post Execute").scroll_into_view_if_needed()
    tries = page.get_by_text("Task Tries").bounding_box()
    log = page.get_by_text("Post Execute").bounding_box()
    height = log["y"] + log["height"] - tries["y"] + 2 * MARGIN
    camera.take("batch-log", clip={"x": tries["x"] - MARGIN, "y": tries["y"] - 8, "width": 1100 - tries["x"], "height": height})


def requests(camera: Camera) -> int:
    """How many uploads the emulator was asked for."""
    state = camera.page.request.get(f"{camera.emulator}/_emulator/state").json()
    return int(state["requests"].get("upload", 0))


def kill(task_instance_id: str) -> None:
    """Send SIGKILL to the process of a task."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
        except OSError:
            continue
        if command.startswith(f"airflow worker -- {task_instance_id}"):
            os.kill(int(process.name), signal.SIGKILL)
            return
    raise AssertionError("the task has no process")


def connection(camera: Camera) -> None:
    """The connection with a green test, and its form."""
    page = camera.page
    page.set_viewport_size({"width": 1100, "height": 1090})
    camera.open("connections")
    row = page.get_by_role("row", name=re.compile("cloudstore_default"))
    row.get_by_role("button", name="Test Connection").click()
    page.get_by_text(re.compile("works", re.IGNORECASE)).first.wait_for()
    row.get_by_role("button", name="Edit Connection").click()
    page.get_by_role("dialog").get_by_text("Base URL").wait_for()
    camera.take("connection-form")


ALL = [staged_etl, share_link, assets, killed_batch, connection]


def main(*names: str) -> int:
    """Make all pictures, or those of the functions that are named."""
    PICTURES.mkdir(exist_ok=True)
    with running(".pictures") as addresses, browser() as chromium:
        for make in ALL:
            if not names or make.__name__ in names:
                page = local_page(chromium, 1100, 640, color_scheme="light", locale="en-US", device_scale_factor=1.5)
                make(Camera(page, addresses["Airflow"], addresses["emulator"]))
                page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
