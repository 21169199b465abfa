"""Reads and validates an Airflow connection once, and turns it into values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Self
from urllib.parse import urlunsplit

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.extras import extras_of
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, secrets_in
from airflow_provider_cloudstore.protocol.services import API_V2, EXTRAS, SERVICES, Extras, Service
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url, url_problem

CONN_TYPE = "cloudstore"
NO_TOKEN = Secret("")
"""In place of the access token of a connection with keys, until ``POST /authorize`` has returned one."""

_NO_PASSWORD = "Set it to the service's access token; in a URI: cloudstore://:TOKEN@files.example.com."  # noqa: S105

_HOST_ADVICE = (
    "Set the host to the base URL, such as https://files.example.com:8443/prefix, and the password to the token. "
    'In a URI, write the prefix as %2Fprefix. Plain http to another machine needs extra "allow_http": true.'
)


@dataclass(frozen=True, slots=True)
class Settings(Extras):
    """The service's address and token, and the extras of the connection, which say how to use the service.

    :param base_url: scheme, host, port and path prefix, without a trailing slash; the service's ``api_path`` follows it.
    :param conn_id: the connection's id, for errors that appear only when the connection is used.
    :param warnings: likely mistakes in the connection, such as ``has the unknown extra ...``.
    """

    base_url: str
    access_token: Secret
    service: Service = Service()  # noqa: RUF009  (it is frozen)
    keys: tuple[Secret, ...] = ()
    """The pair for which ``POST /authorize`` returns a token; empty if the connection has the token itself."""
    needs_file_id: bool = False
    """Whether an upload is in doubt if its response has no id, because the connection says where the id must be."""
    conn_id: str = ""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_connection(cls, connection: Any, extra: Mapping[str, Any]) -> Self:
        """Read the fields of an Airflow connection, and its extra.

        The host has the scheme, which a schema may only repeat. Without one, it is that of a connection of type ``http``, as in a
        URI, or else ``https``. Port 0, which a form may send, counts as a missing port.

        :raises ConfigurationError: if a field is invalid, or an extra is a misspelling of ``protected_folder_ids``.
        """
        unknown = sorted(extra.keys() - EXTRAS.keys())
        for name in unknown:
            if get_close_matches(name.lower(), ["protected_folder_ids"]):
                raise ConfigurationError(
                    f"extra '{name}' of the connection is unknown, and resembles 'protected_folder_ids'",
                    advice="Correct its name, or rename it if it means something else.",
                )
        given = {name: value for name, value in extra.items() if value not in (None, "")}
        known = SERVICES[_read("service", given.get("service", API_V2))]
        service, read = Service(**_read_all(Service, known | given)), _read_all(Extras, given)
        base_url = _base_url(connection, service.api_path, allow_http=read.get("allow_http", False))
        password = str(connection.password or "")
        if not password:
            raise ConfigurationError("the connection has no password", advice=_NO_PASSWORD)
        keys = (Secret(connection.login), Secret(password)) if service.authorize and connection.login else ()
        access_token = NO_TOKEN if keys else _access_token(password)
        needs_file_id = "file_id_path" in given
        warnings = tuple(f"has the unknown extra {name!r}. Valid extras: {', '.join(sorted(EXTRAS))}" for name in unknown)
        return cls(base_url, access_token, service, keys, needs_file_id, warnings=warnings, **read)

    def with_token(self, access_token: Secret, account_id: str) -> Self:
        """Return a copy with a token from ``POST /authorize``, and with the account, which is sent with every call."""
        parameters = {**self.service.parameters, "account_id": account_id} if account_id else self.service.parameters
        return replace(self, access_token=access_token, service=replace(self.service, parameters=parameters))

    @property
    def route(self) -> str:
        """The base URL and the proxy, without credentials."""
        return f"{self.base_url} through the proxy {redact_url(self.proxy.reveal())}" if self.proxy else self.base_url

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The credentials, also those in the parameters of every call and in the proxy's URL."""
        proxy = {"proxy": self.proxy.reveal()} if self.proxy else {}
        return (self.access_token, *self.keys, *secrets_in(self.service.parameters), *secrets_in(proxy))


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


def _base_url(connection: Any, api_path: str, *, allow_http: bool) -> str:
    host = str(connection.host or "").strip()
    if not host:
        raise ConfigurationError("the connection has no host", advice=_HOST_ADVICE)
    if "://" not in host:
        host = f"{'http' if str(connection.conn_type).lower() == 'http' else 'https'}://{host}"
    try:
        parts = split_url(host)
        netloc = f"{parts.netloc}:{connection.port}" if connection.port and parts.port is None else parts.netloc
        url = urlunsplit((parts.scheme, netloc, parts.path, "", "")).rstrip("/")
        problem = url_problem(url, allow_http=allow_http)
        if parts.query or parts.fragment:
            problem = "contains a query or a fragment"
        elif str(connection.schema or "").lower() not in ("", parts.scheme):
            problem = "contradicts the connection's schema (in a URI, the path)"
    except AmbiguousUrlError as error:
        problem = str(error)
    if problem:
        raise ConfigurationError(f"the connection's host {redact_url(host)} {problem}", advice=_HOST_ADVICE)
    return url.removesuffix(api_path).rstrip("/")


def _access_token(password: str) -> Secret:
    if re.search("[\\s\x00-\x1f\x7f\ud800-\udfff]", password):
        problem = "contains a space, line break or control character, or is not valid Unicode"
        advice = "Set the password to the token alone."
        raise ConfigurationError(f"the access token in the connection's password {problem}", advice=advice)
    return Secret(password)


def _read_all(declaration: type[Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the extras that a dataclass declares; an absent extra has its default."""
    return {name: _read(name, extra[name]) for name in extras_of(declaration) if name in extra}


def _read(name: str, value: Any) -> Any:
    try:
        return EXTRAS[name].kind.parse(value)
    except ValueError as problem:
        raise ConfigurationError(f"extra '{name}' of the connection {problem}") from None
