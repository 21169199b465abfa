"""The operator of a batch: template rendering, parameters and XCom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.operators import arguments
from airflow_provider_cloudstore.operators.base import CloudStoreOperator, context_or_empty
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.batch.job import Job
    from airflow_provider_cloudstore.batch.ledger import Ledger
    from airflow_provider_cloudstore.batch.manifest import Manifest
    from airflow_provider_cloudstore.batch.receipts import Receipts
    from airflow_provider_cloudstore.compat import Context, ObjectStoragePath, XComArg
    from airflow_provider_cloudstore.protocol.secrets import Secret

_TIME_TO_END = 3.0  # before execution_timeout: for responses in transit, the last checkpoint and the XCom


class RemoteUrlBatchUploadOperator(CloudStoreOperator):
    """Queue many remote uploads in one task (``POST /file/url_upload_add``), as fast as the service allows.

    A URL is sent once, however often the manifest lists it. After a kill or an outage, a retry loses no upload and resends at
    most ``max_concurrency`` uploads and two seconds of sending. A new DAG run sends everything.

    The XCom is ``{"total", "queued", "failed", "unknown", "skipped", "unsent", "queued_earlier", "receipts", "failures"}``,
    with the first twenty failures. A URL's credentials are redacted everywhere, receipts included.

    :param urls: a list of URLs or of the rows of a query; or the path of a manifest, read through Airflow's
        ``ObjectStoragePath``: text with a URL a line, CSV, JSON Lines, or a Storage Transfer URL list (``TsvHttpData-1.0``),
        plain or gzip (templated).
    :param receipts: a folder that every worker shares, for the outcome of every URL (templated): what the batch remembers. None
        means no memory: a retry sends every URL again.
    :param url_column: the column of a CSV (without case), or the key in JSON and rows, that holds the URL.
    :param max_concurrency: maximum number of requests in flight, up to 500.
    :param requests_per_second: a steady rate for the whole batch; None for no limit.
    :param max_consecutive_failures: end the batch when the service refused this many requests in a row; None for never.
    :param parameters: what else the service takes for each upload, such as ``folder_id``: texts by name (templated).
    :param retry_unknown_outcome: resend uploads that may have been queued, in this try or an earlier one.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :returns: How many URLs ended how, and the first failures; the receipts have every outcome.
    :raises ValueError: if an argument is invalid.
    """

    template_fields: Sequence[str] = ("urls", "receipts", "parameters", "cloudstore_conn_id")
    ui_color = "#b9d6f2"

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
        arguments.validate_flags(retry_unknown_outcome=retry_unknown_outcome)
        arguments.validate_whole_number("max_concurrency", max_concurrency, 1, 500)
        if max_consecutive_failures is not None:
            arguments.validate_whole_number("max_consecutive_failures", max_consecutive_failures, 1)
        if requests_per_second is not None:
            arguments.validate_positive("requests_per_second", requests_per_second)
        self.urls: Any = urls
        self.receipts: Any = receipts
        self.url_column = url_column
        self.parameters: Any = parameters
        self.max_concurrency = max_concurrency
        self.requests_per_second = requests_per_second
        self.max_consecutive_failures = max_consecutive_failures
        self.retry_unknown_outcome = retry_unknown_outcome
        self.cloudstore_conn_id = cloudstore_conn_id
        # As written: a template that renders to None is a mistake, and not a batch without receipts.
        self._has_receipts = receipts is not None
        self._unredacted_urls: Secret | None = None
        self._problem = ""
        # Airflow may copy the task before running it, and call `on_kill` on either copy: they share this list.
        self._killed: list[bool] = []

    def render_template(self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None) -> Any:
        """Render a value; a template that is a single expression may result in a list, with native rendering or without."""
        if not isinstance(content, str):
            return super().render_template(content, context, jinja_env, seen_oids)
        values: list[Any] = []

        def note(value: Any) -> Any:
            values.append(value)
            return value

        # Rendering again to get the list would run macros and pull XComs twice.
        environment = (jinja_env or self.get_template_env()).overlay(finalize=note)
        text = super().render_template(content, context, environment, seen_oids)
        value = values[0] if len(values) == 1 else text
        is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        return value if is_list and text == str(value) else text

    def _redact_fields(self) -> None:
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, holds_credentials, redact_path

        # A path with credentials is refused, redacted or not.
        if holds_credentials(str(self.receipts)):
            self.receipts = redact_path(str(self.receipts))
        if self._unredacted_urls or self._problem:
            return  # done before: `urls` is only a label by now
        try:
            urls = arguments.parse_urls(self.urls)
        except ValueError as error:
            self._problem, self.urls = str(error), MASK
            return
        if urls is not None:
            self._unredacted_urls = Secret(json.dumps(urls, default=_plain_row, skipkeys=True))
            self.urls = f"{len(urls):,} URLs"
        elif holds_credentials(str(self.urls)):
            self.urls = redact_path(str(self.urls))

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue every upload that no earlier try has finished."""
        context = context_or_empty(context)
        self._redact_fields()  # a unit test may not have rendered them
        return self._finalize(context, asyncio.run(self._job(context).run()))

    def on_kill(self) -> None:
        """Start no more uploads; ``execute`` stores what has finished on its way out."""
        self._killed.append(True)

    def _job(self, context: Context) -> Job:
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.sender import Options
        from airflow_provider_cloudstore.hooks.time_budget import time_left

        return Job(
            self._read,
            self._open_hook().read_settings,
            Options(
                self.max_concurrency,
                self.requests_per_second,
                self.max_consecutive_failures,
                self.retry_unknown_outcome,
                self.parameters,
            ),
            open_receipts(self.receipts, context) if self._has_receipts else None,
            killed=lambda: bool(self._killed),
            time_limit=max(0.1, time_left() - _TIME_TO_END),
        )

    def _read(self) -> Manifest:
        from airflow_provider_cloudstore.batch.manifest import FileManifest, list_manifest
        from airflow_provider_cloudstore.exceptions import InvalidInputError
        from airflow_provider_cloudstore.hooks.targets import object_path

        if self._problem:
            raise InvalidInputError(self._problem)
        if self._unredacted_urls:
            return list_manifest(json.loads(self._unredacted_urls.reveal()), self.url_column)
        manifest = FileManifest(object_path(self.urls, "urls"), str(self.urls), self.url_column)
        if next(manifest(), None) is None:  # a folder of an object store looks like an empty file
            raise InvalidInputError(f"the manifest {self.urls} is empty, or a folder")
        return manifest

    def _finalize(self, context: Context, report: Ledger) -> dict[str, Any]:
        from airflow_provider_cloudstore.exceptions import BatchFailedError, BatchInterruptedError

        receipts = str(self.receipts) if self._has_receipts else None
        summary = {**report.to_dict(), "receipts": receipts}
        finished = report.error is None or isinstance(report.error, BatchFailedError)
        # Terminated, there is no time to push; superseded, the XCom is the newer try's; without a store, Airflow may be away.
        if not isinstance(report.error, BatchInterruptedError) or report.error.ended_by in ("service", "rate_limit", "token"):
            self._push(context, "return_value", summary)
        if finished:
            self.log.info("Batch finished: %s; receipts: %s", report, receipts or "none")
        if report.error is not None:
            raise report.error
        return summary


def _plain_row(row: Any) -> Any:
    """A row of a query, which may be no tuple, as plain data."""
    return list(row) if isinstance(row, Sequence) and not isinstance(row, bytes) else str(row)


def open_receipts(given: Any, context: Context) -> Receipts:
    """The running try's receipts in a folder; ``InvalidInputError`` if another worker would not find it."""
    from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Try
    from airflow_provider_cloudstore.exceptions import InvalidInputError
    from airflow_provider_cloudstore.hooks.targets import object_path
    from airflow_provider_cloudstore.protocol.guards import validate_text

    text = validate_text(str(given) if hasattr(given, "open") else given, "receipts")
    path = object_path(given if hasattr(given, "open") else text, "receipts")
    if not getattr(path, "protocol", "") and not text.startswith("/"):
        raise InvalidInputError("receipts is a relative path: make it absolute, so that every worker finds it")
    ti = context.get("ti")
    scope = tuple(str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id", "map_index"))
    return Receipts(Folder(path), Try(scope, int(getattr(ti, "try_number", 1) or 1)))
