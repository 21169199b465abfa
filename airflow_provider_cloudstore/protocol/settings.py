"""What an Airflow connection says, checked once and kept as values."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_provider_cloudstore.protocol.errors import ConfigurationError
from airflow_provider_cloudstore.protocol.proxies import validate_proxy
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, url_secrets
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

API_PREFIX = "/cloud/api/v2"
CONN_TYPE = "cloudstore"
DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_ATTEMPTS = 4
DEFAULT_PROTECTED_FOLDER_IDS = ("0", "/")
EXTRA_KEYS = frozenset(
    {
        "timeout",
        "max_attempts",
        "verify",
        "proxy",
        "allow_http",
        "protected_folder_ids",
        "token_path",
        "file_id_path",
        "not_found_pattern",
        "download_url",
    }
)

_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")  # RFC 3986 section 3.3


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's address, the token for it, and how to talk to it.

    :param base_url: scheme, host, port and path prefix, without a slash at the end.
    :param access_token: the access token.
    :param timeout: seconds that one request may take in all.
    :param max_attempts: how many requests one call may send.
    :param verify: whether TLS certificates are verified, or the path of a bundle to verify them with.
    :param proxy: the URL of a proxy; it may hold credentials.
    :param protected_folder_ids: ids that are never deleted, in addition to every spelling of the root.
    :param token_path: keys that lead to the download token in an answer.
    :param file_id_path: keys that lead to the id of an uploaded file in an answer.
    :param not_found_pattern: what the words of an error envelope match that means "not found".
    :param download_url: the URL to download from, with ``{token}`` in the token's place, for a service that tells none.
    :param allow_http: whether plain http may lead to other machines than this one.
    :param proxy_is_inherited: whether the proxy is the environment's, which may name another one for another host.
    """

    base_url: str
    access_token: Secret
    timeout: float = DEFAULT_TIMEOUT
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    verify: bool | str = True
    proxy: Secret | None = None
    protected_folder_ids: frozenset[str] = frozenset(DEFAULT_PROTECTED_FOLDER_IDS)
    token_path: tuple[str, ...] = field(default=())
    file_id_path: tuple[str, ...] = field(default=())
    not_found_pattern: re.Pattern[str] | None = None
    download_url: str = ""
    allow_http: bool = False
    proxy_is_inherited: bool = False

    @classmethod
    def from_connection(
        cls, *, host: str | None, schema: str | None, port: int | None, password: str | None, extra: Mapping[str, Any]
    ) -> Self:
        """Read the fields of an Airflow connection.

        :param host: the base URL, with or without scheme, port and path prefix; ``https`` where no scheme is given.
        :param schema: the scheme, where the host names none.
        :param port: the port, where the host names none; 0, which a form may send for an empty field, is none.
        :param password: the access token.
        :param extra: the optional settings; a key that is absent, null or empty keeps its default.
        :raises ConfigurationError: with what is wrong, and how it should be written.
        """
        given = {key: value for key, value in extra.items() if value not in (None, "")}
        allow_http = _flag(given, "allow_http", default=False)
        return cls(
            base_url=_base_url(host, schema, port, allow_http=allow_http),
            access_token=_access_token(password),
            timeout=_number(given, "timeout", DEFAULT_TIMEOUT, minimum=0.001),
            max_attempts=_whole_number(given, "max_attempts", DEFAULT_MAX_ATTEMPTS),
            verify=_verify(given),
            proxy=_proxy(given),
            protected_folder_ids=_protected(given),
            token_path=_path(given, "token_path"),
            file_id_path=_path(given, "file_id_path"),
            not_found_pattern=_not_found_pattern(given),
            download_url=_download_url(given, allow_http=allow_http),
            allow_http=allow_http,
        )

    @property
    def route(self) -> str:
        """Where requests go, and through which proxy; free of credentials."""
        return f"{self.base_url} through the proxy {redact_url(self.proxy.reveal())}" if self.proxy else self.base_url

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What of it must not be printed: the token, and the credentials in the proxy's URL."""
        return (self.access_token, *(url_secrets(self.proxy.reveal()) if self.proxy else ()))


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address) is this machine itself (RFC 6761 section 6.3, RFC 1122 section 3.2.1.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_extra(text: Any) -> dict[str, Any]:
    """The extra of an Airflow connection.

    :param text: the field as Airflow stores it; Airflow itself takes what it cannot read for empty, and hands lists on.
    :raises ConfigurationError: if it is no JSON object; the message does not repeat it.
    """
    if not text:
        return {}
    try:
        extra = json.loads(text)
    except (ValueError, TypeError, RecursionError):  # no JSON, a number of 4,301 digits, not even a text, or too deep
        extra = None
    if not isinstance(extra, dict):
        raise ConfigurationError('the connection\'s extra must be a JSON object, such as {"timeout": 60}')
    return extra


def warnings_about(conn_type: Any, extra: Mapping[str, Any]) -> list[str]:
    """What in a connection works and is still likely a mistake: another type, and extras that mean nothing.

    :param conn_type: its type.
    :param extra: its extra, parsed.
    """
    found = (
        []
        if conn_type == CONN_TYPE
        else [f"is of the type {conn_type!r} and not '{CONN_TYPE}'; its fields are read all the same"]
    )
    for key in sorted(extra.keys() - EXTRA_KEYS):
        import difflib  # for a mistake only

        likely = difflib.get_close_matches(key.lower(), EXTRA_KEYS, n=1)
        hint = f"did you mean '{likely[0]}'? " if likely else ""
        found.append(f"has the extra {key!r}, which means nothing here: {hint}Valid are {', '.join(sorted(EXTRA_KEYS))}")
    return found


def _text(value: Any, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"the connection's {name} must be a text, not a {type(value).__name__}")
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
            "the connection has no host: set it to the service's base URL, such as https://files.example.com"
        )
    if "://" not in text:
        text = f"{_text(schema, 'schema').strip() or 'https'}://{text}"
    try:
        parts, problem = split_url(text), ""
    except AmbiguousUrlError as error:
        parts, problem = None, str(error)
    if parts is None:
        raise ConfigurationError(f"the connection's host {problem}: write it like https://files.example.com:8443/prefix")
    shown = redact_url(text)
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the connection's host {shown} holds more than an address: the token belongs into the password, "
            "and a base URL has no query"
        )
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"the connection's host {shown} has the scheme '{parts.scheme}': use https")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname or "")):
        raise ConfigurationError(
            f"the connection's host {shown} is plain http, which shows the token to everybody on the way: use https, "
            'or set extra "allow_http": true if you really want that'
        )
    path = parts.path.rstrip("/")
    if not _PATH.fullmatch(path):
        raise ConfigurationError(
            f"the path in the connection's host {shown} holds a character that no URL has: write it percent-encoded"
        )
    if path.endswith(API_PREFIX):
        raise ConfigurationError(f"the connection's host {shown} must end before {API_PREFIX}, which is added to it")
    default_port = _port(port)
    return f"{parts.scheme}://{parts.netloc}{default_port if parts.port is None else ''}{path}"


def _access_token(value: Any) -> Secret:
    password = _text(value, "password")
    if not password:
        raise ConfigurationError("the connection has no password: set it to the service's access token")
    if re.search("[\\s\x00-\x1f\x7f\ud800-\udfff]", password):
        raise ConfigurationError(
            "the access token in the connection's password has a space, line break or control character inside, "
            "or is no valid Unicode: copy it again, without what stands around it"
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
    if isinstance(value, str) and value.lower() not in ("true", "false"):
        if not os.path.exists(value):
            raise ConfigurationError(
                "extra 'verify' of the connection names a CA bundle that is not on this machine: "
                "use true, false, or the path of a file or folder that is there"
            )
        return value
    return _flag(extra, "verify", default=True)


def _proxy(extra: Mapping[str, Any]) -> Secret | None:
    value = extra.get("proxy")
    if value is None:
        return None
    return validate_proxy(value, "extra 'proxy' of the connection")


def _protected(extra: Mapping[str, Any]) -> frozenset[str]:
    value = extra.get("protected_folder_ids", ())
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(type(item) in (str, int) for item in value):
        raise ConfigurationError("extra 'protected_folder_ids' of the connection must be a list of folder ids")
    own = (str(item).strip() for item in value)
    return frozenset({*DEFAULT_PROTECTED_FOLDER_IDS, *(item for item in own if item)})


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
            "extra 'not_found_pattern' of the connection matches every text, so that every error would mean \"not found\""
        )
    return pattern


def _download_url(extra: Mapping[str, Any], *, allow_http: bool) -> str:
    value = extra.get("download_url", "")
    if not value:
        return ""
    example = "write it like https://files.example.com/download?download_token={token}"
    if not isinstance(value, str) or value.count("{token}") != 1:
        raise ConfigurationError(f"extra 'download_url' of the connection must be a URL with one {{token}} in it: {example}")
    try:
        parts, problem = split_url(value.strip()), ""
    except AmbiguousUrlError as error:
        raise ConfigurationError(f"extra 'download_url' of the connection {error}: {example}") from None
    if parts.username is not None or parts.fragment:
        problem = "holds a user, a password or a fragment"
    elif parts.scheme not in ("http", "https"):
        problem = f"has the scheme '{parts.scheme}'"
    elif parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname or "")):
        problem = "is plain http, which shows the token to everybody on the way"
    if problem:
        raise ConfigurationError(f"extra 'download_url' of the connection {problem}: {example}")
    return value.strip()
