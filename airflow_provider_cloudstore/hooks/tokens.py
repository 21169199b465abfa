"""The tokens that ``POST /authorize`` gave: one a connection, shared by all hooks of this process, and kept in memory only.

Each token ends the earlier ones of its account. So a token is asked for when the first request needs it, and anew when the
service refuses the one that is kept.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.hooks.time_budget import time_budget
from airflow_provider_cloudstore.protocol.other_calls import Authorization, Authorize
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

_REFUSED_SECONDS = 300.0  # for which keys are not tried again after the service has refused them: the account may lock itself


@dataclass(slots=True)
class _Account:
    """What is known of the keys of one account; one thread asks for its token, and the others wait for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: Authorization | None = None
    refusal: tuple[float, ConfigurationError] | None = None


_accounts: dict[tuple[object, ...], _Account] = {}


def with_token(settings: Settings, refused: Secret | None = None) -> Settings:
    """The settings with a token, where the connection has keys for one. It blocks.

    :param refused: the token that the service refused; another one is returned.
    :raises ConfigurationError: if the service refuses the keys, now or a few minutes ago.
    :raises CloudStoreError: if the service cannot be asked.
    """
    if not settings.keys:
        return settings
    key = (settings.base_url, settings.service.api_path, settings.service.authorize_with, settings.keys)
    account = _accounts.setdefault(key, _Account())
    with account.lock:
        if account.refusal and time.monotonic() < account.refusal[0] + _REFUSED_SECONDS:
            raise replace(account.refusal[1], subject=settings.conn_id)
        if account.kept is None or account.kept.access_token == refused:
            from airflow_provider_cloudstore.clients.blocking import BlockingClient

            try:
                with BlockingClient(settings, lambda _: settings) as client:
                    account.kept = client.perform(Authorize(settings), budget=time_budget())
            except ConfigurationError as refusal:
                account.refusal = time.monotonic(), refusal
                raise
        return settings.authorized(*account.kept)
