"""The exchange of a connection's login and password for an access token, with services that have ``POST /authorize``."""

from __future__ import annotations

import re
from typing import ClassVar

from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.paths import Paths
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

_TOKEN, _ACCOUNT = Paths.parse("data.access_token|access_token"), Paths.parse("data.account_id|account_id")


class Authorize(Operation[Settings]):
    """Ask for an access token, which ends the account's earlier tokens.

    :param settings: settings with keys and without a token. The result is a copy with the token, and with the account's id if the
        service gives it.
    """

    key, name = "authorize", "authorize"
    method, path = "POST", "/authorize"
    may_be_repeated, subject_must_exist = True, False
    must_find = "access token"
    error_if_refused = ConfigurationError  # permanent, because further attempts may lock the account
    hints: ClassVar = {
        ConfigurationError: "Set the connection's login to the first key of the account, and the password to the second."
    }

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, others=dict(zip(("key1", "key2"), map(Secret.reveal, settings.keys), strict=True)))

    def find(self, reading: Reading) -> Settings | None:
        """Return the settings with the token and the account, if the response has a token."""
        token = next(_TOKEN.values_in(reading.data), None)
        account = next(_ACCOUNT.values_in(reading.data), "")
        if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
            return None
        return reading.settings.with_token(Secret(token), str(account))

    def secrets_of(self, result: Settings) -> tuple[Secret, ...]:
        """Return the token."""
        return (result.access_token,)
