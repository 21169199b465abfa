"""The operations of the API: their guards and their requests (API document, sections 4 and 5)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import quote

from airflow_provider_cloudstore import __version__
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.identifiers import MAX_LENGTH, is_nothing, is_root, readings
from airflow_provider_cloudstore.protocol.messages import Request
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.settings import API_PREFIX, Settings
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

USER_AGENT = f"airflow-provider-cloudstore/{__version__}"
_UNUSUAL_PLACE = " If the service returns an upload's file id in an unusual place, set extra 'file_id_path' of the connection."
_ABSOLUTE = "it must be an absolute URL with a host and the scheme http, https or ftp"
_ONE_OF_MANY = (
    ': for an upload task `upload`, pass upload.output["file_id"], and for a mapped one '
    'expand(file_id=upload.output.map(lambda upload: upload["file_id"])), not upload.output'
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")  # line breaks and bidi included
_SOURCE_SCHEMES = ("http", "https", "ftp")


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


def validate_present(value: Any, field: str) -> str:
    """``value`` as a string, stripped: the guard of every templated id, URL and path.

    :param value: the argument, rendered.
    :param field: its name, for the message.
    :raises InvalidInputError: if it is not a string, or what a template renders when its source is missing; the message does not
        repeat what may be a URL.
    """
    # A template may render an id as a number; True and lists are mistakes.
    if value is None:
        text = "None"
    elif isinstance(value, str):
        text = value.strip()
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= MAX_LENGTH:
        text = str(value)
    else:
        one = _ONE_OF_MANY if isinstance(value, dict) and field == "file_id" else ""
        raise InvalidInputError(f"{field} must be a string, not {type(value).__name__}{one}; nothing was sent")
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise InvalidInputError(f"{field} is not valid Unicode; nothing was sent")
    if is_nothing(text):
        where = _UNUSUAL_PLACE if field == "file_id" else ""
        raise InvalidInputError(
            f"{field} is {f'{text!r}' if text else 'empty'}, which is what a template renders when its source is missing; "
            "nothing was sent",
            advice=f"Check that the upstream task ran and returned the value.{where}",
        )
    if "{{" in text or "{%" in text:
        raise InvalidInputError(f"{field} is a template that was not rendered: pass it as a template field; nothing was sent")
    if not text.isprintable() and _CONTROLS.search(text):
        raise InvalidInputError(f"{field} contains a line break or control character; nothing was sent")
    return text


def validate_id(value: Any, field: str) -> str:
    """``value`` as the text of an id; the guard that needs no connection.

    :param value: what was given or rendered.
    :param field: its name, for the message.
    :raises InvalidInputError: as :func:`validate_present`, and if it is too long.
    """
    text = validate_present(value, field)
    if len(text) > MAX_LENGTH:
        raise InvalidInputError(f"{field} has more than {MAX_LENGTH:,} characters; nothing was sent")
    return text


def _validate_folder_id(value: Any, settings: Settings) -> str:
    folder_id = validate_id(value, "folder_id")
    if is_root(folder_id):
        raise InvalidInputError(
            f"folder_id {folder_id!r} is protected: it may mean the root, whose deletion would permanently delete every file; "
            "nothing was sent",
            advice="Set it to the id of a single folder.",
        )
    if not readings(folder_id).isdisjoint(chain.from_iterable(map(readings, settings.protected_folder_ids))):
        raise InvalidInputError(
            f"folder_id {folder_id!r} is protected: extra 'protected_folder_ids' of the connection lists it, or an id that "
            "may mean the same folder, and deletion is permanent; nothing was sent"
        )
    return folder_id


def _validate_source_url(value: Any, settings: Settings) -> str:
    url = validate_present(value, "url")
    problem = _problem_of_source(url)
    if problem:
        raise InvalidInputError(f"url {redact_url(url)} {problem}; nothing was sent")
    return url


def _problem_of_source(url: str) -> str:
    """What is wrong with a source URL, without anything that could be secret."""
    try:
        scheme = split_url(url).scheme
    except AmbiguousUrlError as error:
        message = str(error)
        return message if ": write" in message else f"{message}: {_ABSOLUTE}"
    if scheme not in _SOURCE_SCHEMES:
        return f"has the scheme '{scheme}': {_ABSOLUTE}"
    if " " in url or not url.isprintable():
        return "contains a space or an invisible character: percent-encode it, a space as %20"
    return ""


DELETE_FOLDER = Operation(
    key="delete",
    name="delete folder",
    method="POST",
    path=f"{API_PREFIX}/folder/delete",
    field="folder_id",
    idempotent=True,
    can_be_missing=True,
    missing_is_success=True,
    validate=_validate_folder_id,
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
    validate=_validate_source_url,
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
    validate=lambda value, _: validate_id(value, "file_id"),
)
"""API document, section 4.3."""
OPERATIONS = (DELETE_FOLDER, UPLOAD_FROM_URL, CREATE_DOWNLOAD_LINK)
"""All of them. The emulator and the tests iterate this: each fails until it knows every operation."""
