"""The service's three operations as tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import BaseOperator, Context

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook, mask
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, url_secrets

XCOM_DOWNLOAD_LINK = "download_link"


class DeleteFolderOperator(BaseOperator):
    """Delete a folder with everything in it, for good (API document, section 4.1).

    An id that is empty, missing (what a template renders when its source is) or protected is refused before anything is sent.
    The XCom is ``{"folder_id", "requested_at", "response"}``.

    :param folder_id: the folder to delete (templated).
    :param cloudstore_conn_id: the Airflow connection (templated).
    """

    template_fields: Sequence[str] = ("folder_id", "cloudstore_conn_id")
    ui_color = "#f6d5d0"

    def __init__(self, *, folder_id: str, cloudstore_conn_id: str = CloudStoreHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder_id = folder_id
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the folder."""
        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            deletion = hook.delete_folder(self.folder_id)
        self.log.info("Folder '%s' is deleted, with everything in it", deletion.folder_id)
        return deletion.to_dict()


class RemoteUrlUploadOperator(BaseOperator):
    """Queue an upload which the service fetches from a URL by itself, later (API document, section 4.2).

    What gives access in the URL (user info, query) is sent and shown nowhere: not in the rendered template either.
    The XCom is ``{"url", "requested_at", "response"}``, the URL redacted.

    :param url: an absolute URL with scheme http, https or ftp (templated).
    :param retry_unknown_outcome: send it again when nobody can tell whether it was queued; the file may then be there twice.
    :param cloudstore_conn_id: the Airflow connection (templated).
    """

    template_fields: Sequence[str] = ("url", "cloudstore_conn_id")
    ui_color = "#d0e4f6"

    def __init__(
        self,
        *,
        url: str,
        retry_unknown_outcome: bool = False,
        cloudstore_conn_id: str = CloudStoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.retry_unknown_outcome = retry_unknown_outcome
        self.cloudstore_conn_id = cloudstore_conn_id
        self._source: Secret | None = None

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow shows and stores `url` after this, of a plain task and of a mapped one, and before `execute`.
        super()._do_render_template_fields(*args, **kwargs)
        shown = redact_url(self.url) if url_secrets(str(self.url)) else self.url
        if shown != self.url:
            self._source = Secret(self.url)
            mask(url_secrets(self.url))
            self.url = shown

    def execute(self, context: Context) -> dict[str, Any]:
        """Queue the upload."""
        url = self._source.reveal() if self._source else self.url
        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            upload = hook.upload_from_url(url, retry_unknown_outcome=self.retry_unknown_outcome)
        self.log.info("The upload of %s is queued; the service fetches it later", upload.url)
        return upload.to_dict()


class DownloadLinkOperator(BaseOperator):
    """Make a time-limited download token for a file (API document, section 4.3).

    The XCom is the token, and under the key ``download_link`` ``{"file_id", "token", "url", "created_at", "expires_at"}``.
    Airflow stores and shows XComs in clear: whoever may read them can download the file until the token ends.

    :param file_id: the file (templated).
    :param cloudstore_conn_id: the Airflow connection (templated).
    """

    template_fields: Sequence[str] = ("file_id", "cloudstore_conn_id")
    ui_color = "#d5f0d5"

    def __init__(self, *, file_id: str, cloudstore_conn_id: str = CloudStoreHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file_id = file_id
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> str:
        """Make the link and hand it on."""
        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            link = hook.create_download_link(self.file_id)
        if self.do_xcom_push:
            context["ti"].xcom_push(key=XCOM_DOWNLOAD_LINK, value=link.to_dict())
        self.log.info("A download link for file '%s' is made; it ends at %s", link.file_id, link.expires_at or "a time not told")
        return link.token
