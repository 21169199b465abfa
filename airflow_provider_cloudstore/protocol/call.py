"""A call: the loop of its attempts, what each attempt ended with, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from airflow_provider_cloudstore.exceptions import AuthenticationError, CloudStoreError
from airflow_provider_cloudstore.protocol import meanings
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.http import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.meanings import Meaning
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.reading import Reading, read
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import NO_TOKEN, Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Renew:
    """A step: renew the settings if they still have the token that was refused, and answer with the settings."""

    refused: Secret


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: sleep."""

    seconds: float


def steps_of(
    operation: Operation[T], settings: Settings, time_left: Callable[[], float], max_attempts: int | None = None
) -> Generator[Request | Renew | Pause, Any, T]:
    """Make attempts until the operation succeeds or fails permanently. This is the loop of every call, in both clients.

    It yields what the client has to do next, receives the answer (to a request, its response or failure), and returns the result.

    :param settings: the settings of the client.
    :param time_left: returns the seconds that are left for attempts and pauses.
    :param max_attempts: maximum number of requests; None for the connection's own maximum.
    :raises CloudStoreError: if the call failed permanently, or ran out of attempts or time.
    """
    if settings.access_token == NO_TOKEN:  # until the first call of a connection with keys
        settings = yield Renew(NO_TOKEN)
    attempts = Attempts(max_attempts or settings.max_attempts)
    has_renewed = False
    while True:
        attempts.count += 1
        call = Attempt(operation, settings, attempts)
        outcome = call.interpret((yield operation.request(settings)))
        if not isinstance(outcome, CloudStoreError):
            return outcome
        if isinstance(outcome, AuthenticationError) and not has_renewed:
            has_renewed = True
            settings = yield Renew(call.settings.access_token)
            if settings.access_token != call.settings.access_token:
                continue
        yield Pause(attempts.next_pause_or_raise(outcome, time_left()))


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """An operation with the settings and the attempts of the current attempt.

    :param settings: the settings that the current attempt is sent with.
    :param attempts: the attempts so far; by default, the current attempt is the only one.
    """

    operation: Operation[T]
    settings: Settings
    attempts: Attempts = field(default_factory=lambda: Attempts(1, count=1))

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What no message and no stored value may contain."""
        return (*self.settings.secrets, *self.operation.secrets)

    def interpret(self, outcome: Response | TransportFailure) -> T | CloudStoreError:
        """Return what the current attempt ended with: the operation's result, or an error."""
        if isinstance(outcome, TransportFailure):
            return self.error(outcome.meaning, outcome.reason)
        operation, reading = self.operation, read(outcome, self.settings.service, self.secrets)
        found = operation.find(reading, self.settings)
        meaning = meanings.meaning_of(reading, operation, self.settings.service, has_result=found is not None)
        if meaning is None:
            return operation.result(found, reading)
        if meaning is meanings.MISSING and (done := operation.result_of_missing(reading, in_doubt=self.attempts.in_doubt)):
            return done
        return self._error_of_response(meaning, reading, found)

    def _error_of_response(self, meaning: Meaning, reading: Reading, found: Any) -> CloudStoreError:
        if found is not None:  # the message may repeat a download token that is in the response
            reading = replace(reading, secrets=(*reading.secrets, *self.operation.secrets_of(found)))
        lacks_token = meaning is meanings.NO_TOKEN_FOUND
        # A single word may be a token in an undeclared field.
        message = "" if lacks_token and " " not in reading.message else reading.message
        shows_keys = not reading.problem and reading.data is not None and (lacks_token or not message)
        details = "; ".join(filter(None, (message, reading.key_names if shows_keys else "")))
        more = {"status": reading.response.status, "message": message, "retry_after": reading.response.retry_after}
        return self.error(meaning, reading.status_text, details, **more)

    def error(self, meaning: Meaning, seen: str, details: str = "", **more: Any) -> CloudStoreError:
        """Return the error of the current attempt.

        :param seen: what was seen, such as ``HTTP 404``.
        :param details: what the service said, without secrets.
        :param more: further fields of the error.
        """
        operation, attempts = self.operation, self.attempts
        kind = meaning.error_class(may_be_repeated=operation.may_be_repeated, in_doubt=attempts.in_doubt)
        earlier = "" if kind.may_have_effect or not attempts.in_doubt else "An earlier attempt may have been carried out."
        reason = meaning.says.format(seen)
        if meaning.names_address:
            connection = f"connection '{self.settings.conn_id}' " if self.settings.conn_id else ""
            reason += f" ({connection}at {self.settings.route})"
        if details:
            reason = f"{reason}: {details}".rstrip(". ")
        return kind(
            redact(reason, self.secrets),
            operation=operation.name,
            subject=operation.redacted(self.secrets),
            attempts=attempts.count,
            wait=meaning.wait,
            advice=" ".join(filter(None, (earlier, operation.hints.get(kind), meaning.advice or kind.default_advice))),
            **more,
        )
