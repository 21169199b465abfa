"""The link "File" of a task in Airflow's UI, to the page of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.compat import BaseOperatorLink

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

XCOM_FILE_PAGE = "file_page"


class FileLink(BaseOperatorLink):
    """The page of the task's file; there is one if the connection has extra ``file_page_url``."""

    name = "File"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The URL that the task has pushed; empty if it has none."""
        from airflow_provider_cloudstore.compat import XCom

        return XCom.get_value(ti_key=ti_key, key=XCOM_FILE_PAGE) or ""


def push_file_page(task: Any, context: Context, file_id: str, hook: CloudStoreHook) -> None:
    """Push the URL of a file's page, if the connection has one; it holds no token. A link that is missing fails no task."""
    from airflow_provider_cloudstore.exceptions import ConfigurationError

    ti = context.get("ti")
    if not (file_id and ti and task.do_xcom_push):
        return
    try:
        page = hook.settings.file_page(file_id)
    except ConfigurationError as error:  # somebody is replacing the connection
        task.log.warning("The task has no link to the file's page: %s", error.reason)
        return
    if page:
        ti.xcom_push(key=XCOM_FILE_PAGE, value=page)
