"""Builds the ``requests.Session`` over which calls and downloads are sent."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests

from airflow_provider_cloudstore.clients.route import ca_bundle, environment_proxy
from airflow_provider_cloudstore.protocol.settings import Settings

_is_sending = ContextVar("_is_sending", default=False)


def new_session(settings: Settings) -> requests.Session:
    """A session that follows no redirect, keeps no cookie, and reads nothing from the environment but the proxy.

    The connection's certificates and proxy apply to every request that names no others.

    :raises ConfigurationError: if the certificates cannot be read.
    """
    for name in ("urllib3.connection", "urllib3.connectionpool"):
        logging.getLogger(name).addFilter(_is_of_others)
    session = _Session(settings)
    session.trust_env = False
    session.verify = ca_bundle(settings)
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def _is_of_others(_: logging.LogRecord) -> bool:
    """Drop what urllib3 logs of our requests: it logs their paths and queries, and these hold tokens."""
    return not _is_sending.get()


class _Session(requests.Session):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request through the proxy for its URL, unless it names another one."""
        settings = self._settings
        proxy = environment_proxy(str(request.url)) if settings.proxy_is_inherited else settings.proxy
        if proxy and not kwargs.get("proxies"):
            kwargs["proxies"] = {"all": proxy.reveal()}
        token = _is_sending.set(True)
        try:
            return super().send(request, **kwargs)
        finally:
            _is_sending.reset(token)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: otherwise requests would read the whole body of a redirect, even if it is not to follow it."""
