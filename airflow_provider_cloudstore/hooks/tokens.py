"""Keeps the token that ``POST /authorize`` returned for each account, in memory only, for all hooks of this process.

A new token ends the account's earlier tokens. So a token is requested once, and again when the service refuses it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from airflow_provider_cloudstore.exceptions import AuthenticationError, ConfigurationError
from airflow_provider_cloudstore.hooks.time_budget import time_budget
from airflow_provider_cloudstore.protocol.other_calls import Authorize
from airflow_provider_cloudstore.protocol.secrets import NO_TOKEN, Secret
from airflow_provider_cloudstore.protocol.settings import Settings

_REFUSED_SECONDS = 300.0  # keys that the service refused are not tried again for this long: it may lock the account


@dataclass(slots=True)
class _Account:
    """The token of one account, or the refusal of its keys. One thread requests the token while the others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: tuple[Secret, str] | None = None
    refusal: tuple[float, ConfigurationError] | None = None


_accounts: dict[tuple[object, ...], _Account] = {}


def with_token(settings: Settings, refused: Secret = NO_TOKEN) -> Settings:
    """Return the settings with a token if the connection has keys; otherwise, return them unchanged. This function blocks.

    :param refused: a token that the service refused; it is replaced.
    :raises ConfigurationError: if the service refuses the keys, or refused them less than five minutes ago.
    :raises CloudStoreError: if the request for a token fails.
    """
    if not settings.keys:
        return settings
    key = (settings.base_url, settings.service.api_path, settings.service.authorize_with, settings.keys)
    account = _accounts.setdefault(key, _Account())
    with account.lock:
        if account.refusal and time.monotonic() < account.refusal[0] + _REFUSED_SECONDS:
            raise replace(account.refusal[1], subject=settings.conn_id)
        if account.kept is None or account.kept[0] == refused:
            from airflow_provider_cloudstore.clients.blocking import BlockingClient

            try:
                with BlockingClient(settings, lambda _: settings) as client:
                    account.kept = client.perform(Authorize(settings), budget=time_budget())
            except AuthenticationError as error:
                refusal = ConfigurationError(
                    f"the service gave no access token for its login and password: {error.reason}",
                    operation="connection",
                    subject=settings.conn_id,
                    advice="Check both, and whether extra 'authorize_with' must be keys or account. This process does not try "
                    "them again for a few minutes, because an account may lock itself.",
                )
                account.refusal = time.monotonic(), refusal
                raise refusal from None
        return settings.authorized(*account.kept)
