"""What a type checker must reject, each on the line that says so: else it does not see our signatures at all."""

from __future__ import annotations

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DeleteFolderOperator, DownloadLinkOperator, RemoteUrlUploadOperator

DownloadLinkOperator(task_id="none", file_id=None)  # wrong
DownloadLinkOperator(task_id="missing")  # wrong
DeleteFolderOperator(task_id="text", folder_id="x", ignore_missing="yes")  # wrong
RemoteUrlUploadOperator(task_id="number", url=17)  # wrong
CloudStoreHook().create_download_link("x").link  # wrong  # noqa: B018
CloudStoreHook().get_conn().perform  # wrong  # noqa: B018
