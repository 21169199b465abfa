"""Chooses the proxy of a request: one set of rules for the connection's and the environment's, and for both clients."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

_DEFAULT_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "such as http://user:password@proxy.example.com:3128, with user and password percent-encoded"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as a client uses it: the libraries get an address without credentials, so they cannot print them.

    :param url: its scheme, host and port.
    :param headers: what it is sent in addition to a request: ``Proxy-Authorization``, or nothing.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, url: Secret | None) -> Proxy | None:
        """The proxy at a URL that :func:`validate_proxy` returned.

        :param url: the URL; user and password in it are percent-encoded (RFC 3986 section 3.2.1).
        """
        if url is None:
            return None
        parts = urlsplit(url.reveal())
        userinfo, _, address = parts.netloc.rpartition("@")
        user, _, password = userinfo.partition(":")
        pair = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")
        return cls(f"{parts.scheme}://{address}", {"Proxy-Authorization": f"Basic {pair}"} if userinfo else {})


def validate_proxy(value: Any, where: str) -> Secret:
    """A proxy's URL; the default scheme is ``http``.

    :param value: the URL.
    :param where: its origin, for the message.
    :raises ConfigurationError: if no client can use it; the message does not repeat it, as it may contain credentials.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{where} must be a URL {_EXAMPLE}")
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    try:
        parts = split_url(url)
    except AmbiguousUrlError as error:
        problem = str(error)
    else:
        problem = "" if parts.scheme in _DEFAULT_PORTS else f"has the scheme '{parts.scheme}', but must be http or https"
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            problem = problem or "contains more than a host and a port"
    if problem:
        raise ConfigurationError(f"{where} {problem}", advice=f"Set it to the URL of a proxy {_EXAMPLE}.")
    return Secret(url)


def environment_proxy(base_url: str, environ: Mapping[str, str]) -> Secret | None:
    """The proxy that the environment defines for a service, or None.

    ``HTTPS_PROXY`` or ``HTTP_PROXY``, by the service's scheme, else ``ALL_PROXY``, unless ``NO_PROXY`` names the service.
    As is usual, the lower-case name takes precedence, even if it is empty.

    :param base_url: the service's address.
    :param environ: the environment's variables.
    :raises ConfigurationError: if the variable is not the URL of a usable proxy.
    """
    parts = urlsplit(base_url)
    if _excluded(parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme], _variable(environ, "no_proxy")[1]):
        return None
    for wanted in (f"{parts.scheme}_proxy", "all_proxy"):
        name, value = _variable(environ, wanted)
        if value:
            return validate_proxy(value, f"the environment's {name}")
    return None


def _variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable's name and value; the lower-case one takes precedence."""
    name = name if name in environ else name.upper()
    return name, environ.get(name, "").strip()


def _excluded(host: str, port: int, no_proxy: str) -> bool:
    return any(entry == "*" or _matches(host, port, entry) for entry in no_proxy.lower().replace(",", " ").split())


def _matches(host: str, port: int, entry: str) -> bool:
    """Whether an entry of ``NO_PROXY`` matches the host: itself, a parent domain or a network, with or without a port."""
    bare = _without_port(port, entry)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name
        name = re.sub(r"^\*?\.", "", bare)
        return bool(name) and (host == name or host.endswith(f".{name}"))
    try:
        return address in ipaddress.ip_network(bare.strip("[]"), strict=False)
    except ValueError:  # the entry is a name
        return False


def _without_port(port: int, entry: str) -> str:
    """An entry without its port, if that is the service's; with another port it does not match."""
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*):(\d+)", entry)
    return found[1] if found and int(found[2]) == port else entry
