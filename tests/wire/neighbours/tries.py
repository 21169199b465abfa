"""One try of a batch in a process of its own, which can be killed. It is forked from one that has imported everything, once."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider_cloudstore.batch import lease
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

IDENTITY = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
RATE = 40
CONCURRENCY = 8
_PRELOADED = [
    __name__,
    "airflow_provider_cloudstore.hooks.cloudstore",
    "airflow_provider_cloudstore.operators.arguments",
    "airflow_provider_cloudstore.batch.job",
    "airflow.providers.amazon.aws.fs.s3",
    "airflow.providers.amazon.aws.hooks.s3",
    "airflow.providers.microsoft.azure.fs.adls",
    "s3fs",
    "adlfs",
]


class Process:
    """A try that runs.

    :param number: its number, from 1.
    :param env: the environment with its connections.
    :param arguments: those of the operator.
    :param result: the file for what it returns or raises.
    :param outage_limit: seconds for which a store may be away.
    """

    def __init__(
        self, number: int, env: dict[str, str], arguments: dict[str, Any], result: Path, outage_limit: float = 300.0
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._result = result
        self._process: ForkServerProcess = context.Process(
            target=_run, args=(number, env, arguments, str(result), outage_limit), daemon=True
        )
        self._process.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.join()

    def finish(self) -> dict[str, Any]:
        """Return the summary, or the classes of the error under ``error``, and its text."""
        self._process.join()
        assert self._process.exitcode == 0, "the try ended with a traceback: see above"
        return dict(json.loads(self._result.read_text()))


def _run(number: int, env: dict[str, str], arguments: dict[str, Any], result: str, outage_limit: float) -> None:
    os.environ |= env
    logging.getLogger("azure").setLevel(logging.WARNING)  # thirty lines for each request
    lease.OUTAGE_LIMIT = outage_limit
    ti = SimpleNamespace(**IDENTITY, try_number=number, max_tries=9, xcom_push=lambda **_: None)
    operator = RemoteUrlBatchUploadOperator(
        task_id="t", requests_per_second=RATE, max_concurrency=CONCURRENCY, retries=9, **arguments
    )
    ended: dict[str, Any]
    try:
        ended = operator.execute({"ti": ti})  # type: ignore[typeddict-item]
    except CloudStoreError as error:
        ended = {"error": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}
    Path(result).write_text(json.dumps(ended))
