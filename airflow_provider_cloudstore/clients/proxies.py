"""Which proxy a request takes, for both clients: the connection's, or the environment's as ``requests`` reads it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from requests.utils import get_auth_from_url, get_environ_proxies, select_proxy

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import validate_proxy


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
        """The proxy at a URL that :func:`~airflow_provider_cloudstore.protocol.settings.validate_proxy` returned."""
        if url is None:
            return None
        parts = urlsplit(url.reveal())
        userinfo, _, address = parts.netloc.rpartition("@")
        pair = base64.b64encode(":".join(get_auth_from_url(url.reveal())).encode()).decode("ascii")
        return cls(f"{parts.scheme}://{address}", {"Proxy-Authorization": f"Basic {pair}"} if userinfo else {})


def environment_proxy(url: str) -> Secret | None:
    """The proxy that the environment defines for a URL (``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY`` and the like), or None.

    :raises ConfigurationError: if it is no proxy that both clients can use.
    """
    proxy = select_proxy(url, get_environ_proxies(url))
    try:
        return validate_proxy(proxy) if proxy else None
    except ConfigurationError as error:
        reason, advice = error.reason, error.advice
    raise ConfigurationError(f"the proxy that the environment defines {reason}", advice=advice)
