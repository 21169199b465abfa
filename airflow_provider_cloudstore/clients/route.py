"""How both clients reach the service: which proxy a request takes, and which certificates are trusted, as with ``requests``."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import certifi
from requests.utils import get_environ_proxies, select_proxy

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings, validate_proxy
from airflow_provider_cloudstore.protocol.urls import is_loopback

MAX_IDLE = 1.0
"""Seconds after which neither client reuses a connection: the server or a balancer may have dropped it without a word."""


def environment_proxy(url: str) -> Secret | None:
    """The proxy that the environment defines for a URL (``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY`` and the like), or None.

    This machine needs none, whatever ``NO_PROXY`` says: a proxy would look for the service on its own.

    :raises ConfigurationError: if it is no proxy that both clients can use.
    """
    host = urlsplit(url).hostname or ""
    proxy = None if is_loopback(host) else select_proxy(url, get_environ_proxies(url))
    try:
        return validate_proxy(proxy) if proxy else None
    except ConfigurationError as error:
        reason, advice = error.reason, f"{error.advice} To use none, add {host} to NO_PROXY in the environment."
    raise ConfigurationError(f"the proxy that the environment defines {reason}", advice=advice)


def proxy_url(proxy: Secret) -> str:
    """The URL of a proxy for a library. Both encode its user and password in Latin-1; these come out in UTF-8."""
    parts = urlsplit(proxy.reveal())
    userinfo, at, address = parts.netloc.rpartition("@")
    if not at:
        return f"{parts.scheme}://{address}"
    user, _, password = quote(userinfo, safe="%:").partition(":")
    user, password = (quote(unquote(part, "latin-1"), safe="") for part in (user, password))
    return f"{parts.scheme}://{user}:{password}@{address}"


def tls_context(settings: Settings) -> ssl.SSLContext:
    """The TLS context for a connection's ``verify``. It reads files, so never call it in an event loop.

    :raises ConfigurationError: if the bundle cannot be read, or has no certificate.
    """
    if settings.verify is False:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    given = settings.verify if isinstance(settings.verify, str) else ""
    bundle = given or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()
    is_folder = Path(bundle).is_dir()
    try:
        return ssl.create_default_context(cafile=None if is_folder else bundle, capath=bundle if is_folder else None)
    except OSError:  # includes ssl.SSLError
        pass
    raise ConfigurationError(
        f"the CA bundle {bundle} cannot be read",
        operation="connection",
        subject=settings.conn_id,
        advice="It must be a readable file with certificates in PEM format, on every worker and triggerer. "
        "Extra 'verify' names it, or else the environment variable REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE.",
    )
