"""Sends what tasks send, each request once, and keeps what comes back: nothing that changes anything comes first."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.compat import AirflowException
from airflow_provider_cloudstore.doctor.judge import UNRECOGNIZED, Answer, Record, judge
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import read_connection
from airflow_provider_cloudstore.protocol.contents import Content, read_content
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.waiting import FileWait
from airflow_provider_cloudstore.results import DownloadLink

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds between two requests for a link of the uploaded file


def examine(conn_id: str, *, wrong_token: bool, upload: str | None, wait: float) -> Record:
    """Carry out the checks; the parameters are those of :func:`~airflow_provider_cloudstore.doctor.diagnose`."""
    try:
        settings, warnings = read_connection(conn_id, CloudStoreHook.get_connection)
    except (CloudStoreError, AirflowException) as error:
        reason = f"{error.reason}. {error.advice}" if isinstance(error, CloudStoreError) else type(error).__name__
        return Record(conn_id, reason.rstrip(". "))
    queueing = None if upload is None else UploadFromUrl(settings, upload)
    record = Record(conn_id, settings, warnings, uploads=upload is not None)
    with BlockingClient(settings, lambda: settings) as client:
        sender = _Sender(record, client)
        try:
            sender.try_reading(wrong_token=wrong_token)
            if queueing and judge(record).problems in ([], [UNRECOGNIZED]):  # what a success looks like shows what an error is
                sender.try_upload(queueing, wait)
        except KeyboardInterrupt:
            record.interrupted = True
    return record


class _Sender:
    """Fills a record. What it must know to go on, it asks the answers."""

    def __init__(self, record: Record, client: BlockingClient) -> None:
        self._record, self._client, self._settings = record, client, client.settings

    def try_reading(self, *, wrong_token: bool) -> None:
        operation = CreateDownloadLink(self._settings, MISSING_FILE_ID)
        if not self._ask("missing file", operation).is_about_file:
            return
        self._ask("wrong path", operation, base_url=f"{self._settings.base_url}/wrong")
        if wrong_token:
            self._ask("wrong token", operation, access_token=Secret("not-a-token-" + "0" * 20))

    def try_upload(self, queueing: UploadFromUrl, seconds: float) -> None:
        upload = self._ask("upload", queueing).found
        if not (upload and upload.file_id):
            return
        log.warning("The upload is queued. Waiting up to %g s for the file ...", seconds)
        with suppress(CloudStoreError):  # the wait is over, as a task's would be, or what the service calls the id is none
            wait = FileWait(upload.file_id, _PAUSE, seconds, datetime.now(UTC))
            operation = CreateDownloadLink(self._settings, wait.file_id)
            while error := (link := self._ask("link", operation)).error:
                time.sleep(wait.pause_after(error, datetime.now(UTC), log.info))
            self._record.download = self._download(link.found)

    def _ask(self, name: str, operation: Operation[Any], **changes: Any) -> Answer:
        """Send a request once, with ``changes`` to the settings: a retry would hide what a person should see."""
        settings = replace(self._settings, **changes)
        outcome = self._client.send(operation.request(settings), settings.timeout)
        answer = Answer(name, operation, settings, outcome)
        self._record.answers.append(answer)
        return answer

    def _download(self, link: DownloadLink) -> tuple[int, Content] | CloudStoreError:
        """The file's size, and the content of as much of it as a response may have; or an error."""
        with TemporaryDirectory() as folder, CloudStoreHook(self._record.conn_id) as hook:
            try:
                file = hook.download(link.file_id, f"{folder}/file", link=link)
            except CloudStoreError as error:
                return error
            with Path(file.path).open("rb") as stream:
                beginning = stream.read(MAX_BODY_BYTES + 1)
            return file.bytes, read_content(Response(200, {}, beginning, sent=0, received=0))
