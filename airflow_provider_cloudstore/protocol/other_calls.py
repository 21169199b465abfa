"""Calls that the API document does not describe: ``POST /authorize`` of some services, and any call of ``hook.request``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import AuthenticationError, CloudStoreError, ConfigurationError, InvalidInputError
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.http import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, Operation
from airflow_provider_cloudstore.protocol.paths import Paths
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.services import KEY_NAMES
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import Json

_PATH = re.compile(r"/?([A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*)")
_KNOWN = {operation.path.lower(): operation for operation in OPERATIONS}
_TOKEN, _ACCOUNT = Paths.parse("data.access_token|access_token"), Paths.parse("data.account_id|account_id")


class OtherCall(Operation[Json]):
    """A call with the caller's own method, path and parameters. Its result is the parsed body, without secrets.

    :param path: the path below the service's ``api_path``.
    :param parameters: the parameters by name; each value is a text or an integer.
    :param idempotent: whether repeating a POST has no further effect; a GET always counts as idempotent.
    :raises InvalidInputError: if an argument cannot be sent, or if the path belongs to an operation that has its own guards.
    """

    key = "other"
    has_subject = True
    hints: ClassVar = {
        exceptions.OutcomeUnknownError: (
            "The call may or may not have been carried out. Check in the service whether it was; if repeating it does no harm, "
            "pass idempotent=True."
        ),
    }

    def __init__(
        self, settings: Settings, method: str, path: str, parameters: Mapping[str, str | int], *, idempotent: bool = False
    ) -> None:
        self.method = method.upper() if isinstance(method, str) else ""
        if self.method not in ("GET", "POST"):
            raise InvalidInputError("method must be GET or POST")
        below = _PATH.fullmatch(path) if isinstance(path, str) else None
        if not below:
            raise InvalidInputError(
                "path must be segments of letters, digits, '_' and '-', such as /file/rename",
                advice="Leave out the host, the service's 'api_path' and the query; values go into parameters.",
            )
        self.path, self.name = f"/{below[1]}", f"{self.method} /{below[1]}"
        if known := _KNOWN.get(self.path.lower()):
            raise InvalidInputError(f"this path has a method of its own: use {known.hook_method}", operation=self.name)
        self.idempotent = idempotent or self.method == "GET"
        super().__init__(settings, others=parameters)

    def result(self, found: None, reading: Reading) -> Json:
        """Return the parsed body."""
        return reading.for_xcom()


class Authorize(Operation[Settings]):
    """Exchange the login and password of a connection for an access token. Each new token ends the account's earlier tokens.

    The result is the connection's settings with the token, and with the account's id if the service gives it. If the service
    refuses login and password, the error is a ``ConfigurationError``: an account may lock itself, so nothing tries them again.
    """

    key, name = "authorize", "authorize"
    method, path = "POST", "/authorize"
    idempotent, has_subject, needs_token, needs_result = True, False, False, True
    subject = ""  # the first argument is a key

    def __init__(self, settings: Settings) -> None:
        names = KEY_NAMES[settings.service.authorize_with]
        super().__init__(settings, others=dict(zip(names, map(Secret.reveal, settings.keys), strict=True)))
        self._settings = settings

    def request(self, settings: Settings) -> Request:
        """Return the HTTP request, without an earlier token."""
        return super().request(self._settings)

    def interpret(
        self, outcome: Response | TransportFailure, settings: Settings, attempts: Attempts | None = None
    ) -> Settings | CloudStoreError:
        """Return the settings with the token, or an error."""
        ended = super().interpret(outcome, self._settings, attempts)
        if not isinstance(ended, AuthenticationError):
            return ended
        return ConfigurationError(
            f"the service gave no access token for its login and password: {ended.reason}",
            operation="connection",
            subject=settings.conn_id,
            advice="Check both, and whether extra 'authorize_with' must be keys or account.",
        )

    def find(self, reading: Reading, settings: Settings) -> tuple[Secret, str] | None:
        """Return the token and the account, if the response has a token."""
        token = next(_TOKEN.values_in(reading.data), None)
        account = next(_ACCOUNT.values_in(reading.data), "")
        if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
            return None
        return Secret(token), str(account)

    def result(self, found: tuple[Secret, str], reading: Reading) -> Settings:
        """Return the settings with the token, and with the account's id, which goes with every call."""
        return self._settings.authorized(*found)
