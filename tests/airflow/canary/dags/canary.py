"""Every operator on every service of the canary test, and a task of a user who prints what it was given."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any
from urllib.parse import quote, quote_plus

from airflow_provider_cloudstore.compat import mask_secret
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from tests.authoring import DAG, Variable, task

SERVICES = ("ok", "longer", "400", "401", "half", "echo", "refused", "site")
DOWNLOADS = ("download_broken", "download_refused", "download_redirected")
FOLDER = os.environ["CANARY_FOLDER"]
SOURCE = "{{ var.value.canary_source }}"
LIST = "{{ [var.value.canary_source, var.value.canary_source] | tojson }}"


@task
def careless() -> None:
    """A user's own task: it uses the hook and prints every secret, in every form."""
    source = Variable.get("canary_source")
    with CloudStoreHook("canary_ok") as hook:
        link = hook.create_download_link("f1")
        hook.upload_from_url(source)
        token = hook.get_connection("canary_ok").password or ""
    for secret in (token, link.token, source.partition("sig=")[2]):
        for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)):
            print(form)


@task
def use_token(token: str) -> None:
    """A consumer in the style of the examples: Airflow stores its rendered fields, and redacts them by key name."""
    mask_secret(token)


@task
def use_link(link: dict[str, Any]) -> None:
    """The same for the whole link."""
    mask_secret(link["token"])


with DAG("canary", schedule="@once", start_date=datetime(2026, 1, 1)) as dag:
    for name in SERVICES:
        DeleteFolderOperator(task_id=f"delete.{name}", folder_id="doomed", cloudstore_conn_id=f"canary_{name}")
        RemoteUrlUploadOperator(task_id=f"upload.{name}", url=SOURCE, cloudstore_conn_id=f"canary_{name}")
        link = DownloadLinkOperator(task_id=f"link.{name}", file_id="f1", cloudstore_conn_id=f"canary_{name}")
        if name == "ok":
            use_token(token=link.output)
            use_link(link=link.output["download_link"])
    for name in ("ok", "half"):  # deferred, and neither of these files comes
        DownloadLinkOperator(
            task_id=f"wait.{name}",
            file_id="late",
            wait_for_file=True,
            deferrable=True,
            poll_interval=0.5,
            timeout=4,
            cloudstore_conn_id=f"canary_{name}",
        )
    for name in DOWNLOADS:
        DownloadFileOperator(task_id=name, file_id="f1", target=f"{FOLDER}/{name}", cloudstore_conn_id=f"canary_{name}")
    for name, urls in {"ok": f"{FOLDER}/urls.csv", "400": LIST, "echo": LIST}.items():
        RemoteUrlBatchUploadOperator(
            task_id=f"batch.{name}", urls=urls, receipts=f"{FOLDER}/receipts-{name}", cloudstore_conn_id=f"canary_{name}"
        )
    RemoteUrlUploadOperator.partial(task_id="mapped_upload", cloudstore_conn_id="canary_ok").expand(url=[SOURCE, SOURCE])
    careless()
