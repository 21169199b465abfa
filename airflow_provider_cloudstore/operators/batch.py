"""Very many uploads as one task: template rendering, parameters and XCom. What a batch does is in ``batch/``."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_cloudstore.operators.base import TypedOperator, validate_flags
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_cloudstore.batch.job import Job, Report
    from airflow_provider_cloudstore.batch.manifest import Entry
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.secrets import Secret

_TIME_TO_SAVE = 3.0
_KILL_CHECK_INTERVAL = 0.1


class RemoteUrlBatchUploadOperator(TypedOperator):
    """Queue many remote uploads in one task (API document, section 4.2), as fast as the service allows.

    Progress is checkpointed before more is sent: after a kill, a freeze or an outage, a retry loses no upload and resends at most
    ``max_concurrency`` uploads plus those of the last two seconds. It resumes from the task's state store (Airflow 3.3 and
    later), from the ``receipts``, or from both.

    The XCom is small: ``{"total", "queued", "failed", "unknown", "skipped", "queued_earlier", "receipts", "failures"}``, where
    ``failures`` holds the first twenty. A URL's credentials are redacted everywhere, receipts included.

    :param urls: a list of URLs, or the path of a manifest, read through Airflow's ``ObjectStoragePath`` (templated): text with
        a URL a line, CSV (``.csv``, ``.tsv``), JSON Lines or a JSON array (``.jsonl``, ``.ndjson``, ``.json``), plain or gzip.
    :param url_column: the column of a CSV, or the key in JSON, that holds the URL.
    :param key_column: the column or key with the manifest's own id of a line, which is copied to the receipts.
    :param max_concurrency: maximum number of requests in flight.
    :param requests_per_second: a steady rate for the whole batch; None for no limit.
    :param on_error: ``continue`` sends the rest before the task fails; ``stop`` ends the batch at the first failure.
    :param max_consecutive_failures: end the batch after this many failed requests in a row; None for never.
    :param skip_duplicates: send duplicate URLs only once. Costs at most 36 bytes of memory per URL.
    :param retry_unknown_outcome: resend uploads that may have been queued, in this try or an earlier one.
    :param receipts: a folder (``ObjectStoragePath``) for the outcome of every URL: JSON Lines in parts (templated).
    :param resume: after the task was cleared, resume where it stopped; False resends everything. Airflow's retries always
        resume (templated).
    :param shard: ``(k, n)`` sends the k-th of n parts of the manifest, counted from 0, split by URL (templated).
    :param allow_empty: accept a manifest without URLs. An empty list is always accepted.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if an argument is invalid.
    """

    template_fields: Sequence[str] = ("urls", "receipts", "resume", "shard", "cloudstore_conn_id")
    ui_color = "#b9d6f2"

    def __init__(
        self,
        *,
        urls: Sequence[str] | str | XComArg,
        url_column: str = "url",
        key_column: str | None = None,
        max_concurrency: int = 16,
        requests_per_second: float | None = None,
        on_error: Literal["continue", "stop"] = "continue",
        max_consecutive_failures: int | None = 100,
        skip_duplicates: bool = True,
        retry_unknown_outcome: bool = False,
        receipts: str | None = None,
        resume: bool | str = True,
        shard: Sequence[int | str] | str | None = None,
        allow_empty: bool = False,
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        from airflow_provider_cloudstore.batch import arguments

        super().__init__(**kwargs)
        validate_flags(
            skip_duplicates=skip_duplicates,
            retry_unknown_outcome=retry_unknown_outcome,
            allow_empty=allow_empty,
        )
        arguments.validate_limits(max_concurrency, requests_per_second, max_consecutive_failures)
        arguments.validate_columns(url_column=url_column, key_column=key_column or "none")
        arguments.validate_urls(urls)
        arguments.validate_shard(shard)
        if on_error not in ("continue", "stop"):
            raise ValueError("on_error is 'continue' or 'stop'")
        self.urls: Any = urls
        self.url_column = url_column
        self.key_column = key_column
        self.max_concurrency = max_concurrency
        self.requests_per_second = requests_per_second
        self.on_error = on_error
        self.max_consecutive_failures = max_consecutive_failures
        self.skip_duplicates = skip_duplicates
        self.retry_unknown_outcome = retry_unknown_outcome
        self.receipts = receipts
        self.resume = resume
        self.shard = shard
        self._is_sharded = shard is not None
        self.allow_empty = allow_empty
        self.cloudstore_conn_id = cloudstore_conn_id
        self._unredacted_urls: Secret | None = None
        self._problem = ""
        # Airflow may copy the task before running it, and call `on_kill` on either copy: they share this list.
        self._killed: list[bool] = []

    def _redact_fields(self) -> None:
        if self._unredacted_urls or self._problem:
            return  # rendered before: `urls` is only a label by now
        from airflow_provider_cloudstore.batch.arguments import parse_urls
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret

        try:
            urls = parse_urls(self.urls)
        except ValueError as error:
            self._problem, self.urls = str(error), MASK
            return
        if urls is not None:
            self._unredacted_urls = Secret(json.dumps(urls, default=str))
            self.urls = f"{len(urls):,} URLs"

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue every upload that no earlier try has finished."""
        from airflow_provider_cloudstore.hooks.airflow_errors import airflow_errors
        from airflow_provider_cloudstore.protocol.errors import InvalidInputError

        with airflow_errors(), self._open_hook() as hook:
            if self._problem:
                raise InvalidInputError(f"{self._problem}; nothing was sent")
            report = asyncio.run(self._job(hook, context).run())
            return self._finalize(context, report)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """The lineage for OpenLineage: from the manifest to the receipts."""
        from airflow_provider_cloudstore.lineage import operator_lineage
        from airflow_provider_cloudstore.protocol.lineage import of_batch

        with suppress(ValueError):  # of what is no path, which has failed the task
            return operator_lineage(of_batch(self.urls if self._is_file else None, self.receipts))
        return operator_lineage(None)

    def on_kill(self) -> None:
        """Start no more uploads; ``execute`` stores what has finished on its way out."""
        self._killed.append(True)

    def _job(self, hook: CloudStoreHook, context: Context) -> Job:
        from airflow_provider_cloudstore.batch import arguments
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.sending import Options
        from airflow_provider_cloudstore.hooks.time_budget import time_left
        from airflow_provider_cloudstore.operators.batch_stores import open_receipts, state_of, try_of

        writer, first_try = try_of(context, self.retries)
        resume = arguments.parse_flag(self.resume, "resume")
        options = Options(
            self.max_concurrency,
            self.requests_per_second,
            self.on_error == "stop",
            self.skip_duplicates,
            self.retry_unknown_outcome,
            self.max_consecutive_failures,
            arguments.parse_shard(self.shard) if self._is_sharded else None,
            since_try=0 if resume else first_try,
        )
        return Job(
            self._entries,
            hook.settings,
            hook.read_settings,
            options,
            writer=writer,
            store=state_of(context),
            receipts=open_receipts(self.receipts, writer),
            killed=lambda: bool(self._killed),
            time_limit=max(0.1, time_left() - _TIME_TO_SAVE) if time_left() else math.inf,
            allow_empty=self.allow_empty or not self._is_file,
            report=self.log.info,
        )

    @property
    def _is_file(self) -> bool:
        return self._unredacted_urls is None and isinstance(self.urls, str)

    def _entries(self) -> AbstractContextManager[Iterator[Entry]]:
        from airflow_provider_cloudstore.batch.manifest import entries_of_list
        from airflow_provider_cloudstore.operators.batch_stores import open_manifest

        if self._is_file:
            return open_manifest(str(self.urls), self.url_column, self.key_column)
        return nullcontext(entries_of_list(json.loads(self._unredacted_urls.reveal()) if self._unredacted_urls else self.urls))

    def _finalize(self, context: Context, report: Report) -> dict[str, Any]:
        from airflow_provider_cloudstore.metrics import count_batch
        from airflow_provider_cloudstore.operators.batch_stores import state_of
        from airflow_provider_cloudstore.protocol import errors

        # Interrupted, there is no time to push; superseded, the XCom is the newer try's; without a store, Airflow may be away.
        without_xcom = (errors.BatchInterruptedError, errors.BatchSupersededError, errors.BatchStoreError)
        summary = {**report.to_dict(), "receipts": self.receipts}
        finished = report.error is None or isinstance(report.error, errors.BatchFailedError)
        count_batch(summary, final=finished)
        # Before the state is deleted: a crash in between would otherwise resend every URL.
        if self.do_xcom_push and not isinstance(report.error, without_xcom):
            context["ti"].xcom_push(key="return_value", value=summary)
        if finished:
            self._log_summary(summary)
        if report.error is not None:
            raise report.error
        if store := state_of(context):
            self._delete_state(store.delete)
        return summary

    def _delete_state(self, delete: Callable[[], None]) -> None:
        """Delete the state in a thread: on SIGTERM Airflow 3 only calls ``on_kill``, which interrupts no store that hangs."""
        deleting = Thread(target=copy_context().run, args=(delete,), name="cloudstore-batch", daemon=True)
        deleting.start()
        while deleting.is_alive():
            if self._killed:
                self.log.warning("Terminated while the batch's state was deleted: a cleared task may resume from it")
                return
            deleting.join(_KILL_CHECK_INTERVAL)

    def _log_summary(self, summary: dict[str, Any]) -> None:
        counts = {**summary, "now": summary["queued"] - summary["queued_earlier"]}
        self.log.info(
            "Batch finished: %s of %s URLs queued (%s in this try, %s earlier), %s failed, %s unknown, %s duplicates skipped; "
            "receipts: %s",
            *(f"{counts[name]:,}" for name in ("queued", "total", "now", "queued_earlier", "failed", "unknown", "skipped")),
            self.receipts or "none",
        )
