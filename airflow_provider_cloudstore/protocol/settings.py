"""Reads and validates an Airflow connection once, into values."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Self
from urllib.parse import urlsplit

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.identifiers import is_nothing
from airflow_provider_cloudstore.protocol.proxies import validate_proxy
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

API_PREFIX = "/cloud/api/v2"
CONN_TYPE = "cloudstore"
DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_ATTEMPTS = 4
DEFAULT_PROTECTED_FOLDER_IDS = ("0", "/")

_UNCLEAR = re.compile(r"[^\w./~%:@+=-]")  # in an id: a separator, a quote, a pattern, a template that was not rendered
_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")  # RFC 3986 section 3.3


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's address and token, and how to use it.

    :param base_url: scheme, host, port and path prefix, without a trailing slash.
    :param access_token: the access token.
    :param timeout: seconds that one request may take in total.
    :param max_attempts: how many requests one call may send.
    :param verify: whether TLS certificates are verified, or the path of a CA bundle to verify them with.
    :param proxy: the URL of a proxy; it may contain credentials.
    :param protected_folder_ids: ids that are never deleted, in addition to every spelling of the root.
    :param token_path: keys that lead to the download token in a response.
    :param file_id_path: keys that lead to the id of an uploaded file in a response.
    :param not_found_pattern: matches the message of an error envelope that means "not found".
    :param download_url: the URL to download from, with ``{token}`` for the token, if the service returns none.
    :param allow_http: whether plain http is allowed to other machines.
    :param proxy_is_inherited: whether the proxy is the environment's, which may define another one for another host.
    :param conn_id: the Airflow connection, for errors that show only when it is used.
    """

    base_url: str
    access_token: Secret
    timeout: float = DEFAULT_TIMEOUT
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    verify: bool | str = True
    proxy: Secret | None = None
    protected_folder_ids: frozenset[str] = frozenset(DEFAULT_PROTECTED_FOLDER_IDS)
    token_path: tuple[str, ...] = ()
    file_id_path: tuple[str, ...] = ()
    not_found_pattern: re.Pattern[str] | None = None
    download_url: str = ""
    allow_http: bool = False
    proxy_is_inherited: bool = False
    conn_id: str = ""

    @classmethod
    def from_connection(
        cls, *, host: str | None, schema: str | None, port: int | None, password: str | None, extra: Mapping[str, Any]
    ) -> Self:
        """Read the fields of an Airflow connection.

        :param host: the base URL, with or without scheme, port and path prefix; the default scheme is ``https``.
        :param schema: the scheme, if the host has none.
        :param port: the port, if the host has none; 0, which a form may send for an empty field, counts as none.
        :param password: the access token.
        :param extra: the optional settings; an absent, null or empty key keeps its default, but an empty
            ``protected_folder_ids`` is an error.
        :raises ConfigurationError: if a field is invalid, or an unknown extra resembles ``protected_folder_ids``.
        """
        for name in _unknown(extra):
            if _resembles_guard(name, extra[name]):
                raise ConfigurationError(
                    f"extra '{name}' of the connection is unknown, and resembles '{_GUARD}'",
                    advice=f"Write the folders to protect as '{_GUARD}', at the top level of extra; rename anything else.",
                )
        given = {key: value for key, value in extra.items() if value not in (None, "")}
        allow_http = _flag(given, "allow_http", default=False)
        return cls(
            base_url=_base_url(host, schema, port, allow_http=allow_http),
            access_token=_access_token(password),
            timeout=_number(given, "timeout", DEFAULT_TIMEOUT, minimum=0.001),
            max_attempts=_whole_number(given, "max_attempts", DEFAULT_MAX_ATTEMPTS),
            verify=_verify(given),
            proxy=validate_proxy(given["proxy"], "extra 'proxy' of the connection") if "proxy" in given else None,
            protected_folder_ids=_protected(extra.get(_GUARD)),
            token_path=_path(given, "token_path"),
            file_id_path=_path(given, "file_id_path"),
            not_found_pattern=_not_found_pattern(given),
            download_url=_download_url(given, allow_http=allow_http),
            allow_http=allow_http,
        )

    @property
    def route(self) -> str:
        """The base URL and the proxy, without credentials."""
        return f"{self.base_url} through the proxy {redact_url(self.proxy.reveal())}" if self.proxy else self.base_url

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The access token, and the credentials in the proxy's URL."""
        return (self.access_token, *(url_secrets(self.proxy.reveal()) if self.proxy else ()))


EXTRA_KEYS = frozenset(one.name for one in fields(Settings)) - {"base_url", "access_token", "proxy_is_inherited", "conn_id"}


_GUARD = "protected_folder_ids"


def _bare(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _resembles_guard(name: str, value: Any) -> bool:
    """Whether an unknown extra, or one inside it, may be meant to protect folders: it would protect none."""
    bare = _bare(name)
    is_list = isinstance(value, list) or (isinstance(value, str) and ("," in value or value.lstrip().startswith("[")))
    return (
        "protect" in bare
        or (is_list and ("delet" in bare or "folderid" in bare))
        or bool(get_close_matches(bare, [_bare(_GUARD)], 1, 0.8))
        or (isinstance(value, dict) and any(_resembles_guard(str(inner), one) for inner, one in value.items()))
    )


def _unknown(extra: Mapping[str, Any]) -> list[str]:
    """The unknown extras. Airflow 2.11's Test button sends each field a second time, with a prefix."""
    copies = {f"extra__{CONN_TYPE}__{key}" for key in EXTRA_KEYS if extra.get(key) == extra.get(f"extra__{CONN_TYPE}__{key}")}
    return sorted(extra.keys() - EXTRA_KEYS - copies)


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address) is this machine (RFC 6761 section 6.3, RFC 1122 section 3.2.1.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_problem(url: str, *, allow_http: bool = False, allow_loopback: bool = True) -> str:
    """Why nothing must be downloaded from a URL, or an empty string; it repeats nothing of the URL but the scheme.

    :param allow_http: whether plain http is allowed to other machines.
    :param allow_loopback: whether it is allowed to this machine.
    """
    try:
        parts = split_url(url)
    except AmbiguousUrlError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return f"has the scheme '{parts.scheme}'"
    if parts.username is not None:
        return "contains a user name or password"
    allowed = parts.scheme == "https" or allow_http or (allow_loopback and is_loopback(parts.hostname or ""))
    return "" if allowed else "is plain http, which exposes the token in transit"


def read_extra(text: Any) -> dict[str, Any]:
    """The extra of an Airflow connection.

    :param text: the field as Airflow stores it; Airflow itself treats unreadable JSON as empty, and returns lists.
    :raises ConfigurationError: if it is not a JSON object; the message does not repeat it.
    """
    if not text:
        return {}
    try:
        extra = json.loads(text)
    except (ValueError, TypeError, RecursionError):  # not JSON, a number of 4,301 digits, not a string, or nested too deeply
        extra = None
    if not isinstance(extra, dict):
        raise ConfigurationError('the connection\'s extra must be a JSON object, such as {"timeout": 60}')
    return extra


def warnings_about(conn_type: Any, extra: Mapping[str, Any]) -> list[str]:
    """Likely mistakes in a connection that works: another type, and unknown extras."""
    found = [] if conn_type == CONN_TYPE else [f"has the type {conn_type!r}, not '{CONN_TYPE}'; its fields are read anyway"]
    return found + [f"has the unknown extra {key!r}. Valid extras: {', '.join(sorted(EXTRA_KEYS))}" for key in _unknown(extra)]


def _text(value: Any, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"the connection's {name} must be a string, not {type(value).__name__}")
    return value or ""


def _port(port: Any) -> str:
    if port in (None, "", 0):
        return ""
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ConfigurationError("the connection's port must be a number from 1 to 65535, or empty")
    return f":{port}"


def _base_url(host: Any, schema: Any, port: Any, *, allow_http: bool) -> str:
    text = _text(host, "host").strip()
    if not text:
        raise ConfigurationError(
            "the connection has no host", advice="Set it to the service's base URL, such as https://files.example.com."
        )
    if "://" not in text:
        text = f"{_text(schema, 'schema').strip() or 'https'}://{text}"
    try:
        parts = split_url(text)
    except AmbiguousUrlError as error:
        example = "Set it to a URL such as https://files.example.com:8443/prefix."
        raise ConfigurationError(f"the connection's host {error}", advice=example) from None
    redacted = redact_url(text)
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the connection's host {redacted} contains more than an address",
            advice="Put the token into the password, and remove user, query and fragment.",
        )
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"the connection's host {redacted} has the scheme '{parts.scheme}'", advice="Use https.")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname or "")):
        raise ConfigurationError(
            f"the connection's host {redacted} uses plain http, which exposes the token on the network",
            advice='Use https, or set extra "allow_http": true to accept that.',
        )
    path = parts.path.rstrip("/")
    if not _PATH.fullmatch(path):
        raise ConfigurationError(
            f"the path in the connection's host {redacted} contains a character that is not valid in a URL",
            advice="Percent-encode it.",
        )
    if path.endswith(API_PREFIX):
        raise ConfigurationError(f"the connection's host {redacted} must end before {API_PREFIX}, which is appended")
    default_port = _port(port)
    return f"{parts.scheme}://{parts.netloc}{default_port if parts.port is None else ''}{path}"


def _access_token(value: Any) -> Secret:
    password = _text(value, "password")
    if not password:
        raise ConfigurationError("the connection has no password", advice="Set it to the service's access token.")
    if re.search("[\\s\x00-\x1f\x7f\ud800-\udfff]", password):
        raise ConfigurationError(
            "the access token in the connection's password contains a space, line break or control character, "
            "or is not valid Unicode",
            advice="Set the password to the token alone.",
        )
    return Secret(password)


def _flag(extra: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = extra.get(key, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ConfigurationError(f"extra '{key}' of the connection must be true or false")
    return value


def _number(extra: Mapping[str, Any], key: str, default: float, *, minimum: float) -> float:
    value = extra.get(key, default)
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not minimum <= number <= 86_400:
        raise ConfigurationError(f"extra '{key}' of the connection must be a number from {minimum:g} to 86400")
    return number


def _whole_number(extra: Mapping[str, Any], key: str, default: int) -> int:
    number = _number(extra, key, default, minimum=1)
    if number != int(number):
        raise ConfigurationError(f"extra '{key}' of the connection must be a whole number from 1 to 86400")
    return int(number)


def _verify(extra: Mapping[str, Any]) -> bool | str:
    value = extra.get("verify", True)
    is_path = isinstance(value, str) and value.lower() not in ("true", "false")
    return str(value) if is_path else _flag(extra, "verify", default=True)


def _protected(value: Any) -> frozenset[str]:
    """The protected ids. A value that may be meant to protect what it does not is an error; null is a form's empty field."""
    ids = [] if value is None else value
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):  # not JSON, so it has brackets
            ids = json.loads(value)
    if isinstance(ids, str):
        ids = ids.split(",")
    items = ids if isinstance(ids, list) and all(type(item) in (str, int) for item in ids) else [""]
    own = [str(item).strip() for item in items]
    if any(is_nothing(item) or _UNCLEAR.search(item) for item in own):
        raise ConfigurationError(
            f"extra '{_GUARD}' of the connection must be a list of folder ids, each of which names one folder",
            advice=(
                'Write ["id1", "id2"]; percent-encode other characters than letters, digits and -._~/:@+= in an id. To protect '
                "only the root, remove the extra."
            ),
        )
    return frozenset({*DEFAULT_PROTECTED_FOLDER_IDS, *own})


def _path(extra: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = extra.get(key, "")
    if not isinstance(value, str) or (value and not all(value.split("."))):
        raise ConfigurationError(f"extra '{key}' of the connection must be keys joined by dots, such as data.link.key")
    return tuple(value.split(".")) if value else ()


def _not_found_pattern(extra: Mapping[str, Any]) -> re.Pattern[str] | None:
    value = extra.get("not_found_pattern")
    if value is None:
        return None
    try:
        pattern = re.compile(value, re.IGNORECASE)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        reason = f": {error}" if isinstance(error, re.error) else ""
        raise ConfigurationError(
            f"extra 'not_found_pattern' of the connection must be a regular expression, such as no such (folder|file){reason}"
        ) from None
    if pattern.search(""):
        raise ConfigurationError(
            "extra 'not_found_pattern' of the connection matches every message: every error would mean \"not found\""
        )
    return pattern


def _download_url(extra: Mapping[str, Any], *, allow_http: bool) -> str:
    value = extra.get("download_url", "")
    if not value:
        return ""
    example = "such as https://files.example.com/download?download_token={token}"
    if not isinstance(value, str) or value.count("{token}") != 1:
        raise ConfigurationError(f"extra 'download_url' of the connection must be a URL that contains {{token}} once, {example}")
    problem = url_problem(value.strip(), allow_http=allow_http)
    if problem or urlsplit(value).fragment:
        problem = problem or "contains a fragment"
        raise ConfigurationError(f"extra 'download_url' of the connection {problem}", advice=f"Set it to a URL {example}.")
    return value.strip()
