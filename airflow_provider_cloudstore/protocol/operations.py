"""The operations of the API as data, and their requests (API document, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from airflow_provider_cloudstore import __version__
from airflow_provider_cloudstore.protocol.guards import validate_file_id, validate_folder_id, validate_source_url
from airflow_provider_cloudstore.protocol.messages import Request
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.settings import API_PREFIX, Settings

USER_AGENT = f"airflow-provider-cloudstore/{__version__}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API.

    :param key: its short name, in the emulator's faults and counters.
    :param name: its name in messages and metrics.
    :param method: the HTTP method: a GET carries the parameter in the query, a POST in a form.
    :param path: the path below the base URL.
    :param field: its only parameter.
    :param token_in_query: whether the query carries the access token, or else a header (API document, section 5).
    :param idempotent: whether repeating it has no further effect.
    :param can_be_missing: whether its subject must exist in the service; an upload's is created.
    :param validate: the guard; it returns the subject as it is sent.
    :param missing_is_success: whether it is done if its subject does not exist.
    """

    key: str
    name: str
    method: str
    path: str
    field: str
    idempotent: bool
    can_be_missing: bool
    validate: Callable[[Any, Settings], str]
    missing_is_success: bool = False
    token_in_query: bool = False

    def request(self, subject: str, settings: Settings) -> Request:
        """The HTTP request for ``subject``."""
        token = settings.access_token.reveal()
        url = settings.base_url + self.path
        headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        parameter = f"{self.field}={_encode(subject)}"
        query = f"access_token={_encode(token)}&" if self.token_in_query else ""
        if not query:
            headers["Authorization"] = f"Bearer {token}"
        if self.method == "GET":
            headers["Accept"] = "application/json"
            return Request(self.method, f"{url}?{query}{parameter}", headers)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return Request(self.method, f"{url}?{query}" if query else url, headers, parameter.encode("ascii"))

    def redacted(self, subject: str) -> str:
        """``subject`` for messages: an id unchanged, a source URL redacted."""
        return redact_url(subject) if self.field == "url" else subject

    def secrets(self, subject: str) -> tuple[Secret, ...]:
        """The credentials in ``subject``: none in an id; user info and query of a source URL."""
        return url_secrets(subject) if self.field == "url" else ()


def _encode(value: str) -> str:
    # The form encoding of the WHATWG URL standard, section 5.2, but a space as %20, which is valid in queries and forms.
    return quote(value, safe="")


DELETE_FOLDER = Operation(
    key="delete",
    name="delete folder",
    method="POST",
    path=f"{API_PREFIX}/folder/delete",
    field="folder_id",
    idempotent=True,
    can_be_missing=True,
    missing_is_success=True,
    validate=lambda value, settings: validate_folder_id(value, settings.protected_folder_ids),
)
"""API document, section 4.1."""
UPLOAD_FROM_URL = Operation(
    key="upload",
    name="remote upload",
    method="POST",
    path=f"{API_PREFIX}/file/url_upload_add",
    field="url",
    idempotent=False,
    can_be_missing=False,
    validate=lambda value, _: validate_source_url(value),
)
"""API document, section 4.2."""
CREATE_DOWNLOAD_LINK = Operation(
    key="link",
    name="download link",
    method="GET",
    path=f"{API_PREFIX}/file/download",
    field="file_id",
    token_in_query=True,
    idempotent=True,
    can_be_missing=True,
    validate=lambda value, _: validate_file_id(value),
)
"""API document, section 4.3."""
OPERATIONS = (DELETE_FOLDER, UPLOAD_FROM_URL, CREATE_DOWNLOAD_LINK)
"""All of them. The emulator and the tests iterate this: each fails until it knows every operation."""
