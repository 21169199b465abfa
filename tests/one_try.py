"""One try of a task in a process of its own, for tests that end it: SIGTERM calls ``on_kill``, as Airflow's task runner does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator, RemoteUrlUploadOperator

URLS = [f"ftp://127.0.0.1:9/{number}" for number in range(20)]


class Store:
    """An upload's state store in a file: it outlives the process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, key: str) -> Any:
        return json.loads(self._file.read_text())[key] if self._file.exists() else None

    def set(self, key: str, value: Any) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({key: value}))
        part.replace(self._file)


def start(kind: str, place: str, number: int, urls: str = "") -> subprocess.Popen[str]:
    """Start a try.

    :param kind: ``upload``, or ``batch``.
    :param place: the file with an upload's state, or the folder of a batch's receipts.
    :param number: of the try, from 1.
    :param urls: the manifest of a batch; default: ``URLS``.
    """
    command = [sys.executable, "-m", "tests.one_try", kind, place, str(number), *([urls] if urls else [])]
    return subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1], stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a try, and return its result, or the type of its error."""
    with process:
        out, _ = process.communicate(timeout=300)
    return out.splitlines()[-1]


def main(kind: str, place: str, number: str, urls: str = "") -> None:
    """Run the try; print the error's type, or the result."""
    operator: Any = (
        RemoteUrlUploadOperator(task_id="t", url=URLS[0], retries=2)
        if kind == "upload"
        else RemoteUrlBatchUploadOperator(task_id="t", urls=urls or URLS, receipts=place, max_concurrency=1, retries=2)
    )
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    try:
        print(json.dumps(operator.execute({"ti": task_instance(int(number)), "task_state_store": Store(Path(place))})))
    except CloudStoreError as error:
        print(type(error).__name__)


def task_instance(number: int = 1) -> Any:
    """What an operator needs of the task instance of a try."""
    names = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
    return SimpleNamespace(**names, try_number=number, max_tries=2, xcom_push=lambda **_: None)


if __name__ == "__main__":
    main(*sys.argv[1:])
