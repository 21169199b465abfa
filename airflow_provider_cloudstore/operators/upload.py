"""Queues an upload, and waits for the file if asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.operators.base import context_or_empty, validate_flags
from airflow_provider_cloudstore.operators.waiting import WaitingOperator

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.secrets import Secret
    from airflow_provider_cloudstore.results import RemoteUploadXCom


class RemoteUrlUploadOperator(WaitingOperator):
    """Queue an upload that the service later fetches from a URL (``POST /file/url_upload_add``).

    The URL's credentials (user info, query) are sent to the service, but never logged or shown in the rendered template.

    With ``wait_for_file=True``, the task succeeds when the file is available. A failed wait never causes a second upload: on
    Airflow 3.3 and later, a retry only waits, for the rest of ``timeout``; before 3.3, any error that ends the wait is permanent.
    The guide "Errors and retries" says what a retry does after a kill. Clearing the task uploads again.

    :param url: An absolute URL with scheme http, https or ftp (templated).
    :param parameters: More form fields of the upload: strings by name, such as ``{"folder_id": "42"}`` (templated).
    :param retry_unknown_outcome: Resend an upload that may have been queued; the service may then hold the file twice.
    :returns: The id that the file has or will have; an empty string if the response does not contain it.
    """

    template_fields: Sequence[str] = ("url", "parameters", "cloudstore_conn_id")

    def __init__(
        self,
        *,
        url: str | XComArg,
        parameters: Mapping[str, Any] | XComArg | None = None,
        retry_unknown_outcome: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(retry_unknown_outcome=retry_unknown_outcome)
        self.url: Any = url
        self.parameters: Any = parameters
        self.retry_unknown_outcome = retry_unknown_outcome
        self._unredacted_url: Secret | None = None

    def _redact_fields(self) -> None:
        given: Any = self.url  # a template can render anything
        if given is None or self._unredacted_url:
            return
        from airflow_provider_cloudstore.hooks.connection import mask
        from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, redact_url, secrets_in

        redacted = redact_url(given) if isinstance(given, str) else MASK
        if redacted != given:
            self._unredacted_url = Secret(given)  # the hook rejects it if it is not a string
            mask(secrets_in({"url": given}) if isinstance(given, str) else ())
            self.url = redacted

    def execute(self, context: Context) -> str:
        """Queue the upload and, with ``wait_for_file``, wait for the file."""
        from airflow_provider_cloudstore.operators.send_once import send_once, without_resending

        context = context_or_empty(context)
        url = self._unredacted_url.reveal() if self._unredacted_url else self.url
        may_repeat = self.retry_unknown_outcome
        with self._open_hook() as hook:
            _ = hook.settings  # if the connection cannot be read, nothing is recorded as sent

            def send() -> RemoteUploadXCom:
                return hook.upload_from_url(url, self.parameters, retry_unknown_outcome=may_repeat).to_dict()

            upload = send_once(send, context, str(url), retry_unknown_outcome=may_repeat)
            with without_resending(context, upload["file_id"]):
                no_id = "the response has no file id in the usual places; extra 'file_id_path' can name another"
                shown_id = f"file '{upload['file_id']}'" if upload["file_id"] else no_id
                self.log.info("Queued upload of %s: %s", upload["url"], shown_id)
                self._push(context, "upload", upload)
                self._push_file_page(context, hook, upload["file_id"])
                if self.wait_for_file:
                    self._wait_for_upload(hook, upload)
        return upload["file_id"]

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral, even if Airflow reports an error of its own, such as a trigger timeout without a triggerer."""
        from airflow_provider_cloudstore.operators.send_once import without_resending

        event = (next_kwargs or {}).get("event") or {}
        with without_resending(context, event.get("file_id", "")):
            return super().resume_execution(next_method, next_kwargs, context)

    def _complete(self, context: Context, hook: CloudStoreHook, file_id: str) -> str:
        self._push_file_page(context, hook, file_id)  # Airflow asks the process that ends the task for the link "File"
        return file_id

    def _wait_for_upload(self, hook: CloudStoreHook, upload: RemoteUploadXCom) -> None:
        from airflow_provider_cloudstore.exceptions import PermanentError

        if not upload["file_id"]:
            raise PermanentError(
                "the response has no file id to wait for",
                operation="remote upload",
                subject=upload["url"],
                advice="Set extra 'file_id_path' of the connection to where the response has it. If the service's "
                "queue returns no file id, as on YetiShare sites, look for the file in its folder: see the guide 'Stage files'.",
            )
        self._wait_for_file(hook, upload["file_id"], datetime.fromisoformat(upload["requested_at"]))
