"""Which certificates are trusted, alike for both clients: what one accepts on a worker, the other accepts in the triggerer."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import certifi

from airflow_provider_cloudstore.protocol.errors import ConfigurationError


def tls_context(verify: bool | str) -> ssl.SSLContext:
    """A TLS context for a connection's ``verify``. It reads files: not for an event loop's own thread.

    :param verify: whether to verify certificates, or the path of the bundle to verify them with. Without a path it is that of
        ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``, else certifi's, as with ``requests``.
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
    except OSError:  # ssl.SSLError is one
        pass
    raise ConfigurationError("the CA bundle of extra 'verify', or of REQUESTS_CA_BUNDLE, cannot be read")
