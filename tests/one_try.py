"""One try of a batch's task in a process of its own, for tests that end it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.support import context


def start(receipts: str, number: int, urls: str) -> subprocess.Popen[str]:
    """Start a try of that number, from 1."""
    command = [sys.executable, "-m", "tests.one_try", receipts, str(number), urls]
    return subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1], stdout=subprocess.PIPE, text=True)


def main(receipts: str, number: str, urls: str) -> None:
    """Run the try, and print its result."""
    operator: Any = RemoteUrlBatchUploadOperator(task_id="t", urls=urls, receipts=receipts, max_concurrency=1, retries=2)
    print(json.dumps(operator.execute(context(try_number=int(number), max_tries=2))))


if __name__ == "__main__":
    main(*sys.argv[1:])
