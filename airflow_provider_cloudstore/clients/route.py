"""How both clients reach the service: which proxy a request takes, and which certificates are trusted, as with ``requests``."""

from __future__ import annotations

import os
import ssl
from typing import Literal
from urllib.parse import urlsplit

import certifi
from requests.utils import get_environ_proxies, select_proxy

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.extras import parse_proxy
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.urls import is_loopback

MAX_IDLE = 1.0
"""Seconds after which neither client reuses a connection: the server or a load balancer may have dropped it silently."""


def proxy_for(settings: Settings, url: str) -> Secret | None:
    """Return the connection's proxy, or else that of the environment for a URL (``HTTPS_PROXY``, ``NO_PROXY`` etc.), or None.

    The environment's proxy is not used for a loopback address, whatever ``NO_PROXY`` says: it would look for the service on its
    own machine.

    :raises ConfigurationError: unless both clients can use the proxy.
    """
    if settings.proxy:
        return settings.proxy
    host = urlsplit(url).hostname or ""
    proxy = None if is_loopback(host) else select_proxy(url, get_environ_proxies(url))
    try:
        return parse_proxy(proxy) if proxy else None
    except ValueError as error:
        problem = f"the proxy that the environment defines {error}"
    raise ConfigurationError(
        problem,
        advice="Set extra 'proxy' of the connection to http://user:password@proxy.example.com:3128, with user and password "
        f"percent-encoded. To bypass the proxy, add {host} to NO_PROXY in the environment.",
    )


def ca_bundle(settings: Settings) -> str | Literal[False]:
    """Return the path of the trusted CA bundle, chosen as ``requests`` does; False if no certificate is to be verified.

    :raises ConfigurationError: if the bundle cannot be read, or has no certificate.
    """
    if settings.verify is False:
        return False
    named = settings.verify if isinstance(settings.verify, str) else ""
    bundle = named or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if not bundle:
        return certifi.where()
    try:
        ssl.create_default_context(cafile=bundle)
    except OSError:  # includes ssl.SSLError
        raise ConfigurationError(
            f"the CA bundle {bundle} cannot be read",
            operation="connection",
            subject=settings.conn_id,
            advice="It must be a readable file with certificates in PEM format, on every worker and triggerer. "
            "Extra 'verify' names it, or else the environment variable REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE.",
        ) from None
    return bundle
