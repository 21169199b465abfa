"""Queues an upload, and waits for the file if asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.compat import HAS_TASK_STATE_STORE
from airflow_provider_cloudstore.operators.arguments import validate_flags
from airflow_provider_cloudstore.operators.base import RedactingOperator, known_context
from airflow_provider_cloudstore.operators.links import FileLink, attach_file_id, push_file_page
from airflow_provider_cloudstore.operators.waiting import DEFERRABLE, WaitingOperator, validate_event
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.secrets import Secret

_WITHOUT_STORE = (
    "a retry could not know that the upload was sent, and would send it again. Set retries=0, or wait in a task of its own: "
    "FileAvailableSensor(file_id=upload.output)"
)


class RemoteUrlUploadOperator(RedactingOperator, WaitingOperator):
    """Queue an upload that the service later fetches from a URL (``POST /file/url_upload_add``).

    The URL's credentials (user info, query) are sent to the service, but never logged or shown in the rendered template.
    The return value is the id that the file has or will have; it is an empty string if the response has no id in the usual places
    (extra ``file_id_path`` names another). The XCom ``upload`` is ``{"file_id", "url", "requested_at", "response"}``, the URL
    redacted.

    With ``wait_for_file=True``, the task succeeds when the file is there, and asset events of its ``outlets`` hold the id under
    ``file_id``. The wait never uploads again: a retry goes on waiting, with what is left of ``timeout``, and a wait that timed
    out is not retried. Clearing the task uploads again.

    On Airflow 3.3 and later, a retry knows what an earlier try sent. What was queued is not sent again, whatever the URL renders
    to; if the try was killed while sending, the retry fails with ``OutcomeUnknownError``. Before 3.3, a retry resends the upload,
    so ``wait_for_file=True`` needs ``retries=0``.

    :param url: an absolute URL with scheme http, https or ftp (templated).
    :param retry_unknown_outcome: resend an upload that may have been queued; the service may then hold the file twice.
    :param wait_for_file: wait until the file is available, as ``FileAvailableSensor`` does.
    :param poll_interval: seconds between two polls; default: 10.
    :param timeout: maximum seconds from the upload until the file is available; default: 3600.
    :param deferrable: with ``wait_for_file``: wait in the triggerer, without a worker slot; by default as
        ``[operators] default_deferrable`` says.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if ``poll_interval`` or ``timeout`` is not a number above 0.
    :raises InvalidInputError: if the task waits and has ``retries`` on an Airflow before 3.3.
    """

    template_fields: Sequence[str] = ("url", "cloudstore_conn_id")
    operator_extra_links = (FileLink(),)
    ui_color = "#d0e4f6"

    def __init__(
        self,
        *,
        url: str | XComArg,
        retry_unknown_outcome: bool = False,
        wait_for_file: bool = False,
        poll_interval: float | timedelta = 10.0,
        timeout: float | timedelta = 3600.0,
        deferrable: bool = DEFERRABLE,
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._set_wait(wait_for_file, poll_interval, timeout, deferrable=deferrable)
        validate_flags(retry_unknown_outcome=retry_unknown_outcome)
        if wait_for_file and self.retries and not HAS_TASK_STATE_STORE:
            from airflow_provider_cloudstore.exceptions import InvalidInputError

            raise InvalidInputError(  # permanent: a mapped task is created when it runs
                f"wait_for_file=True with retries={self.retries} needs Airflow 3.3 or later: {_WITHOUT_STORE}"
            )
        self.url: Any = url
        self.retry_unknown_outcome = retry_unknown_outcome
        self._unredacted_url: Secret | None = None

    def _redact_fields(self) -> None:
        given: Any = self.url  # a template can render anything
        if given is None:
            return
        from airflow_provider_cloudstore.hooks.connection import mask
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, redact_url, url_secrets

        redacted = redact_url(given) if isinstance(given, str) else MASK
        if redacted != given:
            self._unredacted_url = Secret(given)  # the hook rejects it if it is not a string
            mask(url_secrets(given) if isinstance(given, str) else ())
            self.url = redacted

    def execute(self, context: Context) -> str:
        """Queue the upload, and with ``wait_for_file`` wait for it."""
        from airflow_provider_cloudstore.operators.send_once import send_once

        context = known_context(context)
        url = self._unredacted_url.reveal() if self._unredacted_url else self.url
        # A unit test passes no task instance, or an imitation of one.
        is_running = isinstance(getattr(context.get("ti"), "try_number", None), int)
        must_be_recorded = self.wait_for_file and self.retries and is_running
        refusal = f"wait_for_file=True with retries={self.retries} needs a task state store: {_WITHOUT_STORE}"
        with self._open_hook() as hook:
            upload = send_once(
                lambda: self._send(hook, url),
                context,
                str(url),
                retry_unknown_outcome=self.retry_unknown_outcome,
                without_store=refusal if must_be_recorded else "",
            )
            self._push(context, "upload", upload)
            push_file_page(self, context, upload["file_id"], hook)
            if self.wait_for_file:
                self._wait_for(hook, upload)
            return self._finish(context, hook, upload)

    def _wait_for(self, hook: CloudStoreHook, upload: Mapping[str, Any]) -> None:
        from airflow_provider_cloudstore.exceptions import InvalidInputError, InvalidResponseError
        from airflow_provider_cloudstore.protocol.guards import validate_file_id

        file_id, url, requested_at = upload["file_id"], upload["url"], upload["requested_at"]
        try:
            validate_file_id(file_id)
        except InvalidInputError:
            raise InvalidResponseError(
                "the upload is queued, but the response has no file id to wait for",
                operation="remote upload",
                subject=url,
                advice="Set extra 'file_id_path' of the connection to where the response has it. "
                "Clearing the task uploads again.",
            ) from None
        with self._naming_file(file_id):
            self._wait(hook, file_id, datetime.fromisoformat(requested_at), url=url, requested_at=requested_at)

    def execute_complete(self, context: Context, event: Mapping[str, Any], **upload: str) -> str:
        """Resume after a deferred wait for the file of an upload: its id, its redacted URL, and when it was sent (ISO 8601)."""
        context = known_context(context)
        if not upload:  # `dag.test` forgets it
            ti: Any = context["ti"]
            upload = ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index, key="upload")
        with self._open_hook() as hook:
            push_file_page(self, context, upload["file_id"], hook)
            with self._naming_file(upload["file_id"]):
                validate_event(event)
            return self._finish(context, hook, upload)

    @contextmanager
    def _naming_file(self, file_id: str) -> Iterator[None]:
        """Let the error of a wait say that the upload is queued, and how to go on waiting."""
        from airflow_provider_cloudstore.exceptions import CloudStoreError

        try:
            yield
        except CloudStoreError as error:
            goes_on = HAS_TASK_STATE_STORE and self.retries and not error.permanent
            retry = "a retry goes on waiting, " if goes_on else ""
            sensor = f"FileAvailableSensor(file_id='{file_id}') only waits"
            queued = f"The upload is queued as file '{file_id}'; {retry}{sensor}, and clearing this task uploads again."
            raise replace(error, advice=f"{queued} {error.what_to_do}") from None

    def _send(self, hook: CloudStoreHook, url: str) -> dict[str, Any]:
        upload = hook.upload_from_url(url, retry_unknown_outcome=self.retry_unknown_outcome)
        name = f" as file '{upload.file_id}'" if upload.file_id else ""
        self.log.info("Queued upload of %s%s; the service will fetch it later", upload.url, name)
        return upload.to_dict()

    def _finish(self, context: Context, hook: CloudStoreHook, upload: dict[str, Any]) -> str:
        from airflow_provider_cloudstore.lineage import Lineage, file_url

        file_id: str = upload["file_id"]
        self._lineage = Lineage((upload["url"],), (file_url(hook.settings.base_url, file_id),))
        if self.wait_for_file:
            self.log.info("File '%s' is available", file_id)
            attach_file_id(self, context, file_id)
        if not file_id:
            self.log.info("The response has no file id in the usual places; extra 'file_id_path' can name another")
        # If there is none, it is empty and not None: Airflow treats None as missing, and fails the next task without a reason.
        return file_id
