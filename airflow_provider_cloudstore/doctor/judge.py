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
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, is_credential_name, redact, redact_parameters
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.signals import Signal, of_status

_MAX_LENGTH = 200  # of a value
# What is neither an id nor a token: a word such as "queued", a sentence, a date, a version; a token is no short number either.
_NO_VALUE = r"[^\W\d_]{0,11}|.*[\s{}].*|\d{4}-\d\d-\d\dT?.*|-?\d*\.\d+"
_NO_ID = re.compile(rf"{_NO_VALUE}|.*://.*|-\d+")
_NO_TOKEN = re.compile(rf"{_NO_VALUE}|-?\d{{1,9}}")
_NO_WORD = re.compile(r"-?\d{1,9}|None|True|False")  # where a token may be a word
UNRECOGNIZED = (
    "the service's errors are not recognized: rejected uploads would count as success; with --upload, the doctor sees what a "
    "success looks like"
)
_ALIKE = (
    "a missing file is answered alike, so the token may be refused or have expired: set a valid one, and let extra "
    "'token_refused_pattern' match these words"
)
_NO_FOLDER = "try it again with a folder that exists"
_REFUSED = "if the folder exists, it was refused; if not, extra 'not_found_pattern' is to be: {}"
_VALUES = {"file_id_path": ("file_id", _NO_ID), "token_path": ("token", _NO_TOKEN)}


@dataclass(eq=False)
class Answer:
    """What became of a request; ``found`` or ``error`` is what its operation makes of it with ``settings``.

    :param id_path: of a request for a link: the path of the file's id in the answer to the upload.
    :ivar says: what tells it from another answer.
    :ivar words: the message of an error that extra ``not_found_pattern`` can match.
    :ivar has_no_sign: whether a request for a link was answered neither with an error nor with a token.
    """

    name: str
    operation: Operation[Any]
    settings: Settings
    outcome: Response | TransportFailure
    id_path: str = ""

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

    def results(self, extra: str) -> dict[str, Any]:
        """The result, or what may be it, by the path of its field; the path is empty where a task needs no ``extra``."""
        attribute, no_value = _VALUES[extra]
        if getattr(self.found, attribute, ""):
            return {"": self.found}
        paths = candidates_in(self.content.data, no_value) if self.found or self.has_no_sign else []
        read = {path: self.read_with(**{extra: tuple(path.split("."))}).found for path in paths}
        return {path: one for path, one in read.items() if getattr(one, attribute, "") not in ("", self.operation.subject)}

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
    :param waited: after how many seconds the wait for a link of the uploaded file was given up.
    :param downloads: what came for each link, by the path of its token: the beginning of a file, or an error.
    """

    conn_id: str
    connection: Settings | str
    warnings: list[str] = field(default_factory=list)
    uploads: bool = False
    answers: list[Answer] = field(default_factory=list)
    waited: float | None = None
    downloads: dict[str, Response | CloudStoreError] = field(default_factory=dict)
    interrupted: bool = False

    def last(self, name: str) -> Answer | None:
        """The last answer of a name."""
        return next((answer for answer in reversed(self.answers) if answer.name == name), None)

    @property
    def polls(self) -> dict[str, Answer]:
        """The last answers to requests for a link of the uploaded file, by the path of its id."""
        return {answer.id_path: answer for answer in self.answers if answer.name == "link"}

    @property
    def links(self) -> dict[str, Answer]:
        """Those answers that may hold a link, by the path of an id that turned out to work."""
        return {path: poll for path, poll in self.polls.items() if poll.results("token_path")}

    @property
    def tokens(self) -> dict[str, DownloadLink]:
        """The links that are tried, by the path of the token: those of the first id that turned out to work."""
        return next((answer.results("token_path") for answer in self.links.values()), {})


def judge(record: Record) -> Report:
    """What follows from a record, which may have ended early; a second look finds the same."""
    if when := _success_when(record):
        path, value = when
        condition = (tuple(path.split(".")), value)
        report = judge(replace(record, answers=[one.read_with(success_when=(condition,)) for one in record.answers]))
        report.extras = {"success_when": f"{path}={value}", **report.extras}
        return report
    report = Report(record.conn_id, notes=[f"The connection {warning}" for warning in record.warnings])
    if isinstance(record.connection, str):
        report.problems.append(f"it cannot be read: {record.connection}")
        return report
    report.problems = list(_problems_of_reading(record))
    pattern = _add_patterns(report, record, record.connection)
    for extra, proven, possible in _paths(record):
        if len(proven) == 1 and proven != [""]:
            report.extras[extra] = proven[0]
        elif "" not in possible:  # else a task finds the value itself
            report.candidates[extra] = proven or possible
    report.problems += _problems_of_changes(record, pattern)
    if record.interrupted:
        report.problems.append("the doctor was interrupted; the report has what was seen so far")
    report.steps = list(_steps(record, record.connection.secrets))
    return report


def _add_patterns(report: Report, record: Record, connection: Settings) -> re.Pattern[str] | None:
    """Propose patterns; returns that for "not found", proposed or known."""
    can_read = not report.problems and bool(record.last("wrong path"))
    pattern = _not_found_pattern(record, connection.not_found_pattern, can_read=can_read)
    if pattern and pattern != connection.not_found_pattern:
        report.extras["not_found_pattern"] = pattern.pattern
    refused = record.last("wrong token")
    if refused and refused.words and refused.words != record.answers[0].words:
        report.extras["token_refused_pattern"] = _extended(connection.token_refused_pattern, refused).pattern
    return pattern


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


def _problems_of_changes(record: Record, pattern: re.Pattern[str] | None) -> Iterator[str]:
    upload, deletion, second = map(record.last, ("upload", "deletion", "second deletion"))
    errors = [came for came in record.downloads.values() if isinstance(came, CloudStoreError)]
    if upload and upload.error:
        alike = upload.words and upload.words == record.answers[0].words
        yield f"uploads fail: {upload.error.reason}{f'; {_ALIKE}' if alike else ''}"
    if upload and upload.found and not upload.results("file_id_path"):
        yield "nothing shows that an upload was accepted: the response has no id for downstream tasks"
    if record.waited is not None:
        yield f"no link for the uploaded file was found in a response within {record.waited:g} s"
    if errors and len(errors) == len(record.downloads):
        reason = f"{errors[-1].reason}. {errors[-1].what_to_do}".rstrip(". ")
        yield f"a link was created, so waits end, but no file came: {reason}"
    if deletion and deletion.error:
        advice = _REFUSED.format(_extended(pattern, deletion).pattern) if deletion.words else _NO_FOLDER
        yield f"deletions fail: {deletion.error.reason}; {advice}"
    if second and not (second.words or isinstance(second.error, NotFoundError)):
        yield "nothing shows that a folder was deleted: a second deletion is answered no differently"


def _not_found_pattern(record: Record, pattern: re.Pattern[str] | None, *, can_read: bool) -> re.Pattern[str] | None:
    """``pattern``, extended until it matches each message that is proven to mean a missing file or folder, whatever its id."""
    upload, deletion = record.last("upload"), record.last("deletion")
    is_accepted = bool((upload and upload.found) or (deletion and deletion.found) or (not upload and _refuses(record)))
    for answer in record.answers:
        words, subject = answer.words, answer.operation.subject
        is_proven = {
            # Else the words may be about the token.
            "missing file": can_read and (is_accepted or (not upload and subject in words)),
            "link": bool(pattern),  # tasks then wait for what it matches alone
            "second deletion": True,
        }.get(answer.name, False)
        if is_proven and words and not (pattern and pattern.search(words)):
            pattern = _extended(pattern, answer)
    return pattern


def _refuses(record: Record) -> bool:
    """Whether a wrong token was refused by status; one that has expired may be refused in other words."""
    refused = record.last("wrong token")
    return bool(refused and isinstance(refused.outcome, Response) and of_status(refused.outcome.status) is Signal.TOKEN_REFUSED)


def _success_when(record: Record) -> tuple[str, str] | None:
    """The path and the value that every success has, and no refusal that shows no sign of an error; None if there is none."""
    refusals = [answer for answer in map(record.last, ("missing file", "wrong token")) if answer and answer.has_no_sign]
    upload, links = record.last("upload"), record.links.values()
    if not (refusals and upload and links):  # an upload alone proves nothing: its rejection may look so
        return None
    successes = [list(leaves_of(answer.content.data)) for answer in (upload, *links)]
    others = [leaf for answer in refusals for leaf in leaves_of(answer.content.data)]
    for path, value in successes[0]:
        is_word = isinstance(value, (bool, int)) or (isinstance(value, str) and re.fullmatch(r"[\w-]{1,20}", value))
        if is_word and all((path, value) in leaves for leaves in successes) and (path, value) not in others:
            return path, value if isinstance(value, str) else json.dumps(value)
    return None


def _extended(pattern: re.Pattern[str] | None, answer: Answer) -> re.Pattern[str]:
    """``pattern``, or one that matches the words of an answer, whatever its subject."""
    parts = re.split(rf"(?<!\w){re.escape(answer.operation.subject)}(?!\w)", answer.words)
    added = ".*".join(map(re.escape, parts)).replace(r"\ ", " ")
    return re.compile(f"{pattern.pattern}|{added}" if pattern else added, re.IGNORECASE)


def _paths(record: Record) -> Iterator[tuple[str, list[str], list[str]]]:
    """For each extra that names a field: the paths that turned out to work, and those that are possible."""
    last = record.last("link")
    if record.links or record.waited is not None:
        yield "file_id_path", list(record.links), list(record.polls)
    if record.downloads:
        yield "token_path", [path for path, came in record.downloads.items() if isinstance(came, Response)], list(record.tokens)
    if record.waited is not None and last and last.has_no_sign:
        yield "token_path", [], candidates_in(last.content.data, _NO_WORD)  # a token may be a word


def _steps(record: Record, secrets: tuple[Secret, ...]) -> Iterator[Step]:
    """What to show. Of the requests for a link, these are those that found one, or else the last."""
    came = {path: response for path, response in record.downloads.items() if isinstance(response, Response)}
    groups = [*(answer.operation.secrets for answer in record.answers), *(record.tokens[path].secrets for path in came)]
    known = (*secrets, *(secret for group in groups for secret in group))
    shown: list[Answer | None] = [*record.links.values()] or [record.last("link")]
    for answer in record.answers:
        if answer.name != "link" or answer in shown:
            request = answer.operation.request(answer.settings)
            status = f"HTTP {answer.outcome.status}" if isinstance(answer.outcome, Response) else answer.outcome.reason
            seen = f"{status}, {type(answer.error).__name__ if answer.error else 'no sign of an error'}"
            may_be_token = isinstance(answer.found, DownloadLink) or (answer.name == "link" and answer.has_no_sign)
            leaves = _leaves_shown(answer.content, known, may_be_token=may_be_token)
            yield Step(answer.name, f"{request.method} {urlsplit(request.url).path}", seen, leaves)
        for response in came.values() if answer is shown[-1] else ():
            content = read_content(response)
            seen = f"{int(response.headers['content-length']):,} bytes came{', a web page or XML' if content.is_web_page else ''}"
            yield Step("download", "GET the download URL", seen, _leaves_shown(content, known))


def _leaves_shown(content: Content, secrets: tuple[Secret, ...], *, may_be_token: bool = False) -> list[tuple[str, str]]:
    shown, candidates = [], candidates_in(content.data, _NO_TOKEN)
    for path, value in [] if content.problem or content.data is None else leaves_of(content.data):
        # One of several words may be the token.
        is_sentence = isinstance(value, str) and " " in value.strip() and not re.fullmatch(r"[\d\s:+.-]+", value)
        is_candidate = may_be_token and (is_sentence or path in candidates)
        is_secret = is_candidate or any(map(is_credential_name, path.split(".")))
        text = MASK if is_secret else value if isinstance(value, str) else json.dumps(value)
        shown.append((_safe(path, secrets), _safe(text, secrets)))
    return shown


def _safe(text: str, secrets: tuple[Secret, ...]) -> str:
    """``text`` for display. Cut last: the rest of a secret that is cut in two would not be recognized."""
    return redact_parameters(redact(one_line(text), secrets))[:_MAX_LENGTH]


def candidates_in(data: Any, no_value: re.Pattern[str]) -> list[str]:
    """The paths of what may be an id or a token: no flag, no state or code, and no value of the kind that is none."""
    return [
        path
        for path, value in leaves_of(data)
        if plain_name(path.rpartition(".")[2]) not in SIGN_NAMES and not no_value.fullmatch(str(value))
    ]


def leaves_of(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a response that is no object or list, with its dotted path."""
    if not isinstance(data, (dict, list)):
        yield path or "(body)", data
        return
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from leaves_of(value, f"{path}.{name}" if path else str(name))
