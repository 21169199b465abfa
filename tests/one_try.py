"""One try of a task in a process of its own, for tests that end it: SIGTERM calls ``on_kill``, as Airflow's task runner does."""

from __future__ import annotations

import json
import signal
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

    def _load(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    def get(self, key: str, default: Any = None) -> Any:
        return self._load().get(key, default)

    def set(self, key: str, value: Any) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._load() | {key: value}))
        part.replace(self._file)

    def delete(self, key: str) -> None:
        self._file.write_text(json.dumps({name: value for name, value in self._load().items() if name != key}))


def main(kind: str, file: str, number: str) -> None:
    """Run the try; print the error's type, or the result."""
    operator: Any = (
        RemoteUrlUploadOperator(task_id="t", url=URLS[0], retries=2)
        if kind == "upload"
        else RemoteUrlBatchUploadOperator(task_id="t", urls=URLS, receipts=f"{file}.receipts", max_concurrency=1, retries=2)
    )
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    names = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
    ti = SimpleNamespace(**names, try_number=int(number), max_tries=2, xcom_push=lambda **_: None)
    try:
        print(json.dumps(operator.execute({"ti": ti, "task_state_store": Store(Path(file))})))
    except CloudStoreError as error:
        print(type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
