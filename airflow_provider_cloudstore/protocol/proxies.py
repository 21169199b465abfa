"""Which proxy a request takes: one set of rules for the connection's own and for the environment's, and for both clients."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider_cloudstore.protocol.errors import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

_DEFAULT_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "such as http://user:password@proxy.example.com:3128, with user and password percent-encoded"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as a client uses it: the libraries get an address that holds no credentials, and so cannot print them.

    :param url: its scheme, host and port.
    :param headers: what it is sent beside a request: ``Proxy-Authorization``, or nothing.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, url: Secret | None) -> Proxy | None:
        """The proxy at a URL that :func:`validate_proxy` has let through.

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
    """A proxy's URL, with ``http`` for a scheme where it has none.

    :param value: what was given.
    :param where: where it was given, for the message.
    :raises ConfigurationError: if no client can use it; the message does not repeat it, as it may hold credentials.
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
            problem = problem or "has more than a host and a port in it"
    if problem:
        raise ConfigurationError(f"{where} {problem}: it is the URL of a proxy {_EXAMPLE}")
    return Secret(url)


def environment_proxy(base_url: str, environ: Mapping[str, str]) -> Secret | None:
    """The proxy that the environment names for a service, or None.

    ``HTTPS_PROXY`` or ``HTTP_PROXY``, by the service's scheme, else ``ALL_PROXY``, unless ``NO_PROXY`` names the service.
    As everywhere, the lower-case name wins, even where it is empty.

    :param base_url: the service's address.
    :param environ: the environment's variables.
    :raises ConfigurationError: if the variable does not hold the URL of a proxy that can be used.
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
    """The variable's name and value; that of the lower-case one where there is one."""
    name = name if name in environ else name.upper()
    return name, environ.get(name, "").strip()


def _excluded(host: str, port: int, no_proxy: str) -> bool:
    return any(entry == "*" or _matches(host, port, entry) for entry in no_proxy.lower().replace(",", " ").split())


def _matches(host: str, port: int, entry: str) -> bool:
    """Whether an entry of ``NO_PROXY`` names the host: itself or a domain above it, with or without a port, or a network."""
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
    """An entry without its port, if that is the service's; with another port it names something else."""
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*):(\d+)", entry)
    return found[1] if found and int(found[2]) == port else entry
