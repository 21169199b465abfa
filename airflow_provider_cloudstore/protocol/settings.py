"""What an Airflow connection says, checked once and kept as values."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from airflow_provider_cloudstore.protocol.errors import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url, url_secrets

API_PREFIX = "/cloud/api/v2"
DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_ATTEMPTS = 4
DEFAULT_PROTECTED_FOLDER_IDS = ("0", "/")
EXTRA_KEYS = frozenset({"timeout", "max_attempts", "verify", "proxy", "allow_http", "protected_folder_ids", "token_path"}) | {
    "file_id_path",
    "not_found_pattern",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's address, the token for it, and how to talk to it.

    :param base_url: scheme, host, port and path prefix, without a slash at the end.
    :param access_token: the access token.
    :param timeout: seconds that one request may take in all.
    :param max_attempts: how many requests one call may send.
    :param verify: whether TLS certificates are verified, or the path of a bundle to verify them with.
    :param proxy: the URL of a proxy; it may hold credentials.
    :param protected_folder_ids: ids that are never deleted.
    :param token_path: keys that lead to the download token in an answer.
    :param file_id_path: keys that lead to the id of an uploaded file in an answer.
    :param not_found_pattern: what the words of an error envelope match that means "not found".
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

    @classmethod
    def from_connection(
        cls, *, host: str | None, schema: str | None, port: int | None, password: str | None, extra: Mapping[str, Any]
    ) -> Self:
        """Read the fields of an Airflow connection.

        :param host: the base URL, with or without scheme, port and path prefix; ``https`` where no scheme is given.
        :param schema: the scheme, where the host names none.
        :param port: the port, where the host names none.
        :param password: the access token.
        :param extra: the optional settings; a key that is absent, null or empty keeps its default.
        :raises ConfigurationError: with what is wrong, and how it should be written.
        """
        given = {key: value for key, value in extra.items() if value not in (None, "")}
        return cls(
            base_url=_base_url(host, schema, port, allow_http=_flag(given, "allow_http", default=False)),
            access_token=_access_token(password),
            timeout=_number(given, "timeout", DEFAULT_TIMEOUT, minimum=0.001),
            max_attempts=int(_number(given, "max_attempts", DEFAULT_MAX_ATTEMPTS, minimum=1)),
            verify=_verify(given),
            proxy=_proxy(given),
            protected_folder_ids=_protected(given),
            token_path=_path(given, "token_path"),
            file_id_path=_path(given, "file_id_path"),
            not_found_pattern=_not_found_pattern(given),
        )

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


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and (parts.port or 0) >= 0 else None  # reading a bad port raises
    except ValueError:
        return None


def _base_url(host: str | None, schema: str | None, port: int | None, *, allow_http: bool) -> str:
    text = (host or "").strip()
    if not text:
        raise ConfigurationError(
            "the connection has no host: set it to the service's base URL, such as https://files.example.com"
        )
    if "://" not in text:
        text = f"{schema or 'https'}://{text}"
    parts = _split(text)
    if parts is None or re.search(r"\s", text):
        raise ConfigurationError("the connection's host is no URL: write it like https://files.example.com:8443/prefix")
    shown, hostname = redact_url(text), parts.hostname or ""
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the connection's host {shown} holds more than an address: the token belongs into the password, "
            "and a base URL has no query"
        )
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"the connection's host {shown} has the scheme '{parts.scheme}': use https")
    if parts.scheme == "http" and not (allow_http or is_loopback(hostname)):
        raise ConfigurationError(
            f"the connection's host {shown} is plain http, which shows the token to everybody on the way: use https, "
            'or set extra "allow_http": true if you really want that'
        )
    path = parts.path.rstrip("/")
    if path.endswith(API_PREFIX):
        raise ConfigurationError(f"the connection's host {shown} must end before {API_PREFIX}, which is added to it")
    netloc = parts.netloc if parts.port is not None or port is None else f"{parts.netloc.rstrip(':')}:{port}"
    return f"{parts.scheme}://{netloc}{path}"


def _access_token(password: str | None) -> Secret:
    if not password:
        raise ConfigurationError("the connection has no password: set it to the service's access token")
    if re.search(r"[\s\x00-\x1f\x7f]", password):
        raise ConfigurationError(
            "the access token in the connection's password has a space, line break or control character inside: "
            "copy it again, without what stands around it"
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
    except (TypeError, ValueError):
        number = float("nan")
    if not minimum <= number <= 86_400:
        raise ConfigurationError(f"extra '{key}' of the connection must be a number from {minimum:g} to 86400")
    return number


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
    try:
        usable = urlsplit(value).scheme in ("http", "https") and bool(urlsplit(value).hostname)
    except (ValueError, TypeError, AttributeError):
        usable = False
    if not usable:
        raise ConfigurationError("extra 'proxy' of the connection must be a URL such as http://proxy.example.com:3128")
    return Secret(value)


def _protected(extra: Mapping[str, Any]) -> frozenset[str]:
    value = extra.get("protected_folder_ids", DEFAULT_PROTECTED_FOLDER_IDS)
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, (str, int)) for item in value):
        raise ConfigurationError("extra 'protected_folder_ids' of the connection must be a list of folder ids")
    return frozenset(str(item).strip() for item in value)


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
