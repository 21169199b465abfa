"""What was asked and answered, and the report that follows from it, without I/O: each sentence stands below its rule."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_cloudstore.doctor.report import Report, Step
from airflow_provider_cloudstore.exceptions import CloudStoreError, InvalidResponseError, NotFoundError, one_line
from airflow_provider_cloudstore.protocol.contents import SIGN_NAMES, Content, plain_name, read_content
from airflow_provider_cloudstore.protocol.failures import may_mean_missing
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, is_credential_name, redact, redact_parameters
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.signals import Signal, of_status
from airflow_provider_cloudstore.results import DownloadLink

_MAX_LENGTH = 200  # of a value
# What is neither an id nor a token: a word such as "queued", a sentence, a date, a version; a token is no short number either.
_NO_VALUE = r"[^\W\d_]{0,11}|.*[\s{}].*|\d{4}-\d\d-\d\dT?.*|-?\d*\.\d+"
_NO_ID = re.compile(rf"{_NO_VALUE}|.*://.*|-\d+")
_NO_TOKEN = re.compile(rf"{_NO_VALUE}|-?\d{{1,9}}")
_SOUGHT = {"upload": ("file_id_path", "file_id", _NO_ID), "link": ("token_path", "token", _NO_TOKEN)}
"""What a response must hold: the extra that says where, its name in the result, and the values that it never has."""
UNRECOGNIZED = (
    "the service's errors are not recognized: rejected uploads would count as success; with --upload, the doctor sees what a "
    "success looks like"
)
_ABSENCE = re.compile(r"\b(?:no|not|none|missing|unknown|gone|deleted|removed)\b|n't\b|exist|found", re.IGNORECASE)
_REFUSAL = re.compile("permi|forbid|denied|access|allow|authori|token|log ?in|expired|locked", re.IGNORECASE)
_ALIKE = (
    "a missing file is answered alike, so the token may be refused or have expired: set a valid one, and let extra "
    "'token_refused_pattern' match these words"
)


@dataclass(eq=False)
class Answer:
    """What became of a request; ``found`` or ``error`` is what its operation makes of it with ``settings``.

    :ivar says: what tells it from another answer.
    :ivar words: the message of an error that extra ``not_found_pattern`` can match.
    :ivar has_no_sign: whether a response lacks what it must hold, and does not look like an error.
    """

    name: str
    operation: Operation[Any]
    settings: Settings
    outcome: Response | TransportFailure

    def __post_init__(self) -> None:
        self.content = read_content(self.outcome) if isinstance(self.outcome, Response) else Content(problem="no response")
        ended: Any = self.operation.interpret(self.outcome, self.settings)
        self.error: CloudStoreError | None = ended if isinstance(ended, CloudStoreError) else None
        self.found: Any = None if self.error else ended
        self.says = type(self.error), self.content.data
        self.words = self.error.message if self.error and may_mean_missing(self.error) else ""
        self.has_no_sign = isinstance(self.error, InvalidResponseError) and not self.content.problem

    def read_with(self, **extras: Any) -> Answer:
        """The same, where the connection has other ``extras``."""
        return replace(self, settings=replace(self.settings, **extras))

    @property
    def candidates(self) -> list[str]:
        """The paths of what may be the file's id or the token, where a task finds none and the service reports no error."""
        if getattr(self.found, "file_id", "") or not (self.found or self.has_no_sign):
            return []
        extra, attribute, no_value = _SOUGHT[self.operation.key]
        paths = [path for path, value in leaves_of(self.content.data) if _may_be_sought(path, value, no_value)]
        read = {path: self.read_with(**{extra: tuple(path.split("."))}).found for path in paths}
        return [path for path, one in read.items() if getattr(one, attribute, "") not in ("", self.operation.subject)]

    @property
    def is_about_file(self) -> bool:
        """Whether a service may answer so to a request for a link of a file that does not exist."""
        is_missing = isinstance(self.error, NotFoundError) and not self.error.inconclusive
        return bool(self.found or is_missing or self.words or self.has_no_sign)


@dataclass
class Record:
    """What was asked and answered so far.

    :param connection: the settings, or why they cannot be read.
    :param uploads: whether an upload is to be tried, which proves the address and the token.
    :param answers: all of them, in order; the first is for a file that does not exist.
    :param download: what came for the link: the file's size and the content of its beginning, or an error.
    """

    conn_id: str
    connection: Settings | str
    warnings: list[str] = field(default_factory=list)
    uploads: bool = False
    answers: list[Answer] = field(default_factory=list)
    download: tuple[int, Content] | CloudStoreError | None = None
    interrupted: bool = False

    def last(self, name: str) -> Answer | None:
        """The last answer of a name."""
        return next((answer for answer in reversed(self.answers) if answer.name == name), None)


def judge(record: Record) -> Report:
    """What follows from a record, which may have ended early; a second look finds the same."""
    report = Report(record.conn_id, notes=[f"The connection {warning}" for warning in record.warnings])
    connection = record.connection
    if isinstance(connection, str):
        report.problems.append(f"it cannot be read: {connection}")
        return report
    if not connection.success_when and (when := _success_when(record)):
        path, value = when
        report.extras["success_when"] = f"{path}={value}"
        condition = (tuple(path.split(".")), value)
        record = replace(record, answers=[one.read_with(success_when=(condition,)) for one in record.answers])
    report.problems = list(_problems_of_reading(record))
    _add_patterns(report, record, connection)
    for name, (extra, *_) in _SOUGHT.items():
        answer = record.last(name)
        paths = answer.candidates if answer else []
        if len(paths) == 1:
            report.extras[extra] = paths[0]
        elif paths:
            report.candidates[extra] = paths
    report.problems += _problems_of_upload(record)
    if record.interrupted:
        report.problems.append("the doctor was interrupted; the report has what was seen so far")
    report.steps = list(_steps(record, connection.secrets))
    return report


def _add_patterns(report: Report, record: Record, connection: Settings) -> None:
    """Propose patterns; that for "not found" is extended until it matches all that is proven to mean a missing file."""
    upload, refused = record.last("upload"), record.last("wrong token")
    can_read = not report.problems and bool(record.last("wrong path"))
    is_accepted = bool(upload.found if upload else _refuses(record))
    pattern = connection.not_found_pattern
    for answer in record.answers:
        words, subject = answer.words, answer.operation.subject
        is_proven = {
            # Else the words may be about the token.
            "missing file": can_read and (is_accepted or (not upload and subject in words)),
            "link": bool(pattern),  # tasks then wait for what it matches alone
        }.get(answer.name, False)
        if is_proven and words and not (pattern and pattern.search(words)):
            if _ABSENCE.search(words) and not _REFUSAL.search(words):
                pattern = _extended(pattern, answer)
            else:  # a refused deletion may be answered alike
                report.candidates["not_found_pattern"] = [_extended(pattern, answer).pattern]
    if pattern and pattern != connection.not_found_pattern:
        report.extras["not_found_pattern"] = pattern.pattern
    if refused and refused.words and refused.words != record.answers[0].words:
        report.extras["token_refused_pattern"] = _extended(connection.token_refused_pattern, refused).pattern


def _problems_of_reading(record: Record) -> Iterator[str]:
    if not record.answers:
        return
    missing, wrong_path, refused = record.answers[0], record.last("wrong path"), record.last("wrong token")
    if missing.error and not missing.is_about_file:
        yield missing.error.reason
    if missing.has_no_sign or (refused and refused.has_no_sign):
        yield UNRECOGNIZED
    if missing.found:
        yield "a link was created for a file that does not exist, so no wait would be one"
    is_vague = missing.words and not (missing.operation.subject in missing.words or _refuses(record) or record.uploads)
    is_of_any_path = wrong_path and wrong_path.says == missing.says and not record.uploads
    if refused and (isinstance(refused.error, NotFoundError) or refused.words == missing.words != ""):
        yield "a refused token looks like a missing file; this connection's may be refused, too"
    elif is_vague:
        alike = "a refused or expired token, or a wrong base URL," if is_of_any_path else "a refused or expired token"
        yield f"{alike} may look like a missing file: prove the connection with --upload"
    elif is_of_any_path:
        yield "a wrong base URL would look like a missing file: prove the address with --upload"


def _problems_of_upload(record: Record) -> Iterator[str]:
    upload, link = record.last("upload"), record.last("link")
    if upload and upload.error:
        alike = upload.words and upload.words == record.answers[0].words
        yield f"uploads fail: {upload.error.reason}{f'; {_ALIKE}' if alike else ''}"
    if upload and upload.found and not (upload.found.file_id or upload.candidates):
        yield "nothing shows that an upload was accepted: the response has no id for downstream tasks"
    if upload and upload.found and upload.found.file_id and not (record.interrupted or (link and link.found)):
        yield "no link for the uploaded file was found in a response"
    if isinstance(record.download, CloudStoreError):
        reason = f"{record.download.reason}. {record.download.what_to_do}".rstrip(". ")
        yield f"a link was created, so waits end, but no file came: {reason}"


def _refuses(record: Record) -> bool:
    """Whether a wrong token was refused by status; one that has expired may be refused in other words."""
    refused = record.last("wrong token")
    return bool(refused and isinstance(refused.outcome, Response) and of_status(refused.outcome.status) is Signal.TOKEN_REFUSED)


def _success_when(record: Record) -> tuple[str, str] | None:
    """The path and the value that every success has, and no refusal that shows no sign of an error; None if there is none."""
    refusals = [answer for answer in map(record.last, ("missing file", "wrong token")) if answer and answer.has_no_sign]
    upload, link = record.last("upload"), record.last("link")
    # An upload alone proves nothing: its rejection may look so.
    if not (refusals and upload and link and (link.found or link.candidates)):
        return None
    others = [leaf for answer in refusals for leaf in leaves_of(answer.content.data)]
    common = [leaf for leaf in leaves_of(upload.content.data) if leaf in leaves_of(link.content.data) and leaf not in others]
    for path, value in common:
        word = value if isinstance(value, str) else json.dumps(value)
        if value is not None and re.fullmatch(r"[\w-]{1,20}", word):
            return path, word
    return None


def _extended(pattern: re.Pattern[str] | None, answer: Answer) -> re.Pattern[str]:
    """``pattern``, or one that matches the words of an answer, whatever its subject."""
    parts = re.split(rf"(?<!\w){re.escape(answer.operation.subject)}(?!\w)", answer.words)
    added = ".*".join(map(re.escape, parts)).replace(r"\ ", " ")
    return re.compile(f"{pattern.pattern}|{added}" if pattern else added, re.IGNORECASE)


def _steps(record: Record, secrets: tuple[Secret, ...]) -> Iterator[Step]:
    """What to show; of the requests for a link, only the last."""
    holders = [holder for answer in record.answers for holder in (answer.operation, answer.found)]
    known = (*secrets, *(secret for holder in holders for secret in getattr(holder, "secrets", ())))
    link = record.last("link")
    for answer in record.answers:
        if answer.name != "link" or answer is link:
            request = answer.operation.request(answer.settings)
            status = f"HTTP {answer.outcome.status}" if isinstance(answer.outcome, Response) else answer.outcome.reason
            seen = f"{status}, {type(answer.error).__name__ if answer.error else 'no sign of an error'}"
            may_be_token = isinstance(answer.found, DownloadLink) or (answer.name == "link" and answer.has_no_sign)
            leaves = list(_leaves_shown(answer.content, known, may_be_token=may_be_token))
            yield Step(answer.name, f"{request.method} {urlsplit(request.url).path}", seen, leaves)
        if answer is link and isinstance(record.download, tuple):
            size, content = record.download
            seen = f"{size:,} bytes came{', a web page or XML' if content.is_web_page else ''}"
            yield Step("download", "GET the download URL", seen, list(_leaves_shown(content, known)))


def _leaves_shown(content: Content, secrets: tuple[Secret, ...], *, may_be_token: bool = False) -> Iterator[tuple[str, str]]:
    for path, value in [] if content.problem or content.data is None else leaves_of(content.data):
        # One of several words may be the token.
        is_sentence = isinstance(value, str) and " " in value.strip() and not re.fullmatch(r"[\d\s:+.-]+", value)
        is_candidate = may_be_token and (is_sentence or _may_be_sought(path, value, _NO_TOKEN))
        is_secret = is_candidate or any(map(is_credential_name, path.split(".")))
        text = MASK if is_secret else value if isinstance(value, str) else json.dumps(value)
        yield _safe(path, secrets), _safe(text, secrets)


def _safe(text: str, secrets: tuple[Secret, ...]) -> str:
    """``text`` for display. Cut last: the rest of a secret that is cut in two would not be recognized."""
    return redact_parameters(redact(one_line(text), secrets))[:_MAX_LENGTH]


def _may_be_sought(path: str, value: Any, no_value: re.Pattern[str]) -> bool:
    """Whether a field may hold an id or a token: it is no flag, state or code, and its value is not of a kind that is none."""
    return plain_name(path.rpartition(".")[2]) not in SIGN_NAMES and not no_value.fullmatch(str(value))


def leaves_of(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a response that is no object or list, with its dotted path."""
    if not isinstance(data, (dict, list)):
        yield path or "(body)", data
        return
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from leaves_of(value, f"{path}.{name}" if path else str(name))
