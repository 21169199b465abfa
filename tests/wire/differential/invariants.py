"""What must hold of every call and every download, whatever is sent back; ``docs/operate/retries.md`` says what it means."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from tests.wire.differential.planted import ACCESS_TOKEN, LINK_TOKEN, SOURCE_PASSWORD, SOURCE_SIGNATURE, found_in
from tests.wire.differential.responses import Case, DownloadCase, Kind, RawResponse, Says
from tests.wire.failure_table import ERRORS, row_for, row_for_status

MAX_ATTEMPTS = 2
_SLACK = 1.0  # seconds
_REQUESTS_OF_A_DOWNLOAD = 20  # new links and 64 KiB of progress allow some more than MAX_ATTEMPTS
_TIMES = ("requested_at", "created_at", "expires_at")

Problems = Iterator[tuple[str, str]]


@dataclass(slots=True)
class Seen:
    """What came of one call, or of one download.

    :param timeout: seconds that each of its requests could take.
    """

    timeout: float
    result: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    requests: int = 0
    logged: str = ""

    @property
    def name(self) -> str:
        """The name of its error; empty for success."""
        return type(self.error).__name__ if self.error is not None else ""

    def told(self) -> str:
        """How it ended, for a report."""
        data = {name: getattr(self.error, name, None) for name in ("permanent", "status", "attempts")}
        return f"{f'{self.error} {data}' if self.error else repr(self.result)} after {self.requests} request(s)"


def secrets_of(operation: str) -> tuple[str, ...]:
    """What a client must not tell: only what it was given."""
    more = {"upload": (SOURCE_PASSWORD, SOURCE_SIGNATURE), "download": (LINK_TOKEN,)}
    return (ACCESS_TOKEN, *more.get(operation, ()))


def of_every_end(seen: Seen, secrets: tuple[str, ...]) -> Problems:
    """Every end: errors of our own with the flags of the table; within time; no secret anywhere."""
    error = seen.error
    if error is not None and not isinstance(error, CloudStoreError):
        yield f"foreign exception {seen.name}", "".join(traceback.format_exception(error))[-1500:]
    elif error and error.permanent != ERRORS[seen.name].permanent:
        yield "permanent", seen.told()
    if error is not None and (error.__cause__ or error.__context__):
        yield "chained", f"{error!r} has {(error.__cause__ or error.__context__)!r} behind it"
    if seen.seconds > max(1, seen.requests) * seen.timeout + _SLACK:
        yield "time", f"{seen.seconds:.1f} s for {seen.requests} requests of {seen.timeout} s"
    yield from _of_secrets(seen, secrets)


def _of_secrets(seen: Seen, secrets: tuple[str, ...]) -> Problems:
    """No secret in what is logged, printed or stored, but for a link's own token in what is stored."""
    error, token = seen.error, getattr(seen.result, "token", None)
    said = f"{seen.result!r} {seen.result}"
    if error is not None:
        said = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    stored = json.dumps(seen.result.to_dict(), ensure_ascii=False) if hasattr(seen.result, "to_dict") else ""
    places = {"logged": seen.logged, "told": said, "stored": stored.replace(token, "***") if token else stored}
    for place, text in places.items():
        if form := found_in(text, secrets):
            yield f"secret {place}", f"{form} in {text[-1500:]!r}"
    if token and len(token) > 8 and token in seen.logged + said:
        yield "secret told", f"the download token in {seen.logged[-700:]!r} or {said[-700:]!r}"


_VALID_RETRY_AFTER = re.compile(r"[0-9]+|.* 2100 .* GMT")
"""Seconds or a date to come (RFC 9110 section 10.2.3), of those that the responses have."""
_ROWS = {Says.AN_ERROR: "2xx whose body reports an error", Says.NOTHING: "2xx that is not"}


def _is_rate_limit(response: RawResponse, operation: str) -> bool:
    """Whether a response asks to come again later, and nothing was done: a front end's 503 does not say that of an upload."""
    retry_after = response.headers.get("retry-after", "")
    if response.status != 503 or (operation == "upload" and response.says is Says.NOTHING):
        return response.status in (425, 429)
    return _VALID_RETRY_AFTER.fullmatch(retry_after) is not None


def _expected_error(operation: str, response: RawResponse) -> str | None:
    """The error of a call that gets nothing but this response; empty for success, None if the table does not say.

    :param response: the response, valid or truncated.
    """
    status = response.status
    if response.kind is Kind.TRUNCATED:
        return row_for("sent, outcome unknown").error(operation, 500)
    if not 200 <= status < 300:
        row = row_for("other 5xx") if status == 503 and not _is_rate_limit(response, operation) else row_for_status(status)
        return row.error(operation, status) if row else None
    if response.says is None:
        return None
    if response.says is Says.DONE:
        return "" if response.token else row_for("2xx without a download token").error(operation, status)
    return row_for(_ROWS[response.says]).error(operation, status)


def of_call(case: Case, operation: str, seen: Seen) -> Problems:
    """One call: what the failure table says, and what was stored."""
    first, last = case.response(0), case.response(max(0, seen.requests - 1))
    if operation == "upload" and seen.requests > 1 and not _is_rate_limit(first, operation):
        yield "upload resent", f"{seen.requests} requests after HTTP {first.status}"
    if seen.requests > MAX_ATTEMPTS:
        yield "requests", f"{seen.requests}, where {MAX_ATTEMPTS} are allowed"
    if not seen.error and last.kind is Kind.TRUNCATED:
        yield "truncated, but success", seen.told()
    if isinstance(seen.error, CloudStoreError):
        yield from _of_attempts(seen, seen.error)
    if first.kind is not Kind.MALFORMED and len(case.responses) == 1:
        expected = _expected_error(operation, first)
        if expected not in (None, seen.name):
            yield f"{seen.name or 'success'}, not {expected or 'success'}", seen.told()
        if operation == "link" and expected == "" and not seen.error and seen.result.token != first.token:
            yield "token", f"{seen.result.token!r}, not {first.token!r}"


def _of_attempts(seen: Seen, error: CloudStoreError) -> Problems:
    if error.attempts != seen.requests:
        yield "attempts", seen.told()
    if ERRORS[seen.name].retried and seen.requests < MAX_ATTEMPTS and error.retry_after is None:
        yield "not retried", seen.told()


def of_pair(blocking: Seen, asynchronous: Seen) -> Problems:
    """Both clients end alike, even if a response is malformed."""
    ends = [_comparable(seen) for seen in (blocking, asynchronous)]
    if ends[0] != ends[1]:
        yield "the clients differ", f"{blocking.told()} and {asynchronous.told()}; {ends[0]} and {ends[1]}"[:3000]


def _comparable(seen: Seen) -> tuple[Any, ...]:
    if seen.error:
        return seen.name, getattr(seen.error, "permanent", None), getattr(seen.error, "status", None), seen.requests
    stored = {name: value for name, value in seen.result.to_dict().items() if name not in _TIMES}
    return json.dumps(stored), getattr(seen.result, "token", None), seen.requests


def of_download(case: DownloadCase, seen: Seen, target: bytes) -> Problems:
    """A download: exactly the bytes that were framed, or an error."""
    if not case.responses:
        yield "requests", f"none: {seen.told()}"
        return
    first, last = case.responses[0], case.responses[-1]
    proven = case.way != "plain"  # by the range's size, or by the SHA-256
    sized = proven or last.status == 206
    unprovable = case.way == "part" and last.kind is Kind.MALFORMED  # a range's bytes come with no proof of their own
    if not seen.error and target != case.content and not unprovable:
        yield "other bytes, but success", f"{len(target)} bytes of {len(case.content)}: {target[:60]!r}"
    if not seen.error and not sized and last.kind is Kind.TRUNCATED:
        yield "truncated, but success", f"{len(target)} bytes of {len(case.content)}"
    if not seen.error and not sized and not last.says_where_it_ends:
        yield "end unknown, but success", f"{len(target)} bytes of {len(case.content)}"
    if seen.error and _is_the_file(case, first) and (proven or first.says_where_it_ends):
        yield f"{seen.name}, not success", seen.told()
    if seen.requests > _REQUESTS_OF_A_DOWNLOAD:
        yield "requests", str(seen.requests)


def _is_the_file(case: DownloadCase, response: RawResponse) -> bool:
    return (
        response.kind is Kind.VALID
        and response.status == (206 if case.way == "part" else 200)
        and "content-encoding" not in response.headers
    )
