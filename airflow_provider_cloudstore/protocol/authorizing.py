"""Asks for the access token with the login and password of a connection (``POST /authorize``)."""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.parameters import Parameter
from airflow_provider_cloudstore.protocol.paths import Paths
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.services import KEY_NAMES
from airflow_provider_cloudstore.protocol.settings import Settings

_REFUSALS = (exceptions.AuthenticationError, exceptions.PermissionDeniedError, exceptions.ServiceError)
_TOKEN, _ACCOUNT = Paths.parse("data.access_token|access_token"), Paths.parse("data.account_id|account_id")


class Authorization(NamedTuple):
    """A token, and the account that it is for; empty if the service does not say."""

    access_token: Secret
    account_id: str


class Authorize(Operation[Authorization]):
    """Ask for an access token. Each one ends the earlier ones of the account."""

    key, name = "authorize", "authorize"
    method, path = "POST", "/authorize"
    idempotent, has_subject, needs_result = True, False, True

    def __init__(self, settings: Settings) -> None:
        names = KEY_NAMES[settings.service.authorize_with]
        self.parameters = tuple(
            Parameter(name, lambda key, _: key.reveal(), lambda _: "", lambda _: settings.keys) for name in names
        )
        super().__init__(settings, *settings.keys)

    def find(self, reading: Reading, settings: Settings) -> Authorization | None:
        """The token and the account, if the response has a token."""
        token = next(_TOKEN.values_in(reading.data), None)
        account = next(_ACCOUNT.values_in(reading.data), "")
        return Authorization(Secret(token), str(account)) if isinstance(token, str) and token else None

    def interpret(
        self, outcome: Response | TransportFailure, settings: Settings, attempts: Attempts | None = None
    ) -> Authorization | CloudStoreError:
        """As every operation, but refused keys are permanent: an account that refuses them too often may lock itself."""
        ended = super().interpret(outcome, settings, attempts)
        if not isinstance(ended, _REFUSALS):
            return ended
        return exceptions.ConfigurationError(
            f"the service gave no access token for the login and the password of connection '{settings.conn_id}': {ended.reason}",
            operation=self.name,
            status=ended.status,
            message=ended.message,
            advice="Check both, and extra 'authorize_with': keys, or account. They are not tried again by this process, because "
            "an account may lock itself.",
        )
