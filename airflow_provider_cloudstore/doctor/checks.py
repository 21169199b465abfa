"""Sends what tasks send, and judges the responses as tasks do: nothing that changes anything comes first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.streaming import DownloadClient
from airflow_provider_cloudstore.doctor.leaves import ID, candidate_ids, hidden, leaves_of, reachable, shown
from airflow_provider_cloudstore.doctor.report import Report, Step
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import read_connection
from airflow_provider_cloudstore.protocol.calls import Call, CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.download_requests import Download
from airflow_provider_cloudstore.protocol.guards import is_nothing
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, Operation
from airflow_provider_cloudstore.protocol.results import Content, DownloadLink, read_content
from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_parameters
from airflow_provider_cloudstore.protocol.settings import API_PREFIX, Settings
from airflow_provider_cloudstore.protocol.storable import storable

T = TypeVar("T")

_NOT_A_TOKEN = Secret("not-a-token-" + "0" * 20)
_PAUSE = 1.0  # seconds between two requests for a link of the uploaded file


class _RecordingClient(BlockingClient):
    """Keeps the last response, and the secrets of what was sent."""

    response: Response | None = None

    def send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """As every client."""
        outcome = super().send(request, time_left)
        self.response = outcome if isinstance(outcome, Response) else None
        return outcome


class _Nowhere:
    """Where a downloaded file goes."""

    def restart(self) -> None:
        """Forget nothing."""

    def write(self, data: bytes) -> None:
        """Keep nothing."""


class Checks:
    """One run of the doctor.

    :param conn_id: the Airflow connection.
    :param say: called with a line before each step.
    :ivar report: what was seen so far.
    """

    def __init__(self, conn_id: str, say: Callable[[str], None]) -> None:
        self.report = Report(conn_id)
        self._say = say
        self._hook = CloudStoreHook(conn_id)
        self._settings: Settings
        self._client: _RecordingClient
        self._secrets: tuple[Secret, ...] = ()
        self._upload: UploadFromUrl | None = None
        self._deletion: tuple[DeleteFolder, DeleteFolder] | None = None

    def prepare(self, upload: str | None, delete_folder: str | None, wait: float) -> bool:
        """Read the connection and ask the guards; nothing is sent.

        :param wait: seconds to wait for the uploaded file.
        :returns: whether the connection can be used.
        :raises InvalidInputError: if the guards reject the URL or the folder's id, or the wait is none.
        """
        if not 0 < wait <= 86_400:
            raise exceptions.InvalidInputError("wait must be from 1 to 86400 seconds; nothing was sent")
        self._wait = wait
        try:
            self._settings, warnings = read_connection(self.report.conn_id, self._hook.get_connection)
        except (CloudStoreError, AirflowException) as error:
            reason = f"{error.reason}. {error.advice}" if isinstance(error, CloudStoreError) else type(error).__name__
            self.report.problems.append(f"it cannot be read: {reason.rstrip('. ')}")
            return False
        self.report.notes += [f"The connection {warning}" for warning in warnings]
        self._secrets = self._settings.secrets
        if upload is not None:
            self._upload = UploadFromUrl(upload, self._settings)
            self._secrets += self._upload.secrets
        if delete_folder is not None:
            first, second = (DeleteFolder(delete_folder, self._settings) for _ in range(2))
            self._deletion = first, second
        return True

    def run(self, *, wrong_token: bool) -> None:
        """Carry out the checks.

        :param wrong_token: whether to send a wrong token.
        """
        self._client = _RecordingClient(self._settings, self._hook.read_settings)
        with self._client:
            if not self._try_missing_file():
                return
            if wrong_token:
                self._try_wrong_token()
            if self._upload:
                self._try_upload(self._upload)
            if self._deletion:
                self._try_deletion(*self._deletion)

    # The checks that only read.

    def _try_missing_file(self) -> bool:
        """How a missing file and a wrong path look; whether the API answers at all."""
        found, content = self._ask("missing file", CreateDownloadLink(MISSING_FILE_ID, self._settings, max_attempts=1))
        if isinstance(found, DownloadLink):
            self._problem("a link was created for a file that does not exist, so no wait would be one")
            return True
        if isinstance(found, exceptions.NotFoundError) and not found.inconclusive:
            self._compare_with_wrong_path(content)
            return True
        if found.message and (isinstance(found, exceptions.ServiceError) or _is_bad_request(found)):
            if not self._compare_with_wrong_path(content):
                self._propose_pattern(found.message, MISSING_FILE_ID)
            return True
        if isinstance(found, exceptions.InvalidResponseError) and not content.problem:
            self.report.unrecognized = True
            return True
        self._problem(found.reason)
        return False

    def _compare_with_wrong_path(self, missing: Content) -> bool:
        """Whether a path that does not exist is answered like a missing file."""
        wrong = replace(CREATE_DOWNLOAD_LINK, path=f"{API_PREFIX}/{MISSING_FILE_ID}")
        outcome = self._client.send(wrong.request(MISSING_FILE_ID, self._settings), self._settings.timeout)
        content = read_content(outcome) if isinstance(outcome, Response) else Content()
        status = f"HTTP {outcome.status}" if isinstance(outcome, Response) else outcome.reason
        is_alike = bool(missing.data) and content.data == missing.data
        self._record("wrong path", wrong, status + (", as a missing file" if is_alike else ""), content)
        if is_alike and not self._upload:
            self._problem("a wrong base URL would be answered like a missing file: use --upload to prove the address")
        return is_alike

    def _try_wrong_token(self) -> None:
        wrong = replace(self._settings, access_token=_NOT_A_TOKEN)
        self._secrets += (_NOT_A_TOKEN,)
        client = _RecordingClient(wrong, lambda: wrong)
        with client:
            found, _ = self._ask("wrong token", CreateDownloadLink(MISSING_FILE_ID, wrong, max_attempts=1), client)
        if isinstance(found, exceptions.AuthenticationError):
            return
        if isinstance(found, exceptions.InvalidResponseError):
            self.report.unrecognized = True
        elif isinstance(found, exceptions.NotFoundError):
            self._problem("a refused token looks like a missing file")
        else:
            self._note("A refused token is not HTTP 401, so a task whose token was rotated ends, and its retry reads the new one")

    # Those that change something, only if asked for.

    def _try_upload(self, call: UploadFromUrl) -> None:
        found, content = self._ask("upload", call)
        if isinstance(found, CloudStoreError):
            self._problem(f"uploads fail: {found.reason}")
            return
        if self.report.unrecognized:
            return  # nothing says whether it was queued
        ids = {"file_id": found.file_id} if found.file_id else candidate_ids(content.data, found)
        if not ids:
            self._note("The response to an upload has no id: downstream tasks must get it elsewhere")
            return
        self._say(f"The upload is queued. Waiting up to {self._wait:g} s for file {' or '.join(ids.values())} ...")
        granted, polls = self._wait_for_link(ids)
        if not found.file_id:
            self._propose("file_id_path", list(granted), list(ids))
        if not granted:
            if found.file_id:
                self._problem(f"no link for the uploaded file could be created within {self._wait:g} s")
            return
        path = next(iter(granted))
        link, content = granted[path]
        settings = self._settings if isinstance(link, DownloadLink) else self._find_token(content, ids[path])
        if settings:
            self._try_download(ids[path], settings, is_immediate=polls == 1)

    def _wait_for_link(self, ids: dict[str, str]) -> tuple[dict[str, tuple[Any, Content]], int]:
        """Those ids for which the service answers as it does where a file is there, and after how many requests for each."""
        granted: dict[str, tuple[Any, Content]] = {}
        ends_at, polls, steps = time.monotonic() + self._wait, 0, self.report.steps
        begin = len(steps)
        while True:
            polls += 1
            seen_before, granted, shown = granted, {}, []
            for path, file_id in ids.items():
                found, content = self._ask("link", CreateDownloadLink(file_id, self._settings, max_attempts=1))
                has_no_token = isinstance(found, exceptions.InvalidResponseError) and not content.problem
                if isinstance(found, DownloadLink) or (has_no_token and not self.report.unrecognized):
                    granted[path] = found, content
                    shown.append(steps[-1])
                elif isinstance(found, exceptions.ServiceError) and self._pattern:
                    self._propose_pattern(found.message, file_id)  # with a pattern, tasks wait for what it matches alone
            steps[begin:] = shown or steps[-1:]
            if (granted and (seen_before or len(ids) == 1)) or time.monotonic() >= ends_at:
                return granted, polls  # of several ids, only after a second look: the file may have come in between
            time.sleep(min(_PAUSE, max(0.0, ends_at - time.monotonic())))

    def _find_token(self, content: Content, file_id: str) -> Settings | None:
        """The settings with which a link's response has a token; None if only a human can tell where it is."""
        leaves = [(path, value) for path, value in reachable(content.data) if isinstance(value, str) and value != file_id]
        able = []
        for path, value in leaves:
            settings = replace(self._settings, token_path=tuple(path.split(".")))
            if urlsplit(value).scheme in ("http", "https") and self._downloaded(file_id, settings) is None:
                able.append(path)
        others = [path for path, value in leaves if ID.fullmatch(value) and not is_nothing(value)]
        self._propose("token_path", able, others)
        return replace(self._settings, token_path=tuple(able[0].split("."))) if len(able) == 1 else None

    def _try_download(self, file_id: str, settings: Settings, *, is_immediate: bool) -> None:
        error = self._downloaded(file_id, settings)
        if error is None:
            self.report.steps.append(Step("download", "GET the download URL", "the file came"))
        elif isinstance(error, exceptions.ConfigurationError):
            self._note(f"Downloads need extra 'download_url': {error.reason}")
        elif is_immediate and isinstance(error, exceptions.RequestRejectedError):
            self._problem(f"a link was created before the file was there, so waits end too early ({error.reason})")
        else:
            self._problem(f"the download fails: {error.reason}")

    def _downloaded(self, file_id: str, settings: Settings) -> CloudStoreError | None:
        def create_link(file_id: str) -> DownloadLink:
            link = self._client.perform(CreateDownloadLink(file_id, settings), on_retry=self._say_safely)
            self._secrets += link.secrets
            return link

        client = DownloadClient(self._client, create_link)
        try:
            client.run(Download(file_id, settings), _Nowhere(), on_retry=self._say_safely)
        except CloudStoreError as error:
            return error
        return None

    def _try_deletion(self, call: DeleteFolder, again: DeleteFolder) -> None:
        found, _ = self._ask("deletion", call)
        if isinstance(found, CloudStoreError):
            self._problem(f"deletions fail: {found.reason}; try it with a folder that exists")
            return
        missing, _ = self._ask("second deletion", again)
        if isinstance(missing, exceptions.ServiceError) and missing.message:
            self._propose_pattern(missing.message, missing.subject)
        elif not isinstance(missing, CloudStoreError):
            self._note("Deleting a missing folder looks like deleting one: 'existed' says nothing")
        elif not isinstance(missing, exceptions.NotFoundError):
            self._note(f"A missing folder is an error that ignore_missing does not cover: {missing.reason}")

    # What is recorded, and what follows from it.

    def _ask(self, name: str, call: Call[T], client: _RecordingClient | None = None) -> tuple[Any, Content]:
        """Perform a call and record it; the result or the error, and what the response held."""
        client = client or self._client
        found: Any
        try:
            found = client.perform(call, on_retry=self._say_safely)
        except CloudStoreError as error:
            found = error
        content = read_content(client.response) if client.response else Content()
        if isinstance(found, DownloadLink):
            self._secrets += found.secrets
        status = f"HTTP {client.response.status}, " if client.response else ""
        meaning = found.reason if isinstance(found, CloudStoreError) else f"{status}no sign of an error"
        is_link = name == "link" and isinstance(found, (DownloadLink, exceptions.InvalidResponseError))
        self._record(name, call.operation, meaning, content, is_link=is_link)
        return found, content

    def _record(self, name: str, operation: Operation, seen: str, content: Content, *, is_link: bool = False) -> None:
        plain = storable(content.data, self._redacted) if not content.problem else None
        leaves = [(path, hidden(value) if is_link else shown(value)) for path, value in leaves_of(plain)]
        step = Step(name, f"{operation.method} {operation.path}", self._redacted(seen), [] if plain is None else leaves)
        self.report.steps.append(step)

    def _redacted(self, text: str) -> str:
        return redact_parameters(redact(text, self._secrets))

    def _say_safely(self, line: str) -> None:
        self._say(self._redacted(line))

    def _problem(self, problem: str) -> None:
        self.report.problems.append(self._redacted(problem))

    def _note(self, note: str) -> None:
        self.report.notes.append(self._redacted(note))

    def _propose(self, extra: str, proven: list[str], possible: list[str]) -> None:
        if len(proven) == 1:
            self.report.extras[extra] = proven[0]
        else:
            self.report.candidates[extra] = proven or possible

    def _propose_pattern(self, message: str, subject: str) -> None:
        """Propose what matches a message about a missing file or folder, whatever its id, unless a pattern does so already."""
        if message and not (self._pattern and re.search(self._pattern, message, re.IGNORECASE)):
            pattern = ".*".join(map(re.escape, message.split(subject))).replace(r"\ ", " ")
            self.report.extras["not_found_pattern"] = f"{self._pattern}|{pattern}" if self._pattern else pattern

    @property
    def _pattern(self) -> str:
        own = self._settings.not_found_pattern
        return self.report.extras.get("not_found_pattern") or (own.pattern if own else "")


def _is_bad_request(error: CloudStoreError) -> bool:
    return isinstance(error, exceptions.BadRequestError) and not error.inconclusive
