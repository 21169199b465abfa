"""A call: the loop of its attempts, and how an attempt becomes the operation's result or an error."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from airflow_provider_cloudstore.exceptions import AuthenticationError, CloudStoreError
from airflow_provider_cloudstore.protocol import signals
from airflow_provider_cloudstore.protocol.http import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.reading import Reading, read
from airflow_provider_cloudstore.protocol.retries import Retries
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import NO_TOKEN, Settings
from airflow_provider_cloudstore.protocol.signals import Signal

T = TypeVar("T")


class Client(Protocol):
    """What the loop needs of a client. Each method of an asynchronous client is a coroutine."""

    settings: Settings

    def renew(self, old: Secret) -> Any:
        """Renew the settings if they still have the old token; return whether they have another token now."""

    def send(self, request: Request) -> Any:
        """Send a request, and return its :class:`Response` or :class:`TransportFailure`."""

    def pause(self, seconds: float) -> Any:
        """Sleep."""


def attempts_of(
    operation: Operation[T], client: Client, max_attempts: int = 0, permit: Callable[[], Any] | None = None
) -> Generator[Any, Any, T]:
    """Make attempts until the operation succeeds or fails. This is the loop of every call, in both clients.

    It yields what the client's methods return, and receives their results: a blocking client hands back what it was given, and an
    asynchronous client awaits it.

    :param max_attempts: how many attempts may be made; 0 for what the connection says.
    :param permit: waits until the next request may be sent.
    :raises CloudStoreError: if the operation failed, and no attempt is left.
    """
    retries, has_renewed = Retries(client.settings, max_attempts), False
    yield client.renew(NO_TOKEN)  # a connection with keys has no token before its first call
    while True:
        retries.count += 1
        if permit:
            yield permit()
        attempt = Attempt(operation, client.settings, retries.count, retries.in_doubt)
        ended = attempt.interpret((yield client.send(operation.request(attempt.settings))))
        if not isinstance(ended, CloudStoreError):
            return ended
        if isinstance(ended, AuthenticationError) and not has_renewed:
            has_renewed = yield client.renew(attempt.settings.access_token)
            if has_renewed:
                continue
        yield client.pause(retries.next_pause_or_raise(ended))


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """One attempt of an operation.

    :param settings: the settings with which the request was built.
    :param number: how many attempts the call has made, including this one.
    :param in_doubt: whether an earlier attempt may have had an effect.
    """

    operation: Operation[T]
    settings: Settings
    number: int = 1
    in_doubt: bool = False

    def interpret(self, outcome: Response | TransportFailure) -> T | CloudStoreError:
        """Return what the attempt ended with: the operation's result, or an error."""
        if isinstance(outcome, TransportFailure):
            return self.without_response(outcome)
        operation, reading = self.operation, read(outcome, self.settings, self._secrets)
        if (found := operation.find(reading)) is not None:  # a message may repeat a token that is in the response
            reading = replace(reading, found=found, secrets=(*self._secrets, *operation.secrets_of(found)))
        signal = signals.signal_of(reading, operation)
        if signal is None:
            return operation.result(reading)
        if signal is signals.MISSING and (done := operation.result_of_missing(reading, in_doubt=self.in_doubt)):
            return done
        return self._error(signal, reading.status_text, reading)

    def without_response(self, failure: TransportFailure) -> CloudStoreError:
        """Return the error of a request without a complete response."""
        may_be_sent = failure.sent or self.in_doubt
        return self._error(signals.IN_DOUBT if may_be_sent else signals.UNREACHABLE, failure.reason)

    @property
    def _secrets(self) -> tuple[Secret, ...]:
        """What no message and no stored value may contain."""
        return (*self.settings.secrets, *self.operation.secrets)

    def _error(self, signal: Signal, seen: str, reading: Reading | None = None) -> CloudStoreError:
        """Return the error of the attempt.

        :param seen: what was seen, such as ``HTTP 404``.
        """
        operation, kind = self.operation, signals.error_of(signal, self.operation)
        reason = signal.reason.format(seen=seen, missing=operation.must_find, address=self.settings.address)
        message, details = self._message_and_details(reading, signal) if reading else ("", "")
        if details:
            reason = f"{reason}: {details}".rstrip(". ")
        where = operation.advice_if_missing if signal is signals.WITHOUT_RESULT else ""
        if self.in_doubt and not kind.may_have_effect:
            reason += "; an earlier attempt may have been carried out"
        return kind(
            redact(reason, self._secrets),
            operation=operation.name,
            subject=operation.redacted(self._secrets),
            attempts=self.number,
            message=message,
            status=reading.response.status if reading else None,
            retry_after=reading.response.retry_after if reading else None,
            advice=" ".join(filter(None, (operation.hints.get(kind), where, signal.advice or kind.default_advice))),
        )

    def _message_and_details(self, reading: Reading, signal: Signal) -> tuple[str, str]:
        """Return the service's message, and what an error shows of the response: the message, or the names of the fields."""
        message, lacks_result = reading.message, signal is signals.WITHOUT_RESULT
        if lacks_result and " " not in message:
            message = ""  # a single word may be the result, in an undeclared field: a token must not be shown
        shows_keys = (lacks_result or not message) and not reading.problem and reading.data is not None
        return message, "; ".join(filter(None, (message, reading.key_names if shows_keys else "")))
