"""Shows what a service answers and how the connection's declaration reads it; ``python -m`` runs it as a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.doctor.report import Report


def diagnose(
    cloudstore_conn_id: str = DEFAULT_CONN_ID,
    *,
    wrong_token: bool = False,
    upload: str | None = None,
    file_id: str | None = None,
    wait: float = 300.0,
    extras: Mapping[str, str] | None = None,
) -> Report:
    """Check a connection against the service, for a notebook or a task. By default it only reads; it never deletes.

    :param cloudstore_conn_id: the Airflow connection, which is found as a task finds it.
    :param wrong_token: also send a wrong token; some services lock an account for that.
    :param upload: a URL to upload, wait for and download. The file stays in the service.
    :param file_id: a file that exists, to ask for its link.
    :param wait: seconds to wait for the uploaded file. When interrupted, the report has what was seen so far.
    :param extras: settings for this run, as text, which win over the connection's.
    :returns: the report; its ``usable`` says whether tasks can rely on the connection as it is, and ``str`` of it is a text.
    :raises InvalidInputError: if an argument is refused; nothing was sent.
    """
    from airflow_provider_cloudstore.doctor.examination import examine

    return examine(cloudstore_conn_id, dict(extras or {}), upload, file_id, wrong_token=wrong_token, wait=wait)
