"""Sends what tasks send, each request once, and says how the connection's declaration reads what comes back."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.compat import AirflowException
from airflow_provider_cloudstore.doctor.report import Report, Step
from airflow_provider_cloudstore.exceptions import CloudStoreError, NotFoundError, one_line
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import read_connection
from airflow_provider_cloudstore.hooks.tokens import with_token
from airflow_provider_cloudstore.protocol.bodies import Body, read_body
from airflow_provider_cloudstore.protocol.finding import secrets_of
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, Operation, Reading, UploadFromUrl
from airflow_provider_cloudstore.protocol.paths import Paths, leaves_of, plain
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, is_credential_name, redact, redact_parameters
from airflow_provider_cloudstore.protocol.services import Service
from airflow_provider_cloudstore.protocol.settings import Settings, read_extra
from airflow_provider_cloudstore.protocol.signals import words_of

log = logging.getLogger(__name__)

_WANTED = {
    "missing file": (NotFoundError, "not_found_pattern"),
    "wrong token": (exceptions.AuthenticationError, "token_refused_pattern"),
}
"""What a task must raise, and the extra that declares it."""
_FLAGS = {"wrong token": "--wrong-token", "upload": "--upload URL"}
_PAUSE = 1.0  # seconds between two requests for a link of the uploaded file
_MAX_LENGTH = 200  # of a value
# Neither a date, a time nor a word. Letters alone may be a token, too, if they are long, or of both cases.
_MAY_BE_TOKEN = re.compile(r"(?<!\S)(?!\d{4}-\d\d-|\d\d:\d\d)(?:(?=\S*\d)\S{8,}|(?=\S*[a-z][A-Z])\S{12,}|\S{24,})")


class _Answer:
    """What became of a request; ``error`` is what a task would raise."""

    def __init__(self, name: str, operation: Operation[Any], settings: Settings, outcome: Response | TransportFailure) -> None:
        self.name, self.operation, self.settings, self.outcome = name, operation, settings, outcome
        response = outcome if isinstance(outcome, Response) else Response(0, {}, b"", sent=0, received=0)
        self.reading = Reading(response, read_body(response), (*settings.secrets, *operation.secrets))
        self.is_link = isinstance(operation, CreateDownloadLink)
        self.body, self.found = self.reading.body, operation.find(self.reading, settings)
        self.result: Any = operation.interpret(outcome, settings)
        self.error = self.result if isinstance(self.result, CloudStoreError) else None
        self.secrets = (*self.reading.secrets, *(secrets_of(self.found) if self.is_link and self.found else ()))

    def problems(self) -> Iterator[str]:
        """Why tasks cannot rely on it. No text of the service is repeated: it may hold a token that is not known."""
        wanted, extra = _WANTED.get(self.name, (None, ""))
        has_words = self.body.data is not None and not self.body.problem
        # Nothing is sent: the response is read as if it were theirs.
        others = (UploadFromUrl(self.settings, "https://example.com/file"), DeleteFolder(self.settings, MISSING_FILE_ID))
        ends = [self.result, *(one.interpret(self.outcome, self.settings) for one in others)]
        if wanted and (has_words or not self.error) and not all(isinstance(end, CloudStoreError) for end in ends):
            yield "uploads and deletions that fail would succeed; extra 'success_when' says what a success holds"
        if self.error and not (wanted and isinstance(self.error, wanted)):
            is_declarable = wanted and has_words and not isinstance(self.error, exceptions.AuthenticationError)
            todo = f"Extra '{extra}' must match what the service says" if is_declarable else self.error.what_to_do
            yield f"{self.name}: {type(self.error).__name__}. {todo}"

    def _seen(self, service: Service) -> dict[str, Any]:
        """What is found in the response, by the extra that says where it is."""
        if self.body.data is None or self.body.problem:
            return {}
        found = self.operation.find(self.reading, replace(self.settings, service=service))
        seen: dict[str, Any] = {"message_path": words_of(self.body, service)} if self.error else {}
        if self.is_link and found:
            seen |= {"token_path": found.token, "download_url_path": found.url_with_token, "expires_path": found.expires_at}
        elif self.name == "link" and isinstance(self.error, exceptions.InvalidResponseError):
            seen["token_path"] = None
        elif self.name == "upload" and (found or not self.error or isinstance(self.error, exceptions.OutcomeUnknownError)):
            seen["file_id_path"] = found
        return seen

    def step(self, known: tuple[Secret, ...]) -> Step:
        """What to show of it, without the secrets that are known."""
        read_as: dict[str, list[str]] = {}
        not_found, service = [], self.settings.service
        if condition := service.condition_of(self.operation.key):
            read_as = {plain(str(one.paths)): ["success_when"] for tests in condition.alternatives for one in tests}
        for extra, value in self._seen(service).items():
            name = extra.removesuffix("_path")
            if not value:
                not_found.append(f"no {name}: extra '{extra}' says where it is")
            elif (place := self._place(extra, value)) is not None:
                read_as.setdefault(plain(place), []).append(name)
        may_be_token = self.is_link and (self.name == "link" or not isinstance(self.error, exceptions.RequestRejectedError))
        leaves = _leaves(self.body, known, may_be_token=may_be_token)
        fields = [(path, text, ", ".join(read_as.get(plain(path), ()))) for path, text in leaves]
        status = f"HTTP {self.outcome.status}" if isinstance(self.outcome, Response) else self.outcome.reason
        request = self.operation.request(self.settings)
        request_shown = f"{self.name}: {request.method} {urlsplit(request.url).path}"
        return Step(request_shown, status, fields, not_found, type(self.result).__name__)

    def _place(self, extra: str, value: Any) -> str | None:
        """The path at which a value was found: the first one that leads to it alone."""
        if isinstance(self.body.data, str):
            return ""
        service: Any = self.settings.service
        each = [Paths((keys,)) for keys in getattr(service, extra).alternatives]
        there = [one for one in each if any(one.values_in(self.body.data))]
        return next((str(one) for one in there if self._seen(replace(service, **{extra: one})).get(extra) == value), None)


def _leaves(body: Body, known: tuple[Secret, ...], *, may_be_token: bool = False) -> Iterator[tuple[str, str]]:
    """The paths and the values of a body for display, cut last: the rest of a secret cut in two would not be recognized."""
    for path, value in leaves_of(body.problem or body.data) if body.problem or body.data is not None else ():
        text = value if isinstance(value, str) else json.dumps(value)
        if value not in (None, "", True, False) and any(map(is_credential_name, re.split("[./]", path))):
            text = MASK
        text = redact_parameters(redact(one_line(text), known))
        shown = _MAY_BE_TOKEN.sub(MASK, text) if may_be_token and not body.problem else text
        yield redact(one_line(path), known), shown[:_MAX_LENGTH]


class Examination:
    """Asks, and keeps the last answer of each name."""

    def __init__(self, settings: Settings, client: BlockingClient) -> None:
        self._settings, self._client = settings, client
        self.answers: dict[str, _Answer] = {}
        self.problems: list[str] = []
        self._downloaded: list[Step] = []

    def run(self, *, wrong_token: bool, upload: UploadFromUrl | None, link: CreateDownloadLink | None, wait: float) -> None:
        """Send what was asked for; nothing more once the address or the token is wrong."""
        missing = self._ask("missing file", CreateDownloadLink(self._settings, MISSING_FILE_ID))
        is_refused = isinstance(missing.error, exceptions.AuthenticationError)
        if is_refused or missing.body.problem or not isinstance(missing.outcome, Response):
            return
        if wrong_token:
            self._ask("wrong token", missing.operation, access_token=Secret("not-a-token-" + "0" * 20))
        if link:
            self._ask("link", link)
        if upload and (file_id := self._ask("upload", upload).found):
            try:
                self._wait_and_download(CreateDownloadLink(self._settings, file_id), wait)
            except exceptions.InvalidInputError as error:
                self.problems.append(f"upload: {error.reason}. Extra 'file_id_path' says where the id is")

    def _ask(self, name: str, operation: Operation[Any], **changes: Any) -> _Answer:
        """Send a request once, with ``changes`` to the settings: a retry would hide what a person should see."""
        settings = replace(self._settings, **changes)
        answer = _Answer(name, operation, settings, self._client.send(operation.request(settings), settings.timeout))
        self.answers[name] = answer
        return answer

    def _wait_and_download(self, operation: CreateDownloadLink, seconds: float) -> None:
        log.warning("The upload is queued. Waiting up to %g s for the file ...", seconds)
        ends_at = time.monotonic() + seconds
        while (answer := self._ask("link", operation)).error:
            if time.monotonic() > ends_at or answer.error.wait == "ends":
                self.problems.append(f"upload: the wait of at most {seconds:g} s ended without the file")
                return
            time.sleep(_PAUSE)
        with TemporaryDirectory() as folder, CloudStoreHook(self._settings.conn_id) as hook:
            hook._settings = self._settings  # those of this run
            try:
                file = hook.download(operation.subject, f"{folder}/file", link=answer.found)
            except CloudStoreError as error:
                self.problems.append(f"download: {type(error).__name__}: {error.reason}. {error.what_to_do}")
                return
            with Path(file.path).open("rb") as stream:
                body = read_body(Response(200, {}, stream.read(MAX_BODY_BYTES), sent=0, received=0))
        fields = [("name", str(file.name), ""), *((path, text, "") for path, text in _leaves(body, answer.secrets))]
        self._downloaded = [Step("download", f"{file.bytes:,} bytes came", fields[:6], [], type(file).__name__)]

    def fill(self, report: Report) -> None:
        """Say what follows from the answers so far."""
        link, upload = self.answers.get("link"), self.answers.get("upload")
        for answer in self.answers.values():
            # A 404 without JSON is the service's if it has just created a link there.
            is_404 = isinstance(answer.error, exceptions.RequestRejectedError) and answer.error.wait == "goes on"
            if not (is_404 and answer.name == "missing file" and link and not link.error):
                report.problems += [one for one in answer.problems() if one not in report.problems]
        if upload and not (upload.error or upload.found):
            report.notes.append("upload: no task can wait for its file, because no id was found in the response")
        report.problems += self.problems
        untried = [flag for name, flag in _FLAGS.items() if name not in self.answers]
        report.notes += [f"Not tried: {', '.join(untried)}"] if untried else []
        known = tuple(secret for answer in self.answers.values() for secret in answer.secrets)
        report.steps = [*(answer.step(known) for answer in self.answers.values()), *self._downloaded]


def examine(
    conn_id: str, extras: dict[str, str], upload: str | None, file_id: str | None, *, wrong_token: bool, wait: float
) -> Report:
    """Carry out the checks; the parameters are those of :func:`~airflow_provider_cloudstore.doctor.diagnose`."""

    def connection(name: str) -> Any:
        found: Any = CloudStoreHook.get_connection(name)
        fields = {field: getattr(found, field) for field in ("conn_type", "host", "schema", "login", "password", "port")}
        return SimpleNamespace(**fields, extra=json.dumps(read_extra(found.extra) | extras))

    report = Report(conn_id)
    try:
        settings, warnings = read_connection(conn_id, connection)
    except AirflowException as error:
        if not isinstance(error, CloudStoreError):  # of a secrets backend
            report.problems.append(f"it cannot be read: {type(error).__name__}")
        elif extras:
            raise exceptions.InvalidInputError(error.reason, operation="doctor", advice=error.what_to_do) from None
        else:
            report.problems.append(f"it cannot be read: {error.reason}. {error.what_to_do}")
        return report
    report.notes += [f"The connection {warning}" for warning in warnings]
    settings = with_token(settings)
    queueing = None if upload is None else UploadFromUrl(settings, upload)
    link = None if file_id is None else CreateDownloadLink(settings, file_id)
    with BlockingClient(settings, lambda _: settings) as client:
        examination = Examination(settings, client)
        try:
            examination.run(wrong_token=wrong_token, upload=queueing, link=link, wait=wait)
        except KeyboardInterrupt:
            report.problems.append("it was interrupted; below is what was seen so far")
        except exceptions.ConfigurationError as error:  # its certificates or its proxy
            report.problems.append(f"{error.reason}. {error.what_to_do}")
        examination.fill(report)
    return report
