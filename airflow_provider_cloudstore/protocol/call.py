"""A call: the loop of its attempts, what each attempt ended with, and its errors."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from airflow_provider_cloudstore.exceptions import AuthenticationError, CloudStoreError, TransientServiceError
from airflow_provider_cloudstore.protocol import signals
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.reading import Reading, read
from airflow_provider_cloudstore.protocol.retries import Retries
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.signals import Signal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """A step: send the operation's request, and answer with the settings that it was built with, and its response or failure."""


@dataclass(frozen=True, slots=True)
class Renew:
    """A step: renew the client's settings if they still have this token, and answer whether they have another token now."""

    refused: Secret


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: sleep."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The last step: return the operation's result."""

    result: Any


Step = Send | Renew | Pause | Done


def steps_of(operation: Operation[Any], retries: Retries) -> Generator[Step, Any, None]:
    """Make attempts until the operation succeeds or fails permanently. This is the loop of every call, in both clients.

    It yields what the client has to do next, and receives the client's answer.

    :raises CloudStoreError: if the call failed permanently, or ran out of attempts or time.
    """
    has_renewed = False
    while True:
        retries.count += 1
        settings, outcome = yield Send()
        ended = Attempt(operation, settings, retries.count, retries.in_doubt).interpret(outcome)
        if not isinstance(ended, CloudStoreError):
            yield Done(ended)
            return
        if isinstance(ended, AuthenticationError) and not has_renewed:
            has_renewed = yield Renew(settings.access_token)
            if has_renewed:
                continue
        yield Pause(retries.next_pause_or_raise(ended))


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """One attempt of an operation.

    :param number: how many attempts the call has made, including this one.
    :param in_doubt: whether an earlier attempt may have had an effect.
    """

    operation: Operation[T]
    settings: Settings
    number: int = 1
    in_doubt: bool = False

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What no message and no stored value may contain."""
        return (*self.settings.secrets, *self.operation.secrets)

    def interpret(self, outcome: Response | TransportFailure) -> T | CloudStoreError:
        """Return what the attempt ended with: the operation's result, or an error."""
        if isinstance(outcome, TransportFailure):
            return self.lost(outcome)
        operation, reading = self.operation, read(outcome, self.settings, self.secrets)
        found = operation.find(reading)
        signal = signals.signal_of(reading, operation, found)
        if signal is None:
            return operation.result(found, reading)
        if signal is signals.MISSING and (done := operation.result_of_missing(reading, in_doubt=self.in_doubt)):
            return done
        return self._error_of_response(signal, reading, found)

    def lost(self, failure: TransportFailure) -> CloudStoreError:
        """Return the error of a request without a complete response."""
        signal = signals.IN_DOUBT if failure.sent else signals.UNREACHABLE
        return self._error(signal, failure.reason, advice=failure.advice)

    def _error_of_response(self, signal: Signal, reading: Reading, found: Any) -> CloudStoreError:
        if found:  # the message may repeat a token that is in the response
            reading = replace(reading, secrets=(*reading.secrets, *self.operation.secrets_of(found)))
        message, lacks_token = reading.message, signal is signals.WITHOUT_TOKEN
        if lacks_token and " " not in message:  # a single word may be a token in an undeclared field
            message = ""
        shows_keys = (lacks_token or not message) and not reading.problem and reading.data is not None
        return self._error(
            signal,
            reading.status_text,
            "; ".join(filter(None, (message, reading.key_names if shows_keys else ""))),
            status=reading.response.status,
            message=message,
            retry_after=reading.response.retry_after,
        )

    def _error(self, signal: Signal, seen: str, details: str = "", advice: str = "", **more: Any) -> CloudStoreError:
        """Return the error of the attempt.

        :param seen: what was seen, such as ``HTTP 404``.
        :param details: what the service said, without secrets.
        :param advice: what to do, in place of the signal's advice.
        """
        operation = self.operation
        kind = signal.error_of(operation)
        if self.in_doubt and not kind.sent:  # only the last attempt was not sent
            kind = TransientServiceError
        earlier = "" if kind.may_have_effect or not self.in_doubt else "An earlier attempt may have been carried out."
        reason = signal.says.format(seen=seen, address=self.settings.address)
        if details:
            reason = f"{reason}: {details}".rstrip(". ")
        return kind(
            redact(reason, self.secrets),
            operation=operation.name,
            subject=operation.redacted(self.secrets),
            attempts=self.number,
            advice=" ".join(filter(None, (earlier, operation.hints.get(kind), advice or signal.advice or kind.default_advice))),
            **more,
        )
