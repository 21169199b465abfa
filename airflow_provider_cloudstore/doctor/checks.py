"""Sends what tasks send, each request once, and judges the responses as tasks do: nothing that changes anything comes first."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.compat import AirflowException
from airflow_provider_cloudstore.doctor.report import Report, Step
from airflow_provider_cloudstore.exceptions import CloudStoreError, one_line
from airflow_provider_cloudstore.hooks.cloudstore import MISSING_FILE_ID, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import read_connection
from airflow_provider_cloudstore.protocol.contents import Content, read_content
from airflow_provider_cloudstore.protocol.failures import may_mean_missing
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, is_credential_name, redact, redact_parameters
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds between two requests for a link of the uploaded file
_MAX_LENGTH = 200  # of a value
_UNRECOGNIZED = "the service's errors are not recognized: rejected uploads would count as success, whatever the settings"
_WORD = re.compile(r"[^\W\d_]{0,11}|.*[\s{}].*")  # such as "queued": neither an id nor a token


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of a request, and what its operation makes of it: its result, or an error."""

    operation: Operation[Any]
    outcome: Response | TransportFailure
    content: Content
    found: Any = None
    error: CloudStoreError | None = None

    @property
    def words(self) -> str:
        """The message of an error that extra ``not_found_pattern`` can match."""
        return self.error.message if self.error and may_mean_missing(self.error) else ""

    @property
    def has_no_sign(self) -> bool:
        """Whether the service answered a request for a link, and neither with an error nor with a token."""
        return isinstance(self.error, exceptions.InvalidResponseError) and not self.content.problem


class Checks:
    """One run of the doctor; its ``report`` has what was seen so far."""

    def __init__(self, conn_id: str) -> None:
        self.report = Report(conn_id)

    def run(self, *, wrong_token: bool, upload: str | None, delete_folder: str | None, wait: float) -> None:
        """Carry out the checks; the parameters are those of :func:`~airflow_provider_cloudstore.doctor.diagnose`."""
        try:
            self._settings, warnings = read_connection(self.report.conn_id, CloudStoreHook.get_connection)
        except (CloudStoreError, AirflowException) as error:
            reason = f"{error.reason}. {error.advice}" if isinstance(error, CloudStoreError) else type(error).__name__
            self.report.problems.append(f"it cannot be read: {reason.rstrip('. ')}")
            return
        self.report.notes += [f"The connection {warning}" for warning in warnings]
        self._pattern = self._settings.not_found_pattern.pattern if self._settings.not_found_pattern else ""
        queueing = None if upload is None else UploadFromUrl(self._settings, upload)
        deletion = None if delete_folder is None else DeleteFolder(self._settings, delete_folder)
        self._secrets = self._settings.secrets + (queueing.secrets if queueing else ())
        with BlockingClient(self._settings, lambda: self._settings) as self._client:
            missing = self._try_reading(wrong_token=wrong_token, uploads=upload is not None)
            if missing and queueing:
                self._try_upload(queueing, missing, wait)
            if missing and deletion:
                self._try_deletion(deletion)

    def _try_reading(self, *, wrong_token: bool, uploads: bool) -> _Answer | None:
        """How a missing file, a wrong path and a wrong token look; the first of these if the rest is worth trying."""
        missing = self._ask("missing file", CreateDownloadLink(self._settings, MISSING_FILE_ID))
        is_missing = isinstance(missing.error, exceptions.NotFoundError) and not missing.error.inconclusive
        if missing.error and not (is_missing or missing.words or missing.has_no_sign):
            self.report.problems.append(missing.error.reason)
            return None
        elsewhere = replace(self._settings, base_url=f"{self._settings.base_url}/wrong")
        wrong = replace(self._settings, access_token=Secret("not-a-token-" + "0" * 20))
        wrong_path = self._ask("wrong path", CreateDownloadLink(elsewhere, MISSING_FILE_ID), elsewhere)
        refused = self._ask("wrong token", CreateDownloadLink(wrong, MISSING_FILE_ID), wrong) if wrong_token else None
        if missing.has_no_sign or (refused and refused.has_no_sign):
            self.report.problems.append(_UNRECOGNIZED)
        if missing.found:
            self.report.problems.append("a link was created for a file that does not exist, so no wait would be one")
        is_alike = type(wrong_path.error) is type(missing.error) and wrong_path.content.data == missing.content.data
        if is_alike and not uploads:
            self.report.problems.append("a wrong base URL would look like a missing file: prove the address with --upload")
        if refused:
            if isinstance(refused.error, exceptions.NotFoundError) or (refused.words and refused.words == missing.words):
                self.report.problems.append("a refused token looks like a missing file; this connection's may be refused, too")
        elif missing.words and MISSING_FILE_ID not in missing.words and not uploads:
            self.report.problems.append("a refused token may look like a missing file: prove it with --wrong-token or --upload")
        if self.report.problems:
            return None
        if wrong_token or MISSING_FILE_ID in missing.words:  # else the words may be about the token until an upload is accepted
            self._propose_pattern(missing)
        return missing

    def _try_upload(self, operation: UploadFromUrl, missing: _Answer, wait: float) -> None:
        queued = self._ask("upload", operation)
        if queued.error:
            self.report.problems.append(f"uploads fail: {queued.error.reason}")
            return
        self._propose_pattern(missing)
        uploads = {"": queued.found} if queued.found.file_id else self._readings(queued, "file_id_path")
        ids = {path: one.file_id for path, one in uploads.items() if one.file_id and not (path and "://" in one.file_id)}
        if not ids:
            self.report.problems.append("nothing shows that an upload was accepted: the response has no id for downstream tasks")
            return
        log.warning("The upload is queued. Waiting up to %g s for the file ...", wait)
        links, last = self._wait_for_links(ids, wait)
        self._propose("file_id_path", list(links), list(ids))
        if links:
            self._try_download(next(iter(links.values())))
            return
        self.report.problems.append(f"no link for the uploaded file was found in a response within {wait:g} s")
        if last.has_no_sign:
            self._propose("token_path", [], [path for path, one in leaves_of(last.content.data) if not isinstance(one, bool)])

    def _wait_for_links(self, ids: dict[str, str], wait: float) -> tuple[dict[str, dict[str, DownloadLink]], _Answer]:
        """The links for each id that turns out to work, by its path; and the last answer."""
        begin, ends_at = len(self.report.steps), time.monotonic() + wait
        while True:
            answers = {path: self._ask("link", CreateDownloadLink(self._settings, ids[path])) for path in ids}
            working = {path: found for path, answer in answers.items() if (found := self._links(answer))}
            if working or time.monotonic() >= ends_at:
                seen = [step for step, path in zip(self.report.steps[begin:], ids, strict=True) if path in working]
                self.report.steps[begin:] = seen or self.report.steps[-1:]
                return working, answers.popitem()[1]
            time.sleep(_PAUSE)
            del self.report.steps[begin:]

    def _links(self, answer: _Answer) -> dict[str, DownloadLink]:
        """The link in a response, or what may be one, by the path of its token."""
        if answer.found:
            return {"": answer.found}
        if self._pattern:  # tasks then wait for what it matches alone
            self._propose_pattern(answer)
        found = self._readings(answer, "token_path") if answer.has_no_sign else {}
        return {path: link for path, link in found.items() if link.token != link.file_id}

    def _try_download(self, links: dict[str, DownloadLink]) -> None:
        errors = {path: self._download(link) for path, link in links.items()}
        working = [path for path, error in errors.items() if not error]
        self._propose("token_path", working, list(links))
        *_, last = errors.values()
        if last and not working:
            reason = f"{last.reason}. {last.what_to_do}".rstrip(". ")
            self.report.problems.append(f"a link was created, so waits end, but no file came: {reason}")

    def _download(self, link: DownloadLink) -> CloudStoreError | None:
        """Show what came, which may be no file: an error, or a login page."""
        with TemporaryDirectory() as folder, CloudStoreHook(self.report.conn_id) as hook:
            try:
                file = hook.download(link.file_id, f"{folder}/file", link=link)
            except CloudStoreError as error:
                return error
            body = Path(file.path).read_bytes() if file.bytes <= MAX_BODY_BYTES else b""
        content = read_content(Response(200, {}, body, sent=0, received=0))
        self._secrets += link.secrets
        seen = f"{file.bytes:,} bytes came{', a web page or XML' if content.is_web_page else ''}"
        self._add_step("download", "GET the download URL", seen, content)
        return None

    def _try_deletion(self, operation: DeleteFolder) -> None:
        if error := self._ask("deletion", operation).error:
            self.report.problems.append(f"deletions fail: {error.reason}; try it again with a folder that exists")
            return
        second = self._ask("second deletion", operation)
        self._propose_pattern(second)
        if not (second.words or isinstance(second.error, exceptions.NotFoundError)):
            self.report.problems.append("nothing shows that a folder was deleted: a second deletion is answered no differently")

    def _ask(self, name: str, operation: Operation[Any], settings: Settings | None = None) -> _Answer:
        """Send a request once: a retry would hide what a person should see. Add it to the report."""
        settings = settings or self._settings
        request = operation.request(settings)
        outcome = self._client.send(request, self._settings.timeout)
        content = read_content(outcome) if isinstance(outcome, Response) else Content(problem="no response")
        ended = operation.interpret(outcome, settings)
        error = ended if isinstance(ended, CloudStoreError) else None
        answer = _Answer(operation, outcome, content, None if error else ended, error)
        status = f"HTTP {outcome.status}" if isinstance(outcome, Response) else outcome.reason
        seen = f"{status}, {type(answer.error).__name__ if answer.error else 'no sign of an error'}"
        may_be_token = isinstance(answer.found, DownloadLink) or (name == "link" and answer.has_no_sign)
        self._add_step(name, f"{request.method} {urlsplit(request.url).path}", seen, content, may_be_token=may_be_token)
        return answer

    def _add_step(self, name: str, request: str, seen: str, content: Content, *, may_be_token: bool = False) -> None:
        leaves = [] if content.problem or content.data is None else leaves_of(content.data)
        shown = []
        for path, value in leaves:
            is_flag = value is None or isinstance(value, bool)
            is_secret = (may_be_token and not is_flag) or any(map(is_credential_name, path.split(".")))
            text = value if isinstance(value, str) else json.dumps(value)
            shown.append((self._safe(path), MASK if is_secret else self._safe(text)))
        self.report.steps.append(Step(name, request, seen, shown))

    def _safe(self, text: str) -> str:
        """``text`` for display. Cut last: the rest of a secret that is cut in two would not be recognized."""
        return redact_parameters(redact(one_line(text), self._secrets))[:_MAX_LENGTH]

    def _readings(self, answer: _Answer, setting: str) -> dict[str, Any]:
        """The results that the operation would have, by the path of the field that a setting would name."""
        found = {}
        for path, value in leaves_of(answer.content.data):
            if isinstance(value, bool) or _WORD.fullmatch(str(value)):
                continue
            changes: dict[str, Any] = {setting: tuple(path.split("."))}
            ended = answer.operation.interpret(answer.outcome, replace(self._settings, **changes))
            if not isinstance(ended, CloudStoreError):
                found[path] = ended
        return found

    def _propose(self, extra: str, proven: list[str], possible: list[str]) -> None:
        """Propose the path that turned out to work; nothing if a task finds the value itself."""
        if len(proven) == 1 and proven != [""]:
            self.report.extras[extra] = proven[0]
        elif "" not in possible:
            self.report.candidates[extra] = proven or possible

    def _propose_pattern(self, answer: _Answer) -> None:
        """Propose what matches a message about a missing file or folder, whatever its id, unless a pattern does so already."""
        words, subject = answer.words, answer.error.subject if answer.error else ""
        if words and not (self._pattern and re.search(self._pattern, words, re.IGNORECASE)):
            pattern = ".*".join(map(re.escape, words.split(subject))).replace(r"\ ", " ")
            self._pattern = f"{self._pattern}|{pattern}" if self._pattern else pattern
            self.report.extras["not_found_pattern"] = self._pattern


def leaves_of(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a response that is no object or list, with its dotted path."""
    if not isinstance(data, (dict, list)):
        yield path or "(body)", data
        return
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from leaves_of(value, f"{path}.{name}" if path else str(name))
