"""Declares everything that is particular to a service, and every extra of a connection.

Each field of :class:`Service` is an extra of the same name, which overrides the row of a known service. So a service that nobody
knows is declared with a handful of extras. The settings, the connection form, the docs and the tests read these declarations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.protocol.paths import Condition, Paths

if TYPE_CHECKING:  # this module must import fast, because Airflow loads the form of every provider
    from airflow_provider_cloudstore.protocol.secrets import Secret

IN_DOCUMENT, IN_HEADER, IN_PARAMETER = TOKEN_PLACES = ("document", "header", "parameter")
KEY_NAMES = {"keys": ("key1", "key2"), "account": ("username", "password")}
"""The names of the parameters of ``POST /authorize``, for each kind of login and password that a connection may have."""

ERROR_STATES = ("status", "state", "result")
"""Fields that show an error if they are false, begin with ``error`` or ``fail``, or have the HTTP status of an error."""
ERROR_FLAGS = ("success", "ok")
"""Fields that show an error if they are false or 0."""
ERROR_CODES = ("code", "errno", "statuscode", "errorcode")
"""Fields that show an error if they have a number other than 0, 1 and 200 to 299."""
ERROR_FIELDS = ("error", "errors")
"""Fields that show an error if they say anything and the response lacks what the call asked for."""
PENDING_STATES = ("pending", "queued", "processing")
"""The values of a state while the file is not ready."""
INTERNAL_ERROR = re.compile(r"\binternal\b.*\berror\b|\b(?:internal|database)[ _]?error\b", re.IGNORECASE)
"""The words of an error that leave it open whether the call was carried out."""
_CREDENTIAL = r"(?<![a-z])(?:token|(?:api ?)?key|session|credentials)"
# "Invalid access token", "the api key has expired", "token_expired", "not logged in"; but not "remote server: invalid token",
# because that is what the source of an upload answered to the service.
_TOKEN_REFUSED = (
    r"(?s:\A(?!.*(?:\b(?:remote|source|url|fetch\w*|origin|upstream|download)\b|://)).*?)(?:"
    rf"\b(?:invalid|bad|expired|wrong)[ _-](?:or expired )?['\"]?(?:access[ _-]|api[ _-]|auth[ _-])?{_CREDENTIAL}\b"
    rf"|{_CREDENTIAL}['\"]?[ _-](?:is |has )?(?:invalid|expired)\b"
    r"|\b(?:not logged in|log ?in required|require login|unauthori[sz]ed|unauthenticated|not authori[sz]ed|reauthenticate)\b)"
)
_MESSAGES = (
    "response|message|msg|error.message|error.error_msg|error_description|error_message|error_msg|errmsg|errors.0.message|error"
    "|detail|description|reason|data.message|0|error.code|errno|code"
)


@dataclass(frozen=True, slots=True)
class Extra:
    """The declaration of an extra.

    :param default: the value if the extra is absent, null or empty.
    :param kind: how the value is written; ``protocol/settings.py`` has a parser for each kind.
    :param help: what the extra is for; the form shows this text, and the extra's row in the docs begins with it.
    :param accepts: the lowest and the highest number, the words of a choice, or the placeholder of a URL.
    :param is_secret: whether the value may contain a credential, so that the form hides it.
    """

    default: Any
    kind: str
    label: str
    help: str
    accepts: tuple[Any, ...] = ()
    is_secret: bool = False


def declare(default: Any, kind: str, label: str, help: str, accepts: tuple[Any, ...] = (), *, is_secret: bool = False) -> Any:
    """Return a dataclass field that declares an extra."""
    extra = Extra(default, kind, label, help, accepts, is_secret)
    return field(default_factory=lambda: default, metadata={"extra": extra}, repr=not is_secret)


def extras_of(declaration: type[Any]) -> dict[str, Extra]:
    """Return the extras that a dataclass declares, by name."""
    return {declared.name: declared.metadata["extra"] for declared in fields(declaration) if declared.metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The declaration of a service. The defaults follow the API document, and a convention where the document says nothing."""

    api_path: str = declare("/cloud/api/v2", "API path", "API path", "The path of the calls below the base URL, such as /api/v2.")
    token_in: str = declare(
        IN_DOCUMENT,
        "choice",
        "Token in",
        "Where the token goes: document (POST: header, GET: query), header, or parameter (form or query).",
        TOKEN_PLACES,
    )
    parameters: Mapping[str, str] = declare(
        {}, "parameters", "Parameters", "Parameters that are added to every call: a JSON object.", is_secret=True
    )
    authorize: bool = declare(False, "boolean", "Authorize", "Get the token from POST /authorize, with login and password.")
    authorize_with: str = declare(
        "keys",
        "choice",
        "Authorize with",
        "What login and password are: keys (key1 and key2), or account (a user's name and password).",
        tuple(KEY_NAMES),
    )
    success_when: Mapping[str, Condition | None] = declare(
        {},
        "conditions",
        "Success when",
        "The condition that a 2xx response must meet to be a success. An object can hold one condition per call.",
    )
    message_path: Paths = declare(Paths.parse(_MESSAGES), "paths", "Message path", "The path of the message in an error.")
    file_id_path: Paths = declare(
        Paths.parse("file_id|data.file_id"), "paths", "File id path", "The path of the file's id in an upload's response."
    )
    token_path: Paths = declare(
        Paths.parse("download_token|token|data.download_token|data.token"),
        "paths",
        "Token path",
        "The path of the download token in a link's response.",
    )
    download_url_path: Paths = declare(
        Paths.parse("download_url|url|link|data.download_url|data.url|data.link"),
        "paths",
        "Download URL path",
        "The path of the download URL in a link's response.",
    )
    expires_path: Paths = declare(
        Paths.parse("expires_at|expires|expires_in|data.expires_at|data.expires|data.expires_in"),
        "paths",
        "Expiry path",
        "The path of the token's expiry in a link's response: a date, or seconds.",
    )
    not_found_pattern: re.Pattern[str] | None = declare(
        None, "pattern", "Not-found pattern", 'A case-insensitive regular expression. Errors that match count as "not found".'
    )
    token_refused_pattern: re.Pattern[str] = declare(
        re.compile(_TOKEN_REFUSED, re.IGNORECASE),
        "pattern",
        "Token-refused pattern",
        "A case-insensitive regular expression. Errors that match count as HTTP 401.",
    )
    download_url: str = declare(
        "",
        "URL template",
        "Download URL",
        "The URL to download from if responses have none, with {token} in the token's place.",
        ("{token}",),
    )

    def condition_of(self, operation: str) -> Condition | None:
        """Return the condition of a successful response, by the key of the operation; None if the convention applies."""
        return self.success_when.get(operation, self.success_when.get(""))

    def knows(self, message: str) -> bool:
        """Whether one of the patterns matches a message."""
        return any(pattern and pattern.search(message) for pattern in (self.token_refused_pattern, self.not_found_pattern))


API_V2 = "api-v2"
SERVICES: dict[str, dict[str, Any]] = {
    API_V2: {},
    # Sites that run the YetiShare software. The values come from public API pages, clients and servers; no site was called.
    "yetishare": {
        "api_path": "/api/v2",
        "token_in": IN_PARAMETER,
        "authorize": True,
        "success_when": {"": "_status=success|status=success", "upload": None},  # the answer to an upload is not known
        "message_path": "response|message|0",
        "download_url_path": "data.download_url",
        "not_found_pattern": "could not find (file|folder) based on",
        "token_refused_pattern": (
            "could not (validate access_token|authenticate user)|access token expired|please provide (key|access|account)"
        ),
    },
}
"""The known services, by the name that extra ``service`` takes, with the extras that a connection would have to declare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The values of the extras that say how to use a service, as ``protocol/settings.py`` parses them."""

    timeout: float = declare(
        30, "number", "Timeout (seconds)", "Seconds to connect, and to receive the response.", (0.001, 86_400)
    )
    max_attempts: int = declare(4, "integer", "Attempts", "Maximum requests per call.", (1, 86_400))
    verify: bool | str = declare(True, "boolean or path", "Verify TLS", "Verify TLS: true, false, or the path of a CA bundle.")
    proxy: Secret | None = declare(None, "proxy", "Proxy", "URL of a proxy, with credentials percent-encoded.", is_secret=True)
    allow_http: bool = declare(False, "boolean", "Allow plain http", "Allow http to other machines, which exposes the token.")
    protected_folder_ids: frozenset[str] = declare(
        frozenset({"0", "/"}), "folder ids", "Protected folder ids", 'Ids that are never deleted, as a JSON list: ["archive"].'
    )
    file_page_url: str = declare(
        "",
        "URL template",
        "File page URL",
        "URL of a file's page, with {file_id} in the id's place. Airflow's UI links to it as File.",
        ("{file_id}",),
    )


EXTRAS: dict[str, Extra] = {
    "service": Extra(API_V2, "choice", "Service", f"The set of defaults: {' or '.join(SERVICES)}.", tuple(SERVICES)),
    **extras_of(Service),
    **extras_of(Extras),
}
"""All extras of a connection, by name."""
