"""Decides which certificates are trusted: the same on workers (requests) and in the triggerer (aiohttp)."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import certifi

from airflow_provider_cloudstore.protocol.errors import ConfigurationError


def tls_context(verify: bool | str) -> ssl.SSLContext:
    """Build the TLS context for a connection's ``verify``. It reads files, so never call it in an event loop.

    :param verify: whether to verify certificates, or the path of a CA bundle. The default bundle is that of
        ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``, else certifi's, as in ``requests``.
    :raises ConfigurationError: if the bundle cannot be read.
    """
    if verify is False:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    chosen = verify if isinstance(verify, str) else None
    bundle = chosen or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()
    folder = Path(bundle).is_dir()
    try:
        return ssl.create_default_context(cafile=None if folder else bundle, capath=bundle if folder else None)
    except OSError:  # includes ssl.SSLError
        pass
    raise ConfigurationError("the CA bundle of extra 'verify', or of REQUESTS_CA_BUNDLE, cannot be read")
