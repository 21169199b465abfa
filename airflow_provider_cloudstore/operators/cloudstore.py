"""The operators: each performs one call of the service.

What only a running task needs is imported when it runs, so that DAG files parse fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.operators.arguments import validate_flags
from airflow_provider_cloudstore.operators.base import CloudStoreOperator, RedactingOperator, known_context
from airflow_provider_cloudstore.operators.batch import RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.operators.download import DownloadFileOperator
from airflow_provider_cloudstore.operators.waiting import WaitingOperator
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.results import DownloadLink
    from airflow_provider_cloudstore.protocol.secrets import Secret

__all__ = [
    "DeleteFolderOperator",
    "DownloadFileOperator",
    "DownloadLinkOperator",
    "RemoteUrlBatchUploadOperator",
    "RemoteUrlUploadOperator",
]

XCOM_DOWNLOAD_LINK = "download_link"
XCOM_UPLOAD = "upload"


class DeleteFolderOperator(CloudStoreOperator):
    """Delete a folder and its contents permanently (``POST /folder/delete``).

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
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.folder_id: Any = folder_id
        self.ignore_missing = ignore_missing
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the folder."""
        with self._open_hook() as hook:
            deletion = hook.delete_folder(self.folder_id, ignore_missing=self.ignore_missing)
        if deletion.existed is False:
            self.log.info("Folder '%s' does not exist; nothing to delete", deletion.folder_id)
        else:
            self.log.info("Deleted folder '%s' and its contents", deletion.folder_id)
        return deletion.to_dict()


class RemoteUrlUploadOperator(RedactingOperator):
    """Queue an upload that the service later fetches from a URL (``POST /file/url_upload_add``).

    The URL's credentials (user info, query) are sent to the service, but never logged or shown in the rendered template.
    The return value is the id that the file has or will have; it is an empty string if the response has no id in the usual places
    (extra ``file_id_path`` names another). The XCom ``upload`` is ``{"file_id", "url", "requested_at", "response"}``, the URL
    redacted.

    On Airflow 3.3 and later, a retry knows what a killed try sent: if the upload was queued, the retry returns its result; if
    the try was killed while sending, the retry fails with ``OutcomeUnknownError``. Before 3.3, the retry resends it.

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
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(retry_unknown_outcome=retry_unknown_outcome)
        self.url: Any = url
        self.retry_unknown_outcome = retry_unknown_outcome
        self.cloudstore_conn_id = cloudstore_conn_id
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
        """Queue the upload."""
        context = known_context(context)
        from airflow_provider_cloudstore.operators.send_once import send_once

        url = self._unredacted_url.reveal() if self._unredacted_url else self.url
        upload = send_once(lambda: self._send(url), context, str(url), retry_unknown_outcome=self.retry_unknown_outcome)
        self._push(context, XCOM_UPLOAD, upload)
        if not upload["file_id"]:
            self.log.info("The response has no file id in the usual places; extra 'file_id_path' can name another")
        # If there is none, it is empty and not None: Airflow treats None as missing, and fails the next task without a reason.
        return str(upload["file_id"])

    def _send(self, url: str) -> dict[str, Any]:
        from airflow_provider_cloudstore.lineage import of_upload

        with self._open_hook() as hook:
            upload = hook.upload_from_url(url, retry_unknown_outcome=self.retry_unknown_outcome)
            self._lineage = of_upload(upload.url, hook.settings.base_url, upload.file_id)
        name = f" as file '{upload.file_id}'" if upload.file_id else ""
        self.log.info("Queued upload of %s%s; the service will fetch it later", upload.url, name)
        return upload.to_dict()


class DownloadLinkOperator(WaitingOperator):
    """Create a time-limited download token for a file (``GET /file/download``).

    The return value is the token; the XCom ``download_link`` is ``{"file_id", "token", "url_with_token", "created_at",
    "expires_at"}``. Its URL is the response's, or else that of the connection's extra ``download_url``; None without either.
    Airflow stores and shows XComs in clear text: anyone who can read them can download the file until the token expires.
    Asset events of the task's ``outlets`` hold the id under ``file_id``, but not the token.

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

    def _use_link(self, context: Context, hook: CloudStoreHook, link: DownloadLink | None) -> str:
        from airflow_provider_cloudstore.assets.cloudstore import attach_file_id

        link = link or hook.create_download_link(self.file_id)
        attach_file_id(self, context, link.file_id, hook)
        self._push(context, XCOM_DOWNLOAD_LINK, link.to_dict())
        expiry = f"expires {link.expires_at}" if link.expires_at else "expiry unknown"
        self.log.info("Created download link for file '%s' (%s)", link.file_id, expiry)
        if not link.url_with_token:
            self.log.info(
                "url_with_token is null: the response has no URL, and extra 'download_url' of the connection is not set"
            )
        return link.token
