"""Downloads a file in one task, so that no link is stored in an XCom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.operators.base import RedactingOperator
from airflow_provider_cloudstore.operators.links import FileLink, announce_file
from airflow_provider_cloudstore.operators.waiting import LinkOperator

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.results import DownloadLink


class DownloadFileOperator(RedactingOperator, LinkOperator):
    """Download a file to a local path or an object store; no link leaves the task (``GET /file/download``).

    The target is either complete or absent. A broken download resumes, with a new link if the old one has expired. The size is
    verified, and so is the SHA-256 if you give one. Memory use does not depend on the file's size.
    The XCom is ``{"file_id", "path", "name", "bytes", "sha256"}``; ``name`` is the one that the host gave the file, or None.

    The download URL is taken from the service's response, or else from the connection's extra ``download_url``.

    :param file_id: the file (templated).
    :param target: a local path, or a path for ``ObjectStoragePath``, such as ``s3://aws_default@bucket/key``. If it ends with
        ``/``, the file's name is its id, percent-encoded (templated).
    :param expected_sha256: the SHA-256 to verify, in hexadecimal; None or empty for none (templated).
    :param wait_for_file: wait until the file is available, as ``FileAvailableSensor`` does: an upload is only queued.
    :param poll_interval: seconds between two polls; default: 10.
    :param timeout: maximum seconds to wait, default 3600; ``execution_timeout`` limits the download.
    :param deferrable: with ``wait_for_file``: wait in the triggerer, without a worker slot; by default as
        ``[operators] default_deferrable`` says. The download itself runs on a worker.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if ``poll_interval`` or ``timeout`` is not a number above 0.
    """

    template_fields: Sequence[str] = ("file_id", "target", "expected_sha256", "cloudstore_conn_id")
    operator_extra_links = (FileLink(),)
    ui_color = "#d5f0e8"

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        target: Any,
        expected_sha256: str | XComArg | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(file_id=file_id, **kwargs)
        self.target = target
        self.expected_sha256: Any = expected_sha256

    def _redact_fields(self) -> None:
        if ":" not in (target := str(self.target)):
            return
        from airflow_provider_cloudstore.protocol.secrets import holds_credentials, redact_path

        if holds_credentials(target):
            self.target = redact_path(target)  # which is refused like the path itself

    def execute(self, context: Context) -> Any:
        """Download the file, with ``wait_for_file`` once it is available."""
        from airflow_provider_cloudstore.hooks.targets import resolve_target
        from airflow_provider_cloudstore.protocol.download_requests import validate_sha256

        resolve_target(self.target, self.file_id)  # a mistake is reported before the wait
        validate_sha256(self.expected_sha256)
        return super().execute(context)

    def _use_link(self, context: Context, hook: CloudStoreHook, link: DownloadLink | None) -> dict[str, Any]:
        from airflow_provider_cloudstore.lineage import of_download

        file = hook.download(self.file_id, self.target, expected_sha256=self.expected_sha256, link=link)
        self._lineage = of_download(hook.settings.base_url, file.file_id, file.path)
        announce_file(self, context, file.file_id, hook)
        self.log.info("Downloaded file '%s' to %s: %d bytes, SHA-256 %s", file.file_id, file.path, file.bytes, file.sha256)
        return file.to_dict()
