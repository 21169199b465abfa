"""Reads and validates an Airflow connection once, and turns it into values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlunsplit

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.extras import Extras, extras_of
from airflow_provider_cloudstore.protocol.guards import folder_id_problem
from airflow_provider_cloudstore.protocol.meanings import PROXY_ADVICE
from airflow_provider_cloudstore.protocol.paths import Condition, Paths
from airflow_provider_cloudstore.protocol.secrets import Secret, is_word, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.services import EXTRAS, KEY_NAMES, OPERATION_KEYS, SERVICES, TOKEN_PLACES, Service
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url, url_problem

CONN_TYPE = "cloudstore"

_ROOT: frozenset[str] = EXTRAS["protected_folder_ids"].default
_HOST_ADVICE = (
    "Set the host to the base URL, such as https://files.example.com:8443/prefix, and the password to the token. "
    'Plain http to another machine needs extra "allow_http": true.'
)
_SCHEMES = ("http", "https")
_SIMILAR = 0.75  # names are similar from this ratio on, which is between 0 and 1


@dataclass(frozen=True, slots=True)
class Settings(Extras):
    """The service's address and token, and the extras of the connection, which say how to use the service.

    :param base_url: scheme, host, port and path prefix, without a trailing slash; the service's ``api_path`` follows it.
    :param conn_id: the connection's id, for errors that appear only when the connection is used.
    :param warnings: likely mistakes in the connection, such as ``has the unknown extra ...``.
    """

    base_url: str
    access_token: Secret
    """The access token; empty only in the request for a token."""
    service: Service = SERVICES["api-v2"]
    keys: tuple[Secret, ...] = ()
    """The pair for which ``POST /authorize`` returns a token; empty if the connection has the token itself."""
    conn_id: str = ""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_connection(cls, connection: Any, extra: Mapping[str, Any]) -> Self:
        """Read the fields of an Airflow connection, and its extra.

        The schema is the scheme, or a further part of the path prefix (in a URI, it follows the host). If neither the host nor
        the schema names the scheme, the connection's type does if it is ``http``, as in a URI; otherwise the scheme is ``https``.
        Port 0, which a form may send, counts as a missing port.

        :raises ConfigurationError: if a field is invalid, or an unknown extra is a misspelling of a known extra.
        """
        _refuse_misspellings(extra)
        read = {name: _read(name, extra[name]) for name in extras_of(Extras) if _is_set(name, extra)}
        read = {name: known.default for name, known in extras_of(Extras).items()} | read
        service = _service(extra)
        base_url = _base_url(connection, service.api_path, allow_http=read["allow_http"])
        access_token = _access_token(connection.password)
        keys: tuple[Secret, ...] = ()
        if service.authorize and connection.login:
            access_token, keys = Secret(""), (Secret(connection.login), access_token)
        if str(connection.password) in read["file_page_url"]:
            raise ConfigurationError("extra 'file_page_url' of the connection holds the access token, and that URL is shown")
        warnings = warnings_about(connection.conn_type, extra, None if keys else connection.login)
        return cls(base_url=base_url, access_token=access_token, keys=keys, service=service, warnings=warnings, **read)

    def authorized(self, access_token: Secret, account_id: str) -> Self:
        """Return a copy with a token from ``POST /authorize``, and with the account, which is sent with every call."""
        parameters = {**self.service.parameters, "account_id": account_id} if account_id else self.service.parameters
        return replace(self, access_token=access_token, service=replace(self.service, parameters=parameters))

    @property
    def route(self) -> str:
        """The base URL and the proxy, without credentials."""
        return f"{self.base_url} through the proxy {redact_url(self.proxy.reveal())}" if self.proxy else self.base_url

    def file_page(self, file_id: str) -> str:
        """Return the URL of a file's page, from extra ``file_page_url``; empty without that extra."""
        return self.file_page_url.replace("{file_id}", quote(file_id, safe=""))

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The access token, the keys, the parameters of every call, and the proxy's credentials."""
        parameters = [Secret(value) for value in self.service.parameters.values() if not is_word(value)]
        return (self.access_token, *self.keys, *parameters, *(url_secrets(self.proxy.reveal()) if self.proxy else ()))


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
    host, schema = str(connection.host or "").strip(), str(connection.schema or "").strip().strip("/")
    if not host:
        raise ConfigurationError("the connection has no host", advice=_HOST_ADVICE)
    is_scheme = schema.lower() in _SCHEMES
    if "://" not in host:
        by_type = str(connection.conn_type).lower()
        default = by_type if by_type in _SCHEMES else "https"
        host = f"{schema.lower() if is_scheme else default}://{host}"
    url = host
    try:
        parts = split_url(host)
        netloc = f"{parts.netloc}:{connection.port}" if connection.port and parts.port is None else parts.netloc
        url = urlunsplit((parts.scheme, netloc, parts.path, parts.query, parts.fragment)).rstrip("/")
        problem = _base_problem(parts, schema if is_scheme else "") or url_problem(url, allow_http=allow_http)
    except AmbiguousUrlError as error:
        problem = str(error)
    if problem:
        raise ConfigurationError(f"the connection's host {redact_url(url)} {problem}", advice=_HOST_ADVICE)
    prefix = "" if is_scheme else quote(schema)
    return f"{url}/{prefix}".rstrip("/").removesuffix(api_path).rstrip("/")


def _base_problem(parts: SplitResult, schema: str) -> str:
    if parts.query or parts.fragment:
        return "contains a query or a fragment"
    return "" if schema.lower() in ("", parts.scheme) else f"contradicts its schema '{schema}'"


def _access_token(value: Any) -> Secret:
    password = str(value or "")
    if not password:
        advice = "Set it to the service's access token; in a URI: cloudstore://:TOKEN@files.example.com."
        raise ConfigurationError("the connection has no password", advice=advice)
    if re.search("[\\s\x00-\x1f\x7f\ud800-\udfff]", password):
        problem = "contains a space, line break or control character, or is not valid Unicode"
        advice = "Set the password to the token alone."
        raise ConfigurationError(f"the access token in the connection's password {problem}", advice=advice)
    return Secret(password)


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ConfigurationError("must be true or false")
    return value


def _number(value: Any, lowest: float, highest: float) -> float:
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and lowest <= float(value) <= highest:
            return float(value)
    raise ConfigurationError(f"must be a number from {lowest:g} to {highest:g}")


def _whole_number(value: Any, lowest: float, highest: float) -> int:
    number = _number(value, lowest, highest)
    if number.is_integer():
        return int(number)
    raise ConfigurationError(f"must be a whole number from {lowest:g} to {highest:g}")


def _verify(value: Any) -> bool | str:
    is_path = isinstance(value, str) and value.lower() not in ("true", "false")
    return str(value) if is_path else _flag(value)


def _from_json(value: Any) -> Any:
    """Parse text as JSON, which is how the field of a form has it; return anything else unchanged."""
    with suppress(ValueError, RecursionError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def _protected(value: Any) -> frozenset[str]:
    """Return the protected ids. A value is an error if it may be meant to protect an id that it does not protect."""
    found = _from_json(value) if str(value).lstrip().startswith("[") else value
    is_text = isinstance(found, str)
    if is_text:
        found = found.split(",")
    is_list = isinstance(found, list) and all(type(folder_id) in (str, int) for folder_id in found)
    own = {str(folder_id).strip() for folder_id in found} if is_list else {""}
    if any(folder_id_problem(given) or "," in given or (is_text and " " in given) for given in own - _ROOT):
        advice = 'Write ["id1", "id2"]. To protect only the root, remove the extra.'
        raise ConfigurationError("must be a list of folder ids, each of which names one folder", advice=advice)
    return _ROOT | own


def validate_proxy(value: Any) -> Secret:
    """Return a proxy's URL; the default scheme is ``http``.

    :raises ConfigurationError: if no client can use the URL. The message does not repeat it, as it may contain credentials.
    """
    text = str(value).strip()
    url = text if "://" in text else f"http://{text}"
    try:
        parts = split_url(url)
    except AmbiguousUrlError as error:
        raise ConfigurationError(str(error), advice=PROXY_ADVICE) from None
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"has the scheme '{parts.scheme}', but must be http or https", advice=PROXY_ADVICE)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigurationError("contains more than a host and a port", advice=PROXY_ADVICE)
    return Secret(url)


def _conditions(value: Any) -> dict[str, Condition]:
    """Return one condition for all operations, or a condition for each operation."""
    given = _from_json(value) if str(value).lstrip().startswith("{") else value
    if not isinstance(given, dict):
        return {"": Condition.parse(given)}
    if unknown := given.keys() - {*OPERATION_KEYS}:
        raise ConfigurationError(f"must have only the keys {', '.join(OPERATION_KEYS)}, not {', '.join(map(repr, unknown))}")
    return {key: Condition.parse(text) for key, text in given.items()}


def _parameters(value: Any) -> dict[str, str]:
    value = _from_json(value)
    if not isinstance(value, dict) or not all(isinstance(text, (str, int)) and name for name, text in value.items()):
        raise ConfigurationError('must be a JSON object of texts, such as {"account_id": "158642"}')
    if "access_token" in value:
        raise ConfigurationError("must not have access_token: that is the connection's password")
    return {name: str(text) for name, text in value.items()}


def _api_path(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"/?([\w.~-]+(/[\w.~-]+)*)?/?", value, re.ASCII):
        raise ConfigurationError("must be a path, such as /api/v2")
    return f"/{value.strip('/')}".rstrip("/")


def _one_of(choices: Iterable[str], value: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(f"must be one of {', '.join(choices)}")
    return str(value)


def _pattern(value: Any) -> re.Pattern[str]:
    try:
        pattern = re.compile(value, re.IGNORECASE)
    except (re.error, TypeError, OverflowError, RecursionError):
        raise ConfigurationError("must be a regular expression, such as no such (folder|file)") from None
    if pattern.search(""):
        raise ConfigurationError("matches every message")
    return pattern


def _template(placeholder: str, example: str, value: Any) -> str:
    """Return a URL with a placeholder. Whether plain http is allowed is checked when the URL is used."""
    template = str(value).strip()
    problem = url_problem(template, allow_http=True)
    if template.count(placeholder) != 1:
        problem = f"must be a URL that contains {placeholder} once"
    if problem:
        raise ConfigurationError(problem, advice=f"Set it to a URL such as https://files.example.com/{example}.")
    return template


_PARSERS: dict[str, Callable[..., Any]] = {
    "number": _number,
    "integer": _whole_number,
    "boolean": _flag,
    "boolean or path": _verify,
    "proxy": validate_proxy,
    "folder ids": _protected,
    "service": partial(_one_of, SERVICES),
    "API path": _api_path,
    "token place": partial(_one_of, TOKEN_PLACES),
    "key kind": partial(_one_of, KEY_NAMES),
    "parameters": _parameters,
    "paths": Paths.parse,
    "conditions": _conditions,
    "pattern": _pattern,
    "download URL": partial(_template, "{token}", "download?download_token={token}"),
    "page URL": partial(_template, "{file_id}", "files/{file_id}"),
}
"""The parser of each kind of extra, which takes the value and the bounds of the extra."""


def _refuse_misspellings(extra: Mapping[str, Any]) -> None:
    """Reject an unknown extra that resembles a known extra: whatever it should protect or declare would be ignored."""
    for name in _unknown(extra):
        if close := get_close_matches(name.lower(), EXTRAS, 1, _SIMILAR):
            raise ConfigurationError(
                f"extra '{name}' of the connection is unknown, and resembles '{close[0]}'",
                advice="Correct its name, or rename it if it means something else.",
            )


def _unknown(extra: Mapping[str, Any]) -> list[str]:
    return sorted(extra.keys() - EXTRAS.keys())


def _service(extra: Mapping[str, Any]) -> Service:
    """Return the service that extra ``service`` names, with the values that other extras override."""
    row = SERVICES[_read("service", extra["service"]) if _is_set("service", extra) else EXTRAS["service"].default]
    declared = {name: _read(name, extra[name]) for name in extras_of(Service) if _is_set(name, extra)}
    return replace(row, needs_file_id="file_id_path" in declared, **declared)


def _is_set(name: str, extra: Mapping[str, Any]) -> bool:
    """Whether an extra is set; an absent, null or empty extra has its default."""
    return extra.get(name) not in (None, "")


def _read(name: str, value: Any) -> Any:
    known = EXTRAS[name]
    try:
        return _PARSERS[known.kind](value, *known.bounds)
    except ConfigurationError as error:
        raise replace(error, reason=f"extra '{name}' of the connection {error.reason}") from None
    except ValueError as problem:  # from the parser of a path or a condition
        raise ConfigurationError(f"extra '{name}' of the connection {problem}") from None


def warnings_about(conn_type: Any, extra: Mapping[str, Any], login: Any = None) -> tuple[str, ...]:
    """Return likely mistakes in a connection that works: another type, an unused login, and unknown extras."""
    found = [] if conn_type == CONN_TYPE else [f"has the type {conn_type!r}, not '{CONN_TYPE}'; its fields are read anyway"]
    if login:
        found.append("has a login, which is not used: extra 'authorize' is not set")
    return (*found, *(f"has the unknown extra {key!r}. Valid extras: {', '.join(sorted(EXTRAS))}" for key in _unknown(extra)))
