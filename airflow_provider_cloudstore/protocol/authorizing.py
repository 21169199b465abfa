"""Asks for the access token with the two keys of a connection (``POST /authorize``), where the service declares ``authorize``."""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation, Reading
from airflow_provider_cloudstore.protocol.parameters import Parameter
from airflow_provider_cloudstore.protocol.paths import Paths
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret
from airflow_provider_cloudstore.protocol.services import KEY_NAMES, Service
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
    idempotent, has_subject = True, False

    def __init__(self, settings: Settings) -> None:
        names = KEY_NAMES[settings.service.authorize_with]
        self.parameters = tuple(
            Parameter(name, lambda value, _: value, lambda _: MASK, lambda value: (Secret(value),)) for name in names
        )
        super().__init__(settings, *(key.reveal() for key in settings.keys))

    def redacted(self, secrets: tuple[Secret, ...]) -> str:
        """Empty: a call that is about no folder or file."""
        return ""

    def find(self, reading: Reading, settings: Settings) -> Authorization | None:
        """The token and the account, if the response has a token."""
        found: Any = next(_TOKEN.values_in(reading.body.data), None)
        account: Any = next(_ACCOUNT.values_in(reading.body.data), "")
        return Authorization(Secret(found), str(account)) if found and isinstance(found, str) else None

    def needs_result(self, service: Service) -> bool:
        """True: that is what it is for."""
        return True

    def interpret(
        self, outcome: Response | TransportFailure, settings: Settings, attempts: Attempts | None = None
    ) -> Authorization | CloudStoreError:
        """As every operation, but refused keys are permanent: an account that refuses them too often may lock itself."""
        ended = super().interpret(outcome, settings, attempts)
        is_refusal = isinstance(ended, _REFUSALS) or (isinstance(ended, exceptions.BadRequestError) and ended.message)
        if not (isinstance(ended, CloudStoreError) and is_refusal):
            return ended
        return exceptions.ConfigurationError(
            f"the service gave no access token for the login and the password of connection '{settings.conn_id}': {ended.reason}",
            operation=self.name,
            status=ended.status,
            message=ended.message,
            advice="Check both, and extra 'authorize_with': keys, or account. They are not tried again by this process, because "
            "an account may lock itself.",
        )

    def result(self, found: Authorization, reading: Reading) -> Authorization:
        """The authorization."""
        return found
