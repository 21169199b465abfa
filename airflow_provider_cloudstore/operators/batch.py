"""Very many uploads as one task: template rendering, parameters and XCom. What a batch does is in ``batch/``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.operators import arguments
from airflow_provider_cloudstore.operators.base import CloudStoreOperator
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_cloudstore.batch.job import Job
    from airflow_provider_cloudstore.batch.manifest import Manifest
    from airflow_provider_cloudstore.batch.report import Report
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.secrets import Secret

_TIME_TO_END = 3.0  # before execution_timeout: for responses in transit, the last checkpoint and the XCom


class RemoteUrlBatchUploadOperator(CloudStoreOperator):
    """Queue many remote uploads in one task (API document, section 4.2), as fast as the service allows.

    A URL is sent once, however often the manifest lists it. Progress is checkpointed before more is sent: after a kill, a freeze
    or an outage, a retry loses no upload and resends at most ``max_concurrency`` uploads and two seconds of sending.
    Retries and cleared tasks send only what is neither queued nor unknown; a new DAG run sends everything.

    The XCom is small: ``{"total", "queued", "failed", "unknown", "skipped", "unsent", "queued_earlier", "receipts",
    "failures"}``, where ``failures`` holds the first twenty. A URL's credentials are redacted everywhere, receipts included.

    :param urls: a list of URLs, or the path of a manifest, read through Airflow's ``ObjectStoragePath`` (templated): text with
        a URL a line, CSV, or JSON Lines, plain or gzip.
    :param url_column: the column of a CSV, or the key in JSON, that holds the URL.
    :param key_column: the column or key with the manifest's own id of a line, which is copied to the receipts.
    :param max_concurrency: maximum number of requests in flight, up to 500.
    :param requests_per_second: a steady rate for the whole batch; None for no limit.
    :param max_consecutive_failures: end the batch when this many requests in a row failed; None for never. Lines without a
        valid URL need no request, so they do not count.
    :param allowed_failures: succeed, with a warning, if no more URLs failed. Unknown ones are never allowed.
    :param retry_unknown_outcome: resend uploads that may have been queued, in this try or an earlier one.
    :param receipts: a folder (``ObjectStoragePath``) for the outcome of every URL: JSON Lines in parts, read by
        :func:`~airflow_provider_cloudstore.receipts.read_receipts` (templated).
    :param shard: ``(k, n)`` sends the k-th of n parts of the manifest, counted from 0, split by URL (templated).
    :param allow_empty: accept a manifest without URLs. An empty list is always accepted.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if an argument is invalid.
    """

    template_fields: Sequence[str] = ("urls", "receipts", "shard", "cloudstore_conn_id")
    ui_color = "#b9d6f2"

    def __init__(
        self,
        *,
        urls: Sequence[str] | str | XComArg,
        url_column: str = "url",
        key_column: str | None = None,
        max_concurrency: int = 16,
        requests_per_second: float | None = None,
        max_consecutive_failures: int | None = 100,
        allowed_failures: int = 0,
        retry_unknown_outcome: bool = False,
        receipts: str | None = None,
        shard: Sequence[int | str] | str | None = None,
        allow_empty: bool = False,
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        arguments.validate_flags(retry_unknown_outcome=retry_unknown_outcome, allow_empty=allow_empty)
        arguments.validate_whole_number("max_concurrency", max_concurrency, 1, 500)
        arguments.validate_whole_number("allowed_failures", allowed_failures, 0)
        if max_consecutive_failures is not None:
            arguments.validate_whole_number("max_consecutive_failures", max_consecutive_failures, 1)
        if requests_per_second is not None:
            arguments.validate_positive(requests_per_second=requests_per_second)
        arguments.validate_columns(url_column=url_column)
        if key_column is not None:
            arguments.validate_columns(key_column=key_column)
        arguments.validate_paths(urls=urls, receipts=receipts)
        self.urls: Any = urls
        self.url_column = url_column
        self.key_column = key_column
        self.max_concurrency = max_concurrency
        self.requests_per_second = requests_per_second
        self.max_consecutive_failures = max_consecutive_failures
        self.allowed_failures = allowed_failures
        self.retry_unknown_outcome = retry_unknown_outcome
        self.receipts = receipts
        self.shard = shard
        self._is_sharded = shard is not None
        self.allow_empty = allow_empty
        self.cloudstore_conn_id = cloudstore_conn_id
        self._unredacted_urls: Secret | None = None
        self._problem = ""
        # Airflow may copy the task before running it, and call `on_kill` on either copy: they share this list.
        self._killed: list[bool] = []

    def _redact_fields(self) -> None:
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, redact_path

        # A path with credentials is refused, redacted or not.
        if isinstance(self.receipts, str):
            self.receipts = redact_path(self.receipts)
        if self._unredacted_urls or self._problem:
            return  # rendered before: `urls` is only a label by now
        try:
            urls = arguments.parse_urls(self.urls)
        except ValueError as error:
            self._problem, self.urls = str(error), MASK
            return
        if urls is None:
            self.urls = redact_path(str(self.urls))
        else:
            self._unredacted_urls = Secret(json.dumps(urls, default=str))
            self.urls = f"{len(urls):,} URLs"

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue every upload that no earlier try has finished."""
        from airflow_provider_cloudstore.protocol.errors import InvalidInputError

        with self._open_hook() as hook:
            if self._problem:
                raise InvalidInputError(f"{self._problem}; nothing was sent")
            report = asyncio.run(self._job(hook, context).run())
            return self._finalize(context, report)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """The lineage for OpenLineage: from the manifest to the receipts."""
        from airflow_provider_cloudstore.lineage import of_batch, operator_lineage

        with suppress(ValueError):  # of what is no path, which has failed the task
            return operator_lineage(of_batch(self.urls if self._is_file else None, self.receipts))
        return operator_lineage(None)

    def on_kill(self) -> None:
        """Start no more uploads; ``execute`` stores what has finished on its way out."""
        self._killed.append(True)

    def _job(self, hook: CloudStoreHook, context: Context) -> Job:
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.sending import Options
        from airflow_provider_cloudstore.hooks.time_budget import time_left
        from airflow_provider_cloudstore.operators.batch_stores import open_receipts, state_of, try_of

        writer = try_of(context)
        options = Options(
            self.max_concurrency,
            self.requests_per_second,
            self.max_consecutive_failures,
            self.allowed_failures,
            self.retry_unknown_outcome,
            arguments.parse_shard(self.shard) if self._is_sharded else None,
        )
        return Job(
            self._read,
            hook.settings,
            hook.read_settings,
            options,
            writer=writer,
            state=state_of(context, writer),
            receipts=open_receipts(self.receipts, writer),
            killed=lambda: bool(self._killed),
            time_limit=max(0.1, time_left() - _TIME_TO_END),
            allow_empty=self.allow_empty or not self._is_file,
            report=self.log.info,
        )

    @property
    def _is_file(self) -> bool:
        return self._unredacted_urls is None and isinstance(self.urls, str)

    def _read(self) -> Manifest:
        from airflow_provider_cloudstore.batch.manifest import list_manifest
        from airflow_provider_cloudstore.operators.batch_stores import read_manifest

        if self._is_file:
            return read_manifest(str(self.urls), self.url_column, self.key_column)
        return list_manifest(json.loads(self._unredacted_urls.reveal()) if self._unredacted_urls else self.urls)

    def _finalize(self, context: Context, report: Report) -> dict[str, Any]:
        from airflow_provider_cloudstore.metrics import count_batch
        from airflow_provider_cloudstore.protocol.errors import BatchFailedError, BatchInterruptedError

        summary = {**report.to_dict(), "receipts": self.receipts}
        finished = report.error is None or isinstance(report.error, BatchFailedError)
        count_batch(summary, final=finished)
        # Terminated, there is no time to push; superseded, the XCom is the newer try's; without a store, Airflow may be away.
        may_push = not isinstance(report.error, BatchInterruptedError) or report.error.cause in ("service", "rate_limit")
        if may_push:
            self._push(context, "return_value", summary)
        if finished:
            self.log.info("Batch finished: %s; receipts: %s", report, self.receipts or "none")
        if report.error is not None:
            raise report.error
        return summary
