"""Queues an upload, and waits for the file if asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_cloudstore.compat import AirflowTaskTimeout
from airflow_provider_cloudstore.operators.arguments import validate_flags, validate_positive
from airflow_provider_cloudstore.operators.base import RedactingOperator, context_or_empty
from airflow_provider_cloudstore.operators.links import FileLink, push_file_page
from airflow_provider_cloudstore.operators.waiting import DEFERRABLE, MISNAMED, validate_event, wait_for
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.secrets import Secret

_NOT_RETRIED = "Airflow does not retry this task: without a task state store (Airflow 3.3), a retry would upload again."


class RemoteUrlUploadOperator(RedactingOperator):
    """Queue an upload that the service later fetches from a URL (``POST /file/url_upload_add``).

    The URL's credentials (user info, query) are sent to the service, but never logged or shown in the rendered template.
    The return value is the id that the file has or will have; it is an empty string if the response has no id in the usual places
    (extra ``file_id_path`` names another). The XCom ``upload`` is ``{"file_id", "url", "requested_at", "response"}``, the URL
    redacted.

    With ``wait_for_file=True``, the task succeeds when the file is there. An upload never runs again because its wait failed. On
    Airflow 3.3 and later, a retry goes on waiting, with what is left of ``timeout``; before, whatever ends the wait is permanent.
    Clearing the task uploads again.

    On Airflow 3.3 and later, a retry knows what an earlier try sent. What was queued is not sent again, whatever the URL renders
    to; if the try was killed while sending, the retry fails with ``OutcomeUnknownError``. Before 3.3, a retry after a kill
    resends the upload.

    :param url: an absolute URL with scheme http, https or ftp (templated).
    :param parameters: what else the service takes for an upload, such as ``folder_id``: texts by name (templated).
    :param retry_unknown_outcome: resend an upload that may have been queued; the service may then hold the file twice.
    :param wait_for_file: wait until the file is available, as ``FileAvailableSensor`` does.
    :param poll_interval: seconds between two polls; default: 10.
    :param timeout: maximum seconds from the upload until the file is available; default: 3600.
    :param deferrable: with ``wait_for_file``: wait in the triggerer, without a worker slot; by default as
        ``[operators] default_deferrable`` says.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if ``poll_interval`` or ``timeout`` is not a number above 0.
    """

    template_fields: Sequence[str] = ("url", "parameters", "cloudstore_conn_id")
    operator_extra_links = (FileLink(),)
    ui_color = "#d0e4f6"
    _misnamed: ClassVar = MISNAMED

    def __init__(
        self,
        *,
        url: str | XComArg,
        parameters: Mapping[str, Any] | XComArg | None = None,
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
        validate_flags(retry_unknown_outcome=retry_unknown_outcome, wait_for_file=wait_for_file, deferrable=deferrable)
        self.wait_for_file = wait_for_file
        self.poll_interval = validate_positive("poll_interval", poll_interval)
        self.timeout = validate_positive("timeout", timeout)
        self.deferrable = deferrable
        self.url: Any = url
        self.parameters: Any = parameters
        self.retry_unknown_outcome = retry_unknown_outcome
        self._unredacted_url: Secret | None = None

    def _redact_fields(self) -> None:
        given: Any = self.url  # a template can render anything
        if given is None or self._unredacted_url:
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

        context = context_or_empty(context)
        url = self._unredacted_url.reveal() if self._unredacted_url else self.url
        with self._open_hook() as hook:
            resend = self.retry_unknown_outcome
            upload = send_once(lambda: self._send(hook, url), context, str(url), retry_unknown_outcome=resend)
            if not self.wait_for_file:
                return self._finish(context, hook, upload)
            with self._never_uploading_again(context, upload["file_id"]):
                return self._finish(context, hook, upload)

    def execute_complete(self, context: Context, event: Mapping[str, Any], **upload: str) -> str:
        """Resume after a deferred wait for the file of an upload: its id, and its redacted URL."""
        context = context_or_empty(context)
        if not upload and (ti := context.get("ti")):  # `dag.test` forgets what a task was deferred with
            upload = ti.xcom_pull(task_ids=self.task_id, key="upload", map_indexes=ti.map_index) or {}
        file_id = upload.get("file_id", "")
        with self._never_uploading_again(context, file_id), self._open_hook() as hook:
            push_file_page(self, context, file_id, hook)
            validate_event(event)
            return self._report(context, hook, file_id, upload.get("url", ""))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral. Airflow's own error, such as that of a wait without a triggerer, names no file."""
        if next_method == "execute_complete":
            return super().resume_execution(next_method, next_kwargs, context)
        with self._never_uploading_again(context_or_empty(context), ""):
            return super().resume_execution(next_method, next_kwargs, context)

    @contextmanager
    def _never_uploading_again(self, context: Context, file_id: str) -> Iterator[None]:
        """Let whatever ends a wait say that the upload is queued, and be permanent if a retry would not know that."""
        from airflow_provider_cloudstore.exceptions import CloudStoreError, PermanentError

        try:
            yield
        except (Exception, AirflowTaskTimeout) as error:
            goes_on = context.get("task_state_store") is not None
            advice = self._what_goes_on(file_id, retried=goes_on and not getattr(error, "permanent", False))
            if isinstance(error, CloudStoreError):
                if goes_on or error.permanent or not self.retries:
                    raise replace(error, advice=f"{advice} {error.what_to_do}") from None
                facts = asdict(error)
            elif goes_on:
                raise
            else:
                facts = {"reason": f"the wait ended with {type(error).__name__}", "operation": "remote upload"}
            raise PermanentError(**facts | {"advice": f"{advice} {_NOT_RETRIED}"}) from error

    def _what_goes_on(self, file_id: str, *, retried: bool) -> str:
        name, sensor = (f" as file '{file_id}'", f"(file_id='{file_id}')") if file_id else ("", "")
        retry = "a retry goes on waiting, " if retried and self.retries else ""
        return f"The upload is queued{name}; {retry}FileAvailableSensor{sensor} only waits, and clearing this task uploads again."

    def _send(self, hook: CloudStoreHook, url: str) -> dict[str, Any]:
        upload = hook.upload_from_url(url, self.parameters, retry_unknown_outcome=self.retry_unknown_outcome)
        name = f" as file '{upload.file_id}'" if upload.file_id else ""
        self.log.info("Queued upload of %s%s; the service will fetch it later", upload.url, name)
        return upload.to_dict()

    def _finish(self, context: Context, hook: CloudStoreHook, upload: dict[str, Any]) -> str:
        self._push(context, "upload", upload)
        push_file_page(self, context, upload["file_id"], hook)
        if self.wait_for_file:
            self._wait(hook, upload)
        return self._report(context, hook, upload["file_id"], upload["url"])

    def _wait(self, hook: CloudStoreHook, upload: Mapping[str, Any]) -> None:
        from airflow_provider_cloudstore.exceptions import InvalidInputError, InvalidResponseError
        from airflow_provider_cloudstore.protocol.waiting import FileWait

        began = datetime.fromisoformat(upload["requested_at"])
        try:
            wait = FileWait(upload["file_id"], self.poll_interval, self.timeout, began)
        except InvalidInputError:
            raise InvalidResponseError(
                "the upload is queued, but the response has no file id to wait for",
                operation="remote upload",
                subject=upload["url"],
                advice="Set extra 'file_id_path' of the connection to where the response has it. Where the service's queue gives "
                "none, as that of YetiShare sites, find the file in its folder: see the guide 'Stage into a folder'.",
            ) from None
        wait_for(self, hook, wait, deferrable=self.deferrable, url=upload["url"])

    def _report(self, context: Context, hook: CloudStoreHook, file_id: str, url: str) -> str:
        if self.wait_for_file:
            self.log.info("File '%s' is available", file_id)
        if not file_id:
            self.log.info("The response has no file id in the usual places; extra 'file_id_path' can name another")
        # If there is none, it is empty and not None: Airflow treats None as missing, and fails the next task without a reason.
        return file_id
