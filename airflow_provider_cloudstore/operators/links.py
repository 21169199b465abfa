"""The link "File" of a task in Airflow's UI, to the page of its file."""

from __future__ import annotations

from typing import Any

from airflow_provider_cloudstore.compat import BaseOperatorLink

XCOM_FILE_PAGE = "file_page"


class FileLink(BaseOperatorLink):
    """The page of the task's file; there is one if the connection has extra ``file_page_url``."""

    name = "File"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The URL that the task has pushed; empty if it has none."""
        from airflow_provider_cloudstore.compat import XCom

        return XCom.get_value(ti_key=ti_key, key=XCOM_FILE_PAGE) or ""
