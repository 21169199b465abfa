"""The service's operations as tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.providers.common.compat.sdk import Context, XComArg, conf

from airflow_provider_cloudstore.assets.cloudstore import attach_file_id
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook, airflow_errors, mask
from airflow_provider_cloudstore.operators.batch import RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.operators.download import DownloadFileOperator
from airflow_provider_cloudstore.operators.send_once import forget_upload, send_once
from airflow_provider_cloudstore.operators.typed import TypedOperator, validate_flags
from airflow_provider_cloudstore.operators.waiting import WaitingOperator, validate_durations
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.upload_record import UploadRecord, url_digest

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_cloudstore.protocol.lineage import Lineage

__all__ = [
    "DeleteFolderOperator",
    "DownloadFileOperator",
    "DownloadLinkOperator",
    "RemoteUrlBatchUploadOperator",
    "RemoteUrlUploadOperator",
]

_MAY_HIDE = frozenset("?@#")  # without one of these a text holds neither user info nor query
XCOM_DOWNLOAD_LINK = "download_link"
XCOM_FILE_ID = "file_id"


class DeleteFolderOperator(TypedOperator):
    """Delete a folder and its contents permanently (API document, section 4.1).

    Empty and protected ids are rejected before anything is sent, and so is what a template renders when its source is missing.
    The XCom is ``{"folder_id", "requested_at", "response", "existed"}``.

    :param folder_id: the folder to delete (templated).
    :param ignore_missing: succeed if the folder does not exist; ``existed`` is then false.
    :param cloudstore_conn_id: the Airflow connection (templated).
    """

    template_fields: Sequence[str] = ("folder_id", "cloudstore_conn_id")
    ui_color = "#f6d5d0"

    def __init__(
        self,
        *,
        folder_id: str | int | XComArg,
        ignore_missing: bool = False,
        cloudstore_conn_id: str = CloudStoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(ignore_missing=ignore_missing)
        self.folder_id: Any = folder_id
        self.ignore_missing = ignore_missing
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the folder."""
        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            deletion = hook.delete_folder(self.folder_id, ignore_missing=self.ignore_missing)
        if deletion.existed is False:
            self.log.info("Folder '%s' was gone already: nothing was deleted", deletion.folder_id)
        else:
            self.log.info("Folder '%s' is deleted, with everything in it", deletion.folder_id)
        return deletion.to_dict()


class RemoteUrlUploadOperator(TypedOperator):
    """Queue an upload that the service later fetches from a URL (API document, section 4.2).

    The URL's credentials (user info, query) are sent to the service, but never shown, not even in the rendered template.
    The XCom is ``{"url", "requested_at", "response"}``, the URL redacted. The XCom ``file_id`` is the id that the file has
    or will have; it is None if the response has no id in the usual places (extra ``file_id_path`` names another).

    On Airflow 3.3 and later, a retry knows what a killed try has sent: if the upload was queued, the retry returns its result;
    if the try was killed while sending, the retry fails with ``OutcomeUnknownError``. Before 3.3 the retry sends it again.

    :param url: an absolute URL with scheme http, https or ftp (templated).
    :param retry_unknown_outcome: resend an upload that may have been queued; the service may then hold the file twice.
    :param cloudstore_conn_id: the Airflow connection (templated).
    """

    template_fields: Sequence[str] = ("url", "cloudstore_conn_id")
    ui_color = "#d0e4f6"

    def __init__(
        self,
        *,
        url: str | XComArg,
        retry_unknown_outcome: bool = False,
        cloudstore_conn_id: str = CloudStoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(retry_unknown_outcome=retry_unknown_outcome)
        self.url: Any = url
        self.retry_unknown_outcome = retry_unknown_outcome
        self.cloudstore_conn_id = cloudstore_conn_id
        self._unredacted_url: Secret | None = None
        self._lineage: Lineage | None = None
        self.on_success_callback = [*_callbacks(self.on_success_callback), forget_upload]

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow shows and stores `url` after this, of a plain task and of a mapped one, and before `execute`.
        super()._do_render_template_fields(*args, **kwargs)
        given: Any = self.url  # a template can render anything
        if given is None or (isinstance(given, str) and not _MAY_HIDE & set(given)):
            return
        shown = redact_url(given) if isinstance(given, str) else MASK
        if shown != given:
            self._unredacted_url = Secret(given)  # the guard refuses what is no text, by its type
            mask(url_secrets(given) if isinstance(given, str) else ())
            self.url = shown

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue the upload."""
        upload = self._upload(context)
        file_id = upload.pop(XCOM_FILE_ID, None) or ""
        if self.do_xcom_push:  # empty, not null: Airflow takes null for "not found", and fails the next task without saying why
            context["ti"].xcom_push(key=XCOM_FILE_ID, value=file_id)
        if not file_id:
            self.log.info("The service's answer tells no file id in the usual places; extra 'file_id_path' names another place")
        return upload

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """OpenLineage's question: from the source, without what gives access to it, to the file."""
        from airflow_provider_cloudstore.lineage import operator_lineage

        return operator_lineage(self._lineage)

    def _upload(self, context: Context) -> dict[str, Any]:
        url = self._unredacted_url.reveal() if self._unredacted_url else self.url
        store = context.get("task_state_store")
        if store is None:  # before Airflow 3.3
            return self._send(url)
        ti, now = context["ti"], pendulum.now("UTC").to_iso8601_string()
        with airflow_errors():
            return send_once(
                lambda: self._send(url),
                store,
                UploadRecord(url_digest(str(url)), ti.try_number, ti.max_tries, now),
                subject=redact_url(str(url)),
                retry_unknown_outcome=self.retry_unknown_outcome,
            )

    def _send(self, url: str) -> dict[str, Any]:
        from airflow_provider_cloudstore.protocol.lineage import of_upload

        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            upload = hook.upload_from_url(url, retry_unknown_outcome=self.retry_unknown_outcome)
            self._lineage = of_upload(upload.url, hook.settings.base_url, upload.file_id)
        self.log.info("The upload of %s is queued; the service fetches it later", upload.url)
        return {**upload.to_dict(), XCOM_FILE_ID: upload.file_id}


def _callbacks(given: Any) -> list[Any]:
    # Airflow 3 makes a list of what the user gave, Airflow 2 keeps it as it was.
    if isinstance(given, Iterable):
        return list(given)
    return [given] if given else []


class DownloadLinkOperator(WaitingOperator):
    """Create a time-limited download token for a file (API document, section 4.3).

    The return value is the token; the XCom ``download_link`` is ``{"file_id", "token", "url_with_token", "created_at",
    "expires_at"}``.
    Airflow stores and shows XComs in clear text: anyone who can read them can download the file until the token expires.
    With ``outlets``, the events of these assets hold the id under ``file_id``, but not the token.

    :param file_id: the file (templated).
    :param wait_for_file: wait until the file is available, as ``FileAvailableSensor`` does: an upload is only queued.
    :param poll_interval: seconds between two polls.
    :param timeout: maximum seconds to wait.
    :param deferrable: with ``wait_for_file``: wait in the triggerer, without a worker slot; by default as
        ``[operators] default_deferrable`` says.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if ``poll_interval`` or ``timeout`` is not a number above 0.
    """

    template_fields: Sequence[str] = ("file_id", "cloudstore_conn_id")
    ui_color = "#d5f0d5"

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        wait_for_file: bool = False,
        poll_interval: float = 10.0,
        timeout: float = 3600.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        cloudstore_conn_id: str = CloudStoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_durations(poll_interval=poll_interval, timeout=timeout)
        validate_flags(wait_for_file=wait_for_file, deferrable=deferrable)
        self.file_id: Any = file_id
        self.wait_for_file = wait_for_file
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.deferrable = deferrable
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> str:
        """Make the link, once the file is there if that was asked for, and hand it on."""
        if self.deferrable and not self.wait_for_file and not conf.getboolean("operators", "default_deferrable", fallback=False):
            self.log.warning("deferrable=True has no effect without wait_for_file=True: the link is created now, without a wait")
        with airflow_errors(), CloudStoreHook(self.cloudstore_conn_id) as hook:
            link = self._wait(context, hook) if self.wait_for_file else hook.create_download_link(self.file_id)
        return self._push_link(context, link)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """Make a fresh link after the triggerer has waited, so that it is as young as it can be."""
        self._validate_event(context, event)
        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            link = self._fresh_link(hook)
        return self._push_link(context, link)

    def _push_link(self, context: Context, link: DownloadLink) -> str:
        attach_file_id(self, context, link.file_id)
        if self.do_xcom_push:
            context["ti"].xcom_push(key=XCOM_DOWNLOAD_LINK, value=link.to_dict())
        self.log.info("A download link for file '%s' is made; it ends at %s", link.file_id, link.expires_at or "a time not told")
        return link.token
