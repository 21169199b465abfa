"""Very many uploads as one task: it renders, reports and hands over; what a batch does is in ``batch/``."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow_provider_cloudstore.compat import task_state_store
from airflow_provider_cloudstore.operators.base import TypedOperator, validate_flags
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_cloudstore.batch.job import Job, Report
    from airflow_provider_cloudstore.batch.manifest import Entry
    from airflow_provider_cloudstore.batch.receipts import Try
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.secrets import Secret

_STATE_KEY = "cloudstore_batch"
_TIME_TO_SAVE = 3.0
_GONE = 404


class RemoteUrlBatchUploadOperator(TypedOperator):
    """Queue many remote uploads in one task (API document, section 4.2), as fast as the service allows.

    Progress is checkpointed before more is sent: after a kill, a freeze or an outage, a retry loses no upload and resends at most
    ``max_concurrency`` uploads plus those of the last two seconds. It resumes from the task's state store (Airflow 3.3 and
    later), from the ``receipts``, or from both.

    The XCom is small: ``{"total", "queued", "failed", "unknown", "skipped", "queued_earlier", "receipts", "failures"}``, where
    ``failures`` holds the first twenty. A URL's credentials are sent to the service, but never shown, not even in the receipts.

    :param urls: a list of URLs, or the path of a manifest, read through Airflow's ``ObjectStoragePath`` (templated): text with
        a URL a line, CSV (``.csv``, ``.tsv``), JSON Lines or a JSON array (``.jsonl``, ``.ndjson``, ``.json``), plain or gzip.
    :param url_column: the column of a CSV, or the key in JSON, that holds the URL.
    :param key_column: the column or key with the manifest's own id of a line, which is copied to the receipts.
    :param max_concurrency: maximum number of requests in flight.
    :param requests_per_second: a steady rate for the whole batch; None for no limit.
    :param on_error: ``continue`` sends the rest before the task fails; ``stop`` ends the batch at the first failure.
    :param max_consecutive_failures: end the batch after this many failures in a row; None for never.
    :param skip_duplicates: send duplicate URLs only once. Costs at most 36 bytes of memory per URL.
    :param retry_unknown_outcome: resend uploads that may have been queued, in this try or an earlier one.
    :param receipts: a folder (``ObjectStoragePath``) for the outcome of every URL: JSON Lines in parts (templated).
    :param resume: resume where the task stopped before it was cleared; False resends everything. Airflow's retries always resume
        (templated).
    :param shard: ``(k, n)`` sends the k-th of n parts of the manifest, counted from 0, split by URL (templated).
    :param allow_empty: accept a manifest without URLs. An empty list is always accepted.
    :param fresh_connections: open a new connection for each upload, for services whose front ends reload.
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
        fresh_connections: bool = False,
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        from airflow_provider_cloudstore.batch.manifest import validate_kind

        super().__init__(**kwargs)
        validate_flags(
            skip_duplicates=skip_duplicates,
            retry_unknown_outcome=retry_unknown_outcome,
            allow_empty=allow_empty,
            fresh_connections=fresh_connections,
        )
        _validate_counts(max_concurrency, requests_per_second, max_consecutive_failures)
        _validate_names(url_column=url_column, key_column=key_column or "none")
        validate_kind(urls)
        if isinstance(shard, (list, tuple)) and all(isinstance(part, int) for part in shard) and not _parts_of(shard):
            raise ValueError(f"shard is {shard!r}: it must be (k, n), with k from 0 to n - 1")
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
        self.fresh_connections = fresh_connections
        self.cloudstore_conn_id = cloudstore_conn_id
        self._unredacted_urls: Secret | None = None
        self._problem = ""
        # Airflow may copy the task before it runs it, and tell either copy that it is to end: the list is the same in both.
        self._killed: list[bool] = []

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow shows and stores `urls` after this and before `execute`: the real ones stay in memory.
        super()._do_render_template_fields(*args, **kwargs)
        if self._unredacted_urls or self._problem:
            return  # rendered before: what is shown now is not what was given
        from airflow_provider_cloudstore.batch.manifest import list_of
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret

        try:
            urls = list_of(self.urls)
        except ValueError as error:
            self._problem, self.urls = str(error), MASK
            return
        if urls is not None:
            self._unredacted_urls = Secret(json.dumps(urls, default=str))
            self.urls = f"{len(urls):,} URLs"

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue the uploads that earlier tries have not settled."""
        from airflow_provider_cloudstore.hooks.airflow_errors import airflow_errors
        from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
        from airflow_provider_cloudstore.protocol.errors import InvalidInputError

        with airflow_errors(), CloudStoreHook(self.cloudstore_conn_id) as hook:
            if self._problem:
                raise InvalidInputError(f"{self._problem}; nothing was sent")
            report = asyncio.run(self._job(hook, context).run())
            return self._end(context, report)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """OpenLineage's question: from the manifest to the receipts."""
        from airflow_provider_cloudstore.lineage import operator_lineage
        from airflow_provider_cloudstore.protocol.lineage import of_batch

        return operator_lineage(of_batch(self.urls if self._is_file else None, self.receipts))

    def on_kill(self) -> None:
        """Begin no other upload; what is finished is stored on the way out of ``execute``."""
        self._killed.append(True)

    def _job(self, hook: CloudStoreHook, context: Context) -> Job:
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.receipts import PathFolder, Receipts
        from airflow_provider_cloudstore.batch.sending import Options
        from airflow_provider_cloudstore.hooks.time_budget import time_left
        from airflow_provider_cloudstore.protocol.operations import validate_present

        writer, first_try = _try_of(context, self.retries)
        resume = _flag(self.resume, "resume")
        options = Options(
            self.max_concurrency,
            self.requests_per_second,
            self.on_error == "stop",
            self.skip_duplicates,
            self.retry_unknown_outcome,
            self.max_consecutive_failures,
            _shard(self.shard) if self._is_sharded else None,
            self.fresh_connections,
            since_try=0 if resume else first_try,
        )
        store = task_state_store(context)
        place = validate_present(self.receipts, "receipts") if self.receipts is not None else None
        folder = PathFolder(_path(place, "receipts")) if place else None
        return Job(
            self._entries,
            hook.settings,
            hook.read_settings,
            options,
            writer=writer,
            store=_TaskState(store) if store is not None else None,
            receipts=Receipts(folder, writer, str(place)) if folder else None,
            killed=lambda: bool(self._killed),
            time_limit=max(0.1, time_left() - _TIME_TO_SAVE) if time_left() else 0.0,
            allow_empty=self.allow_empty or not self._is_file,
            report=self.log.info,
        )

    @property
    def _is_file(self) -> bool:
        return self._unredacted_urls is None and isinstance(self.urls, str)

    @contextmanager
    def _entries(self) -> Iterator[Iterator[Entry]]:
        from airflow_provider_cloudstore.batch.manifest import entries_of_file, entries_of_list
        from airflow_provider_cloudstore.protocol.errors import InvalidInputError

        if not self._is_file:
            yield entries_of_list(json.loads(self._unredacted_urls.reveal()) if self._unredacted_urls else self.urls)
            return
        path, problem = _path(str(self.urls), "urls"), ""
        try:
            stream = cast("Any", path).open("rb")
        except FileNotFoundError:
            problem = "does not exist"
        except (IsADirectoryError, NotADirectoryError):
            problem = "is a folder, or is in a file"
        if not problem and str(self.urls).endswith("/"):
            problem = "is a folder"
        if problem:
            raise InvalidInputError(
                f"the manifest {self.urls} {problem}: urls is a list, or the path of one file; nothing was sent"
            )
        with stream:
            yield entries_of_file(stream, path.name, self.url_column, self.key_column)

    def _end(self, context: Context, report: Report) -> dict[str, Any]:
        from airflow_provider_cloudstore.metrics import count_batch
        from airflow_provider_cloudstore.protocol import errors

        # Killed, there is no time for it; superseded, it is the newer try's; and with a store away Airflow may be, too.
        without_xcom = (errors.BatchInterruptedError, errors.BatchSupersededError, errors.BatchStoreError)
        summary = {**report.to_dict(), "receipts": self.receipts}
        final = report.error is None or isinstance(report.error, errors.BatchFailedError)
        count_batch(summary, final=final)
        if self.do_xcom_push and not isinstance(
            report.error, without_xcom
        ):  # here already: after the progress is deleted, a crash would have all sent again
            context["ti"].xcom_push(key="return_value", value=summary)
        if report.error is not None and not final:
            raise report.error
        counts = {**summary, "now": summary["queued"] - summary["queued_earlier"]}
        self.log.info(
            "The batch is done: %s of %s URLs queued (%s in this try, %s earlier), %s failed, %s unknown, %s stand twice; "
            "receipts: %s",
            *(f"{counts[name]:,}" for name in ("queued", "total", "now", "queued_earlier", "failed", "unknown", "skipped")),
            self.receipts or "none",
        )
        if report.error is not None:
            raise report.error
        store = task_state_store(context)
        if store is not None:
            store.delete(_STATE_KEY)
        return summary


class _TaskState:
    """Airflow's state store of a task (3.3 and later)."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def load(self) -> Any:
        return self._store.get(_STATE_KEY)

    def save(self, state: dict[str, Any]) -> None:
        from airflow_provider_cloudstore.protocol.errors import BatchSupersededError

        try:
            self._store.set(_STATE_KEY, state)
        except Exception as error:
            # The store belongs to the try that runs. Of one that was superseded Airflow says that it does not exist.
            detail = getattr(getattr(error, "error", None), "detail", None) or {}
            if not isinstance(detail, dict) or detail.get("status_code") != _GONE:
                raise
        else:
            return
        raise BatchSupersededError("Airflow refused the state of this try: a newer one has taken over", operation="batch upload")


def _try_of(context: Context, retries: int | None) -> tuple[Try, int]:
    """Which try this is, and which was the first one since the task was last cleared."""
    from airflow_provider_cloudstore.batch.receipts import Try

    ti = context["ti"]
    names = ("dag_id", "run_id", "task_id", "map_index")
    number = int(getattr(ti, "try_number", 1) or 1)
    most = int(getattr(ti, "max_tries", None) or retries or 0)
    return Try(tuple(str(getattr(ti, name, "")) for name in names), number), min(number, most - (retries or 0) + 1)


def _flag(value: Any, name: str) -> bool:
    """A flag that a template may have rendered as text."""
    from airflow_provider_cloudstore.protocol.errors import InvalidInputError

    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"{name} is {text[:40]!r}: it must be true or false; nothing was sent")
    return text == "true"


def _shard(value: Any) -> tuple[int, int] | None:
    """A shard that a template may have rendered as text: ``(0, 4)``, ``[0, 4]`` or ``0/4``."""
    from airflow_provider_cloudstore.protocol.errors import InvalidInputError

    found = _parts_of(value)
    if found is None:
        raise InvalidInputError(f"shard is {str(value)[:40]!r}: it is (k, n), with k from 0 to n - 1; nothing was sent")
    return found


def _parts_of(value: Any) -> tuple[int, int] | None:
    try:
        given = ast.literal_eval(value.replace("/", ",")) if isinstance(value, str) else value
        number, of = (int(part) for part in given)
    except (ValueError, TypeError, SyntaxError):
        return None
    return (number, of) if 0 <= number < of else None


def _validate_counts(concurrency: object, rate: object, failures: object) -> None:
    for name, value in (("max_concurrency", concurrency), ("max_consecutive_failures", failures)):
        if value is None and name == "max_consecutive_failures":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if rate is not None and (not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0):
        raise ValueError(f"requests_per_second must be a number above 0 or None, not {rate!r}")


def _validate_names(**names: object) -> None:
    for name, value in names.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} must be the name of a column, not {value!r}")


def _path(text: str, name: str) -> Any:
    """A path whose filesystem exists, and which every worker takes for the same."""
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    from airflow_provider_cloudstore.protocol.errors import InvalidInputError

    try:
        path: Any = ObjectStoragePath(text)
        _ = path.fs
    except ValueError:
        path = None
    if path is None:
        scheme = text.partition("://")[0][:40]
        raise InvalidInputError(
            f"{name}: no filesystem for '{scheme}': install the Airflow provider that brings it, such as "
            "apache-airflow-providers-amazon[s3fs] for s3; nothing was sent"
        )
    if name == "receipts" and not path.protocol and not text.startswith("/"):
        raise InvalidInputError(
            "receipts is a relative path, which another worker would not find: make it absolute; nothing was sent"
        )
    return path
