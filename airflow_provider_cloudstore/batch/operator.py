"""The operator of a batch: template rendering, parameters and XCom."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.operators.base import CloudStoreOperator, context_or_empty, validate_flags, validate_positive
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.batch.job import Job
    from airflow_provider_cloudstore.batch.ledger import Ledger
    from airflow_provider_cloudstore.batch.manifest import Manifest
    from airflow_provider_cloudstore.batch.receipts import Receipts
    from airflow_provider_cloudstore.compat import Context, ObjectStoragePath, XComArg
    from airflow_provider_cloudstore.protocol.secrets import Secret

_SOURCE_URL = re.compile(r"\b(?:https?|ftp):", re.IGNORECASE)
_TIME_TO_END = 3.0  # seconds before execution_timeout, left for responses in transit, the last checkpoint and the XCom


class RemoteUrlBatchUploadOperator(CloudStoreOperator):
    """Queue many remote uploads in one task (``POST /file/url_upload_add``), as fast as the service allows.

    A URL is sent once, however often the manifest lists it. After a kill or an outage, a retry loses no upload, and resends at
    most ``max_concurrency`` uploads plus those sent within two seconds. A new DAG run sends everything.

    The XCom is ``{"total", "queued", "failed", "unknown", "skipped", "unsent", "queued_earlier", "receipts", "failures"}``;
    ``failures`` holds the first twenty. A URL's credentials are redacted everywhere, receipts included.

    :param urls: a list of URLs or of the rows of a query; or the path of a manifest, read through Airflow's
        ``ObjectStoragePath``: text with one URL per line, CSV, JSON Lines, or a Storage Transfer URL list (``TsvHttpData-1.0``),
        plain or gzip (templated).
    :param receipts: a folder that every worker shares, where the batch stores the outcome of every URL (templated). With None,
        the batch stores nothing, and a retry sends every URL again.
    :param url_column: the column of a CSV (case-insensitive), or the key in JSON and rows, that holds the URL.
    :param max_concurrency: maximum number of requests in flight, up to 500.
    :param requests_per_second: a steady rate for the whole batch; None for no limit.
    :param max_consecutive_failures: end the batch when the service has refused this many requests in a row; None for no limit.
    :param parameters: more form fields of each upload: strings by name, such as ``{"folder_id": "42"}`` (templated).
    :param retry_unknown_outcome: resend uploads that may have been queued, in this try or an earlier try.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :returns: The number of URLs by outcome, and the first failures; the receipts have every outcome.
    :raises ValueError: if an argument is invalid.
    """

    template_fields: Sequence[str] = ("urls", "receipts", "parameters", "cloudstore_conn_id")

    def __init__(
        self,
        *,
        urls: Sequence[Any] | PathLike[str] | ObjectStoragePath | str | XComArg,
        receipts: PathLike[str] | ObjectStoragePath | str | None,
        url_column: str = "url",
        parameters: Mapping[str, Any] | XComArg | None = None,
        max_concurrency: int = 16,
        requests_per_second: float | None = None,
        max_consecutive_failures: int | None = 100,
        retry_unknown_outcome: bool = False,
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(retry_unknown_outcome=retry_unknown_outcome)
        if not 1 <= max_concurrency <= 500:
            raise ValueError(f"max_concurrency must be from 1 to 500, not {max_concurrency!r}")
        if requests_per_second is not None:
            validate_positive("requests_per_second", requests_per_second)
        self.urls: Any = urls
        self.receipts: Any = receipts
        self.url_column = url_column
        self.parameters: Any = parameters
        self.max_concurrency = max_concurrency
        self.requests_per_second = requests_per_second
        self.max_consecutive_failures = max_consecutive_failures
        self.retry_unknown_outcome = retry_unknown_outcome
        self.cloudstore_conn_id = cloudstore_conn_id
        # Decided by the DAG file's value: a template that renders to None is a mistake, and does not mean "without receipts".
        self._has_receipts = receipts is not None
        self._unredacted_urls: Secret | None = None
        # Airflow may copy the task before running it, and call `on_kill` on either copy, so the copies share this list.
        self._killed: list[bool] = []

    def _redact_fields(self) -> None:
        from airflow_provider_cloudstore.exceptions import InvalidInputError
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret

        if self._unredacted_urls:
            return  # done before: `urls` is only a label by now
        try:
            urls = parse_urls(self.urls)
        except ValueError as error:
            self.urls = MASK
            raise InvalidInputError(str(error)) from None
        if urls is not None:
            self._unredacted_urls = Secret(json.dumps(urls, default=str, skipkeys=True))
            self.urls = f"{len(urls):,} URLs"

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue every upload that no earlier try has finished."""
        context = context_or_empty(context)
        self._redact_fields()  # a unit test may not have rendered them
        return self._finalize(context, asyncio.run(self._job(context).run()))

    def on_kill(self) -> None:
        """Start no more uploads; before ``execute`` ends, it stores the outcomes of the finished uploads."""
        self._killed.append(True)

    def _job(self, context: Context) -> Job:
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.sender import Options

        return Job(
            self._read,
            self._open_hook().renew_settings,
            Options(
                self.max_concurrency,
                self.requests_per_second,
                self.max_consecutive_failures,
                self.retry_unknown_outcome,
                self.parameters,
            ),
            open_receipts(self.receipts, context) if self._has_receipts else None,
            must_end=self._must_end,
        )

    def _must_end(self) -> str:
        if self._killed:
            return "the task was terminated"
        time_left, _ = signal.getitimer(signal.ITIMER_REAL)  # until Airflow's alarm for execution_timeout; 0 if there is none
        return "execution_timeout is nearly over" if 0 < time_left < _TIME_TO_END else ""

    def _read(self) -> Manifest:
        from airflow_provider_cloudstore.batch.manifest import FileManifest, list_manifest
        from airflow_provider_cloudstore.exceptions import InvalidInputError
        from airflow_provider_cloudstore.stores import object_path

        if self._unredacted_urls:
            return list_manifest(json.loads(self._unredacted_urls.reveal()), self.url_column)
        manifest = FileManifest(object_path(self.urls, "urls"), str(self.urls), self.url_column)
        if next(manifest(), None) is None:  # a folder of an object store looks like an empty file
            raise InvalidInputError(f"the manifest {self.urls} is empty, or a folder")
        return manifest

    def _finalize(self, context: Context, report: Ledger) -> dict[str, Any]:
        from airflow_provider_cloudstore.exceptions import BatchSupersededError

        receipts = str(self.receipts) if self._has_receipts else None
        summary = {**report.to_dict(), "receipts": receipts}
        self.log.info("The batch has ended: %s", report.describe(report.counts))
        if report.error is None:
            return summary
        if not isinstance(report.error, BatchSupersededError):  # otherwise a newer try owns the XCom
            self._push(context, "return_value", summary)
        raise report.error


def open_receipts(given: Any, context: Context) -> Receipts:
    """Return the running try's receipts in a folder; raise ``InvalidInputError`` if another worker would not find the folder."""
    from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Try
    from airflow_provider_cloudstore.exceptions import InvalidInputError
    from airflow_provider_cloudstore.protocol.guards import validate_text
    from airflow_provider_cloudstore.stores import object_path

    text = validate_text(str(given) if hasattr(given, "open") else given, "receipts")
    path = object_path(given if hasattr(given, "open") else text, "receipts")
    if not getattr(path, "protocol", "") and not text.startswith("/"):
        raise InvalidInputError("receipts is a relative path: make it absolute, so that every worker finds it")
    ti = context.get("ti")
    scope = tuple(str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id", "map_index"))
    return Receipts(Folder(path), Try(scope, int(getattr(ti, "try_number", 1) or 1)))


def parse_urls(urls: Any) -> list[Any] | None:
    """Return the list in ``urls``, which may have been rendered as JSON; None if ``urls`` is the path of a manifest.

    :raises ValueError: if ``urls`` is anything else. The message does not repeat it, because URLs hold credentials.
    """
    from airflow_provider_cloudstore.protocol.folder_ids import is_nothing

    if not isinstance(urls, (str, type(None))) and not hasattr(urls, "open"):
        if isinstance(urls, Iterable) and not isinstance(urls, (bytes, Mapping)):
            return list(urls)
        raise ValueError(f"urls must be a list or, as text, the path of a manifest, not a {type(urls).__name__}")
    text = str(urls).strip()
    if text.startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(text), list):
                return found
        raise ValueError("urls looks like JSON, but is not a JSON list: pass upstream.output, or render it with | tojson")
    if is_nothing(text):
        missing = "which is what a template renders when its source is missing"
        raise ValueError(f"urls is {text!r}, {missing}: check that the upstream task ran and returned the value")
    if _SOURCE_URL.search(text):
        raise ValueError("urls is a URL, not a list: pass a list, or the path of a manifest")
    return None
