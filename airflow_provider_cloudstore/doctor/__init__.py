"""Shows what a service really answers, and says whether tasks can rely on it; ``python -m`` runs it as a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.doctor.report import Report


def diagnose(
    cloudstore_conn_id: str = DEFAULT_CONN_ID,
    *,
    wrong_token: bool = False,
    upload: str | None = None,
    wait: float = 300.0,
) -> Report:
    """Check a connection against the service, for a notebook or a task. By default it only reads.

    :param cloudstore_conn_id: the Airflow connection, which is found as a task finds it.
    :param wrong_token: also send a wrong token; some services lock an account for that.
    :param upload: a URL to queue as an upload (``POST /file/url_upload_add``). The file stays in the service.
    :param wait: seconds to wait for the uploaded file. When interrupted, the report has what was seen so far.
    :returns: the report; its ``usable`` says whether tasks can rely on the connection as it is, and ``str`` of it is a text.
    :raises InvalidInputError: if the guards reject the URL; nothing was sent.
    """
    from airflow_provider_cloudstore.doctor.judge import judge
    from airflow_provider_cloudstore.doctor.recording import examine

    return judge(examine(cloudstore_conn_id, wrong_token=wrong_token, upload=upload, wait=wait))
