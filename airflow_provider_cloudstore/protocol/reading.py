"""Reads a response: parses its body, and decides what the response means.

The declarations of the connection's owner come first, then the HTTP status, then a short convention, which can only turn a 2xx
response into an error. ``services.py`` has the declarations and the convention's names; ``meanings.py`` has the errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.protocol import meanings, services
from airflow_provider_cloudstore.protocol.http import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.meanings import Meaning
from airflow_provider_cloudstore.protocol.paths import Condition, plain
from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_parameters
from airflow_provider_cloudstore.protocol.services import Service
from airflow_provider_cloudstore.protocol.storable import storable
from airflow_provider_cloudstore.results import Json

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.operations import Operation

PAGE_TYPES = ("text/html", "application/xhtml")
_BINARY = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_json = json.JSONDecoder(strict=False)  # careless services send raw line breaks inside strings

_STATED = (401, 403, 404, 410, 429, *range(500, 600))
"""The numbers in a body that count as an HTTP status. Any other number means no more than "an error"."""
_OUTCOME_OPEN = (408, *range(500, 600))
_NUMBER = re.compile("-?[0-9]{1,9}")
_NOTHING = ("", "0", "false", "none", "null", "ok", "success", "no error")
_MAX_RETRY_AFTER = 86_400.0  # seconds; a broken header must not delay a task for years
_SECONDS = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reading:
    """A response with its parsed body.

    :param data: the parsed JSON; the text if the body is not JSON; None if it is empty. The data may contain secrets.
    :param problem: the reason why the body cannot come from the service itself; empty if it can.
    :param secrets: the secrets that no message and no stored value may contain.
    """

    response: Response
    data: Json = field(repr=False, default=None)
    problem: str = ""
    secrets: tuple[Secret, ...] = ()

    @property
    def is_2xx(self) -> bool:
        """Whether the HTTP status reports a success."""
        return 200 <= self.response.status <= 299

    @property
    def status_text(self) -> str:
        """The HTTP status for an error message, with what contradicts a 2xx."""
        seen = f"HTTP {self.response.status}"
        if self.is_2xx and self.problem:
            return f"{seen} with {self.problem}"
        return f"{seen} that states {self.stated_status}" if self.is_2xx and self.stated_status else seen

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a JSON object, with their names as the convention compares them."""
        return {plain(name): value for name, value in self.data.items()} if isinstance(self.data, dict) else {}

    @property
    def key_names(self) -> str:
        """The names of the body's fields for an error message, never their values."""
        if not isinstance(self.data, dict):
            return "its body is empty" if self.data is None else "its body is not a JSON object"
        inner = self.data.get("data")
        keys = [*self.data, *(f"data.{key}" for key in inner)] if isinstance(inner, dict) else list(self.data)
        names = [name if re.fullmatch(r"[\w.@-]{1,40}", name) else "?" for name in keys[:20]]
        return f"it has the keys {', '.join(names)}" if names else "it is an empty JSON object"

    @property
    def is_pending(self) -> bool:
        """Whether a link is not ready yet: by HTTP 202, or by a state."""
        states = {str(self.fields.get(name)).lower() for name in services.ERROR_STATES}
        return self.response.status == 202 or not states.isdisjoint(services.PENDING_STATES)

    @property
    def stated_status(self) -> int | None:
        """The HTTP status that a number in the body states, or None."""
        for name in (*services.ERROR_CODES, *services.ERROR_STATES):
            number = _number(self.fields.get(name))
            if number in _STATED:
                return number
        return None

    def message(self, service: Service) -> str:
        """Return the service's words with single spaces: plain text, the first text at ``message_path``, or an error's state."""
        if self.problem:
            return ""
        states = filter(_begins_as_error, map(self.fields.get, services.ERROR_STATES))  # such as error-notFound
        found = [self.data] if isinstance(self.data, str) else [*service.message_path.values_in(self.data), *states]
        for value in found:
            if isinstance(value, (str, int)) and not isinstance(value, bool) and (text := " ".join(str(value).split())):
                return text
        return ""

    def redacted(self, text: str) -> str:
        """Return ``text`` without secrets."""
        return redact_parameters(redact(text, self.secrets))

    def for_xcom(self, kept: str = "") -> Json:
        """Return the data for an XCom, without the secrets that the service repeats; ``kept``, the file's id, is not masked."""
        return storable(self.data, lambda text: text if text == kept else self.redacted(text))


def read(response: Response, secrets: tuple[Secret, ...] = ()) -> Reading:
    """Parse the body of a response."""
    if len(response.body) > MAX_BODY_BYTES:
        return Reading(response, None, "a body of more than 1 MiB, which was cut off", secrets)
    text = response.body.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    if not text:
        return Reading(response, None, "", secrets)
    with suppress(ValueError, RecursionError):
        return Reading(response, _json.decode(text), "", secrets)
    return Reading(response, text, _problem_of(text, response.headers.get("content-type", "").lower()), secrets)


def _problem_of(text: str, content_type: str) -> str:
    """Return the reason why a body that is not JSON cannot come from the service itself; empty if it is plain text."""
    if text.startswith("<?xml"):
        return "XML in place of the service's response"
    if text.startswith("<") or content_type.startswith(PAGE_TYPES):
        return "a web page in place of the service's response"
    if _BINARY.search(text):
        return "a body that is neither JSON nor text"
    return "a body that begins like JSON and is not JSON" if text[0] in "{[" else ""


def meaning_of(reading: Reading, operation: Operation[Any], service: Service, *, has_result: bool) -> Meaning | None:
    """Return what a response means; None if it is a success. The first rule that applies decides.

    :param has_result: whether the response contains what the operation asked for: a file's id, or a download token.
    """
    if reading.is_2xx and reading.problem:
        return meanings.NOT_A_RESPONSE
    if not reading.is_2xx or _reports_error(reading, service.condition_of(operation.key), has_result=has_result):
        if has_result and not operation.idempotent:
            return meanings.ERROR_WITH_ID
        return _meaning_of_error(reading, operation, service)
    if has_result or not operation.needs_result:
        return None
    if not operation.idempotent:
        return meanings.NO_FILE_ID
    return _meaning_of_pattern(reading, operation, service) or (meanings.NOT_YET if reading.is_pending else meanings.NO_TOKEN)


def _meaning_of_error(reading: Reading, operation: Operation[Any], service: Service) -> Meaning:
    """Return what an error means. A call that must not be repeated is in doubt, whatever else the response says."""
    meaning = _meaning_of_status(reading, operation, service)
    if meaning is meanings.IN_DOUBT and not operation.idempotent:
        return meaning
    if declared := _meaning_of_pattern(reading, operation, service):
        return declared
    return meanings.UNMATCHED.get(meaning, meaning) if operation.not_found_pattern(service) else meaning


def _meaning_of_status(reading: Reading, operation: Operation[Any], service: Service) -> Meaning:
    """Return what an error means by its HTTP status, or by the status that the body of a 2xx states."""
    status = reading.stated_status if reading.is_2xx else reading.response.status
    if status is None:
        return meanings.IN_DOUBT if services.INTERNAL_ERROR.search(reading.message(service)) else meanings.STATED_ERROR
    if reading.response.status == 503 and retry_after(reading.response) is not None:
        # Varnish sends a page with this status after a timeout, when the upload may have been queued.
        return meanings.IN_DOUBT if reading.problem and not operation.idempotent else meanings.LIMITED
    meaning = meanings.of_status(status)
    if meaning is meanings.MISSING and not isinstance(reading.data, dict):
        return meanings.NO_SUCH_PATH if reading.problem else meanings.MAYBE_MISSING
    return meaning


def _meaning_of_pattern(reading: Reading, operation: Operation[Any], service: Service) -> Meaning | None:
    """Return the meaning whose pattern matches the service's message, or the whole body; None if no pattern does.

    Web pages are not searched, nor is a response whose status leaves it open whether the call was carried out.
    """
    if reading.problem or reading.data is None or reading.response.status in _OUTCOME_OPEN:
        return None
    body = reading.data if isinstance(reading.data, str) else json.dumps(reading.data, ensure_ascii=False)
    texts = (reading.message(service), body)
    patterns = {meanings.TOKEN_REFUSED: service.token_refused_pattern, meanings.MISSING: operation.not_found_pattern(service)}
    for meaning, pattern in patterns.items():
        if pattern and any(map(pattern.search, texts)):
            return meaning
    return None


def _reports_error(reading: Reading, condition: Condition | None, *, has_result: bool) -> bool:
    """Whether a 2xx response reports an error, according to ``success_when`` or else to the convention."""
    if condition and isinstance(reading.data, (dict, list)):
        return not condition.holds(reading.data)
    return has_sign_of_error(reading, has_result=has_result)


def has_sign_of_error(reading: Reading, *, has_result: bool) -> bool:
    """Whether a 2xx response reports an error according to the convention. ``error`` beside a result is a warning."""
    fields = reading.fields
    signs = _SIGNS if has_result else {**_SIGNS, services.ERROR_FIELDS: _says_something}
    return reading.data is False or any(is_error(fields.get(name)) for names, is_error in signs.items() for name in names)


def _is_error_state(value: Any) -> bool:
    return value is False or _begins_as_error(value) or 400 <= (_number(value) or 0) <= 599


def _begins_as_error(value: Any) -> bool:
    return str(value).strip().lower().startswith(("error", "fail"))


def _is_error_code(value: Any) -> bool:
    code = _number(value)
    return code is not None and code not in (0, 1, *range(200, 300))


def _says_something(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return any(map(_says_something, value.values() if isinstance(value, dict) else value))
    return value != 0 and str(value).strip().lower() not in _NOTHING


_SIGNS: dict[tuple[str, ...], Callable[[Any], bool]] = {
    services.ERROR_STATES: _is_error_state,
    services.ERROR_FLAGS: lambda value: str(value).strip().lower() in ("false", "0", "0.0"),
    services.ERROR_CODES: _is_error_code,
}
"""The fields of a JSON object that may report an error, and which of their values do: the table in docs/operate/responses.md."""


def _number(value: Any) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else -1  # no success has such a code
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value.strip())) else None


def retry_after(response: Response) -> float | None:
    """Return the seconds to wait, at most a day, from whole seconds or a future HTTP date (RFC 9110 section 10.2.3)."""
    value = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), _MAX_RETRY_AFTER)
    if not value.endswith(" GMT"):
        return None
    try:
        seconds = parsedate_to_datetime(value).timestamp() - response.received
    except (ValueError, TypeError, OverflowError):  # not a date, or out of range
        return None
    return min(seconds, _MAX_RETRY_AFTER) if seconds > 0 else None
