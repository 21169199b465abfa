"""Declares everything that is particular to a service: one dataclass, and a row of data for each known service.

Each field is also an extra of the connection with the same name, and the extra overrides the row. An unknown service can be
declared with a handful of extras.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_cloudstore.protocol.extras import Extra, Extras, declare, extras_of
from airflow_provider_cloudstore.protocol.paths import Condition, Paths

IN_DOCUMENT, IN_HEADER, IN_PARAMETER = TOKEN_PLACES = ("document", "header", "parameter")
OPERATION_KEYS = ("delete", "upload", "link")
"""The keys of the operations. Extra ``success_when`` may have a condition for each of them."""
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
# The lookahead skips what a source of an upload answered to the service.
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


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The declaration of a service. The defaults follow the API document, and a convention where the document says nothing."""

    api_path: str = declare("/cloud/api/v2", "API path", "API path", "The path of the calls below the base URL, such as /api/v2.")
    token_in: str = declare(
        IN_DOCUMENT,
        "choice",
        "Token in",
        "Where the token is sent: header; parameter (a POST's form, a GET's query); or document (a POST's header, a GET's "
        "query), as in the API document.",
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
        "A condition that is true of successes only: path=value (equal), path (present, not empty) or !path (absent or empty), "
        "joined with & and |. Per call: a JSON object with the keys delete, upload and link.",
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
        _pattern(_TOKEN_REFUSED),
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
    needs_file_id: bool = field(default=False)
    """Whether an upload is in doubt if its response has no id, because the connection says where the id must be."""

    def condition_of(self, operation: str) -> Condition | None:
        """Return the condition of a successful response, by the key of the operation; None if the convention applies."""
        return self.success_when.get(operation, self.success_when.get(""))

    def knows(self, message: str) -> bool:
        """Whether one of the patterns matches a message."""
        return any(pattern and pattern.search(message) for pattern in (self.token_refused_pattern, self.not_found_pattern))


API_V2 = "api-v2"
SERVICES: dict[str, Service] = {
    API_V2: Service(),
    # Sites that run the YetiShare software. The values come from public API pages, clients and servers; no site was called.
    "yetishare": replace(
        Service(),
        api_path="/api/v2",
        token_in=IN_PARAMETER,
        authorize=True,
        success_when={"": Condition.parse("_status=success|status=success"), "upload": None},  # its answer is not known
        message_path=Paths.parse("response|message|0"),
        download_url_path=Paths.parse("data.download_url"),
        not_found_pattern=_pattern("could not find (file|folder) based on|failed deleting the folder"),
        token_refused_pattern=_pattern("could not validate access_token|access token expired"),
    ),
}
"""The known services, by the name that extra ``service`` takes."""

EXTRAS: dict[str, Extra] = {
    "service": Extra(API_V2, "choice", "Service", f"The set of defaults: {' or '.join(SERVICES)}.", tuple(SERVICES)),
    **extras_of(Service),
    **extras_of(Extras),
}
"""All extras of a connection, by name."""
