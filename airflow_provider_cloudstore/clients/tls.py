"""Decides which certificates are trusted: the same on workers (requests) and in the triggerer (aiohttp)."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import certifi

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Build the TLS context for a connection's ``verify``. It reads files, so never call it in an event loop.

    :param settings: the connection. The default bundle is that of ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``, else certifi's,
        as in ``requests``.
    :raises ConfigurationError: if the bundle cannot be read, or has no certificate.
    """
    if settings.verify is False:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    variables = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    sources = {"extra 'verify'": settings.verify}
    sources |= {f"the environment variable {name}": os.environ.get(name, "") for name in variables}
    sources |= {"certifi": certifi.where()}
    source, bundle = next((source, bundle) for source, bundle in sources.items() if isinstance(bundle, str) and bundle)
    folder = Path(bundle).is_dir()
    try:
        return ssl.create_default_context(cafile=None if folder else bundle, capath=bundle if folder else None)
    except OSError:  # includes ssl.SSLError
        pass
    problem = "must be a readable file with certificates in PEM format, on every worker and triggerer"
    reason = f"the CA bundle of {source} cannot be read: {bundle} {problem}"
    raise ConfigurationError(reason, operation="connection", subject=settings.conn_id)
