"""The convention: how a response is read where neither the API document nor the connection says it. It has at most 35 names.

It is a guess, which an extra of the connection overrides: the paths and the pattern below are the defaults of extras, and
``success_when`` takes the place of :func:`reports_error`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from airflow_provider_cloudstore.protocol.paths import Paths, plain

FILE_ID = Paths.parse("file_id|data.file_id")
TOKEN = Paths.parse("download_token|token|data.download_token|data.token")
DOWNLOAD_URL = Paths.parse("download_url|url|link|data.download_url|data.url|data.link")
EXPIRY = Paths.parse("expires_at|expires|expires_in|data.expires_at|data.expires|data.expires_in")
MESSAGE = Paths.parse(
    "response|message|msg|error.message|error.error_msg|error_description|error_message|error_msg|errmsg|errors.0.message|error"
    "|detail|description|reason|data.message|0|error.code|errno|code"
)

INTERNAL_ERROR_WORDS = re.compile(r"\binternal(?![a-z]).{,40}error(?![a-z])|\b(?:internal|database)[ _]?error", re.IGNORECASE)
"""The words of an error that leave it open whether the call was carried out."""
_CREDENTIAL = r"(?<![a-z])(?:token|(?:api ?)?key|session|credentials)"
_REFUSED_TOKEN = re.compile(  # "invalid access token", "the api key has expired", "token_expired"
    rf"\b(?:invalid|bad|expired|wrong)[ _-](?:or expired )?['\"]?(?:access[ _-]|api[ _-]|auth[ _-])?{_CREDENTIAL}\b"
    rf"|{_CREDENTIAL}['\"]?[ _-](?:is |has )?(?:invalid|expired)\b"
    r"|\b(?:not logged in|log ?in required|require login|unauthori[sz]ed|unauthenticated|not authori[sz]ed|reauthenticate)\b",
    re.IGNORECASE,
)
_SOURCE = re.compile(r"\b(?:remote|source|url|fetch\w*|origin|upstream|download)\b|://", re.IGNORECASE)

STATES = ("status", "state", "result")
FLAGS = ("success", "ok")
CODES = ("code", "errno", "statuscode", "errorcode")
ERRORS = ("error", "errors")
PENDING = ("pending", "queued", "processing")
"""The values of a state while the file is not ready."""
_STATED_STATUSES = (*range(500, 507), *range(508, 600), 401, 403, 429, 507, 404, 410)
"""The numbers in a body that count as an HTTP status; of several, the first in this order counts. Any other number means no more
than "an error"."""
_NUMBER = re.compile("-?[0-9]{1,9}")
_NO_ERROR = ("", "0", "false", "none", "null", "ok", "success", "no error")


def reports_error(data: Any, *, has_result: bool) -> bool:
    """Whether parsed JSON reports an error; beside a result, a field ``error`` is a warning."""
    signs = _SIGNS if has_result else {**_SIGNS, ERRORS: _says_something}
    return data is False or any(is_error(value) for names, is_error in signs.items() for value in _values_of(data, names))


def refuses_token(text: str) -> bool:
    """Whether the service refuses the token in words; "remote server: invalid token" is what an upload's source said to it."""
    return bool(_REFUSED_TOKEN.search(text)) and not _SOURCE.search(text)


def stated_status(data: Any) -> int | None:
    """Return the HTTP status that a number in parsed JSON states, or None."""
    numbers = set(map(_number, _values_of(data, CODES + STATES)))
    return next((status for status in _STATED_STATUSES if status in numbers), None)


def error_states(data: Any) -> list[Any]:
    """Return the states that begin as an error, such as ``error-notFound``."""
    return [value for value in _values_of(data, STATES) if _begins_as_error(value)]


def is_pending(data: Any) -> bool:
    """Whether a state, or plain text, says that a link is not ready yet."""
    return any(str(value).lower() in PENDING for value in (data, *_values_of(data, STATES)))


def _values_of(data: Any, names: tuple[str, ...]) -> list[Any]:
    """Return the values of the fields with these names: two for ``state`` if there are ``state`` and ``_state``."""
    fields = [(plain(key), value) for key, value in data.items()] if isinstance(data, dict) else []
    return [value for name in names for key, value in fields if key == name]


def _is_error_state(value: Any) -> bool:
    return value is False or _begins_as_error(value) or 400 <= (_number(value) or 0) <= 599


def _begins_as_error(value: Any) -> bool:
    return str(value).strip().lower().startswith(("error", "fail"))


def _is_error_code(value: Any) -> bool:
    code = _number(value)
    return code is not None and code not in (0, 1, *range(200, 300))


def _says_something(value: Any) -> bool:
    values = [value]
    while values:
        one = values.pop()
        if isinstance(one, (dict, list)):
            values += one.values() if isinstance(one, dict) else one
        elif one != 0 and str(one).strip().lower() not in _NO_ERROR:
            return True
    return False


_SIGNS: dict[tuple[str, ...], Callable[[Any], bool]] = {
    STATES: _is_error_state,
    FLAGS: lambda value: str(value).strip().lower() in ("false", "0", "0.0"),
    CODES: _is_error_code,
}
"""The fields that may report an error, and which of their values do: the table in docs/operate/responses.md."""


def _number(value: Any) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else -1  # no success has such a code
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value.strip())) else None
