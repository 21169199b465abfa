"""The operators of one folder or one file; the operators that upload have their own modules, and can be imported from here, too.

Modules that only a running task needs are imported when it runs, so that DAG files parse fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.batch.operator import RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.operators.base import CloudStoreOperator, validate_flags
from airflow_provider_cloudstore.operators.upload import RemoteUrlUploadOperator
from airflow_provider_cloudstore.operators.waiting import WaitingOperator

if TYPE_CHECKING:
    from os import PathLike

    from airflow_provider_cloudstore.compat import Context, ObjectStoragePath, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.results import DownloadedFileXCom, FolderDeletionXCom

__all__ = [
    "DeleteFolderOperator",
    "DownloadFileOperator",
    "DownloadLinkOperator",
    "RemoteUrlBatchUploadOperator",
    "RemoteUrlUploadOperator",
]


class DeleteFolderOperator(CloudStoreOperator):
    """Delete a folder and its contents permanently (``POST /folder/delete``).

    Before anything is sent, the operator rejects an empty id, a protected id, and what a template renders for a missing value.

    :param folder_id: The folder to delete (templated).
    :param ignore_missing: Succeed if the folder does not exist; ``existed`` is then false.
    :returns: What was deleted, and the service's response.
    """

    template_fields: Sequence[str] = ("folder_id", "cloudstore_conn_id")

    def __init__(self, *, folder_id: str | int | XComArg, ignore_missing: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        validate_flags(ignore_missing=ignore_missing)
        self.folder_id: Any = folder_id
        self.ignore_missing = ignore_missing

    def execute(self, context: Context) -> FolderDeletionXCom:
        """Delete the folder."""
        with self._open_hook() as hook:
            deletion = hook.delete_folder(self.folder_id, ignore_missing=self.ignore_missing)
        if deletion.existed is False:
            self.log.info("Folder '%s' does not exist; nothing to delete", deletion.folder_id)
        else:
            self.log.info("Deleted folder '%s' and its contents", deletion.folder_id)
        return deletion.to_dict()


class DownloadLinkOperator(WaitingOperator):
    """Create a time-limited download token for a file (``GET /file/download``).

    Airflow stores and shows XComs in clear text: anyone who can read them can download the file until the token expires. The URL
    comes from the response, or else from the connection's extra ``download_url``.

    :param file_id: The file (templated).
    :returns: The download token.
    """

    template_fields: Sequence[str] = ("file_id", "cloudstore_conn_id")

    def __init__(self, *, file_id: str | int | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file_id: Any = file_id

    def execute(self, context: Context) -> str:
        """Wait for the file if ``wait_for_file`` is set, and create a link."""
        with self._open_hook() as hook:
            if self.wait_for_file:
                self._wait_for_file(hook, self.file_id)
            return self._complete(context, hook, self.file_id)

    def _complete(self, context: Context, hook: CloudStoreHook, file_id: Any) -> str:
        link = hook.create_download_link(file_id)
        self._push_file_page(context, hook, link.file_id)
        self._push(context, "download_link", link.to_dict())
        expiry = f"expires {link.expires_at}" if link.expires_at else "expiry unknown"
        self.log.info("Created download link for file '%s' (%s)", link.file_id, expiry)
        if not link.url_with_token:
            self.log.info(
                "url_with_token is null: the response has no URL, and extra 'download_url' of the connection is not set"
            )
        return link.token


class DownloadFileOperator(WaitingOperator):
    """Download a file to a local path or an object store; its link never leaves the task (``GET /file/download``).

    The target is either complete or absent. A broken download resumes, with a new link if the old link has expired. The size is
    always verified, and the SHA-256 if you set it. Memory use does not depend on the file's size. ``timeout`` limits the wait,
    and ``execution_timeout`` limits the download, which runs on a worker.

    :param file_id: The file (templated).
    :param target: A local path, or a path for ``ObjectStoragePath``, such as ``s3://aws_default@bucket/key``. If it ends with
        ``/``, the file is named after its id, percent-encoded (templated).
    :param expected_sha256: The SHA-256 that the file must have, in hexadecimal; None or empty to skip this check (templated).
    :returns: The file's path, name, size and SHA-256.
    """

    template_fields: Sequence[str] = ("file_id", "target", "expected_sha256", "cloudstore_conn_id")

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        target: str | PathLike[str] | ObjectStoragePath | XComArg,
        expected_sha256: str | XComArg | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.file_id: Any = file_id
        self.target: Any = target
        self.expected_sha256: Any = expected_sha256

    def execute(self, context: Context) -> DownloadedFileXCom:
        """Validate the arguments, wait for the file if ``wait_for_file`` is set, and download it."""
        from airflow_provider_cloudstore.protocol.download_requests import validate_sha256
        from airflow_provider_cloudstore.stores import resolve_target

        resolve_target(self.target, self.file_id)
        validate_sha256(self.expected_sha256)
        with self._open_hook() as hook:
            if self.wait_for_file:
                self._wait_for_file(hook, self.file_id)
            return self._complete(context, hook, self.file_id)

    def _complete(self, context: Context, hook: CloudStoreHook, file_id: Any) -> DownloadedFileXCom:
        file = hook.download(file_id, self.target, expected_sha256=self.expected_sha256)
        self._push_file_page(context, hook, file.file_id)
        self.log.info("Downloaded file '%s' to %s: %d bytes, SHA-256 %s", file.file_id, file.path, file.bytes, file.sha256)
        return file.to_dict()
