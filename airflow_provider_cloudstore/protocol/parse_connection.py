"""Reads and validates an Airflow connection."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlunsplit

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.extras import extras_of
from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url
from airflow_provider_cloudstore.protocol.services import API_V2, SERVICES, Service
from airflow_provider_cloudstore.protocol.settings import CONN_TYPE, EXTRAS, NO_TOKEN, Settings
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url, url_problem

_PASSWORD_ADVICE = "Set it to the service's access token, or to the second key; in a URI: cloudstore://:TOKEN@files.example.com."  # noqa: S105

_HOST_ADVICE = (
    "Set the host to the base URL, such as https://files.example.com:8443/prefix, and the password to the token. "
    'In a URI, write the prefix as %2Fprefix. Plain http to another machine needs extra "allow_http": true.'
)


def parse_connection(connection: Any, extra: Mapping[str, Any], conn_id: str = "") -> Settings:
    """Read the fields of an Airflow connection.

    The host has the scheme, which a schema may only repeat. Without one, it is that of a connection of type ``http``, as in a
    URI, or else ``https``. Port 0, which a form may send, counts as a missing port.

    :param extra: the connection's extra, as :func:`read_extra` returns it.
    :raises ConfigurationError: if a field is invalid, or an extra is a misspelling of ``protected_folder_ids``.
    """
    warnings = _check_names(extra)
    given = {name: value for name, value in extra.items() if value not in (None, "")}
    known = SERVICES[_parse("service", given.get("service", API_V2))]
    service, options = replace(known, **_parse_all(Service, given)), _parse_all(Settings, given)
    calls = [operation.key for operation in OPERATIONS]
    if wrong := service.success_when.keys() - {"", *calls}:
        raise ConfigurationError(f"extra 'success_when' must have only the keys {', '.join(calls)}, not {', '.join(wrong)}")
    base_url = _base_url(connection, service.api_path, allow_http=options.get("allow_http", False))
    password = str(connection.password or "")
    if not password:
        raise ConfigurationError("the connection has no password", advice=_PASSWORD_ADVICE)
    keys = (Secret(connection.login), Secret(password)) if service.authorize and connection.login else ()
    access_token = NO_TOKEN if keys else _access_token(password)
    return Settings(base_url, access_token, service, keys, "file_id_path" in given, conn_id, warnings, **options)


def read_extra(text: Any) -> dict[str, Any]:
    """Parse the extra of an Airflow connection. Airflow's own parser treats unreadable JSON as empty, and returns lists.

    The Test button of Airflow 2 also sends each field with a prefix, which is removed here.

    :raises ConfigurationError: if the extra is not a JSON object; the message does not repeat its text.
    """
    extra = None
    with suppress(ValueError, TypeError, RecursionError):  # not JSON, a number of 4,301 digits, not text, or nested too deeply
        extra = json.loads(text or "{}")
    if not isinstance(extra, dict):
        raise ConfigurationError('the connection\'s extra must be a JSON object, such as {"timeout": 60}')
    return {name.removeprefix(f"extra__{CONN_TYPE}__"): value for name, value in extra.items()}


def _check_names(extra: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe the unknown extras, and refuse what may be meant to protect a folder."""
    unknown = sorted(extra.keys() - EXTRAS.keys())
    for name in unknown:
        if get_close_matches(name.lower(), ["protected_folder_ids"]):
            raise ConfigurationError(
                f"extra '{name}' of the connection is unknown, and resembles 'protected_folder_ids'",
                advice="Correct its name, or rename it if it means something else.",
            )
    return tuple(f"has the unknown extra {name!r}. Valid extras: {', '.join(sorted(EXTRAS))}" for name in unknown)


def _base_url(connection: Any, api_path: str, *, allow_http: bool) -> str:
    host = str(connection.host or "").strip()
    if not host:
        raise ConfigurationError("the connection has no host", advice=_HOST_ADVICE)
    if "://" not in host:
        host = f"{'http' if str(connection.conn_type).lower() == 'http' else 'https'}://{host}"
    try:
        parts = split_url(host)
        netloc = f"{parts.netloc}:{connection.port}" if connection.port and parts.port is None else parts.netloc
        url = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/").removesuffix(api_path), "", "")).rstrip("/")
        problem = url_problem(url, allow_http=allow_http)
        if parts.query or parts.fragment:
            problem = "contains a query or a fragment"
        elif str(connection.schema or "").lower() not in ("", parts.scheme):
            problem = "contradicts the connection's schema (in a URI, the path)"
    except AmbiguousUrlError as error:
        problem = str(error)
    if problem:
        raise ConfigurationError(f"the connection's host {redact_url(host)} {problem}", advice=_HOST_ADVICE)
    return url


def _access_token(password: str) -> Secret:
    if not re.fullmatch("[!-~]+", password):
        problem = "contains a space, a line break or a character that is not ASCII"
        advice = "Set the password to the token alone."
        raise ConfigurationError(f"the access token in the connection's password {problem}", advice=advice)
    return Secret(password)


def _parse_all(declaration: type[Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the extras that a dataclass declares; an absent extra has its default."""
    return {name: _parse(name, extra[name]) for name in extras_of(declaration) if name in extra}


def _parse(name: str, value: Any) -> Any:
    try:
        return EXTRAS[name].parse(value)
    except ValueError as problem:
        raise ConfigurationError(f"extra '{name}' of the connection {problem}") from None
