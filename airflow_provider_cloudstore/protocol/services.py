"""Declares everything that is particular to a service.

Each field of :class:`Service` is an extra of the same name, which overrides the row of a known service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_cloudstore.protocol import convention, extras
from airflow_provider_cloudstore.protocol.extras import declare
from airflow_provider_cloudstore.protocol.paths import Condition, Paths

IN_DOCUMENT, IN_HEADER, IN_PARAMETER = TOKEN_PLACES = ("document", "header", "parameter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The declaration of a service. The defaults follow the API document, and the convention where the document says nothing."""

    api_path: str = declare("/cloud/api/v2", extras.api_path, "The path of the calls below the base URL, such as /api/v2.")
    token_in: str = declare(
        IN_DOCUMENT,
        extras.choice(*TOKEN_PLACES),
        "Where the token goes: document (POST: header, GET: query), header, or parameter (form or query).",
    )
    parameters: Mapping[str, str] = declare(
        {}, extras.parameters, "Parameters that are added to every call: a JSON object.", "password"
    )
    authorize: bool = declare(False, extras.flag, "Get the token from POST /authorize, with login and password.", "boolean")
    success_when: Mapping[str, Condition | None] = declare(
        {},
        extras.conditions,
        "The condition that a 2xx response must meet to be a success. An object can hold one condition per call.",
    )
    message_path: Paths = declare(convention.MESSAGE, Paths.parse, "The path of the message in an error.")
    file_id_path: Paths = declare(convention.FILE_ID, Paths.parse, "The path of the file's id in an upload's response.")
    token_path: Paths = declare(convention.TOKEN, Paths.parse, "The path of the download token in a link's response.")
    download_url_path: Paths = declare(convention.DOWNLOAD_URL, Paths.parse, "The path of the download URL in a link's response.")
    expires_path: Paths = declare(
        convention.EXPIRY, Paths.parse, "The path of the token's expiry in a link's response: a date, or seconds."
    )
    not_found_pattern: re.Pattern[str] | None = declare(
        None,
        extras.pattern,
        'A case-insensitive regular expression. Errors that match count as "not found".',
    )
    token_refused_pattern: re.Pattern[str] | None = declare(
        None,
        extras.pattern,
        "A case-insensitive regular expression. Errors that match count as HTTP 401.",
    )
    download_url: str = declare(
        "",
        extras.url_with("{token}"),
        "The URL to download from if responses have none, with {token} in the token's place.",
    )

    def condition_of(self, operation: str) -> Condition | None:
        """Return the condition of a successful response, by the key of the operation; None if the convention applies."""
        return self.success_when.get(operation, self.success_when.get(""))


API_V2 = "api-v2"
SERVICES = {
    API_V2: Service(),
    # Sites that run the YetiShare software. The values come from public API pages, clients and servers; no site was called.
    "yetishare": Service(
        api_path="/api/v2",
        token_in=IN_PARAMETER,
        authorize=True,
        # The answer to an upload is not known.
        success_when=extras.conditions({"": "_status=success|status=success", "upload": None}),
        message_path=Paths.parse("response|0"),
        download_url_path=Paths.parse("data.download_url"),
        not_found_pattern=extras.pattern("could not find (file|folder) based on"),
        token_refused_pattern=extras.pattern(
            "could not (validate access_token|authenticate user)|access token expired|please provide (key|access|account)"
        ),
    ),
}
"""The known services, by the name that extra ``service`` takes."""
