"""A call: an operation with the settings that it is sent with. It reads what each attempt ended with, and makes its errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import extraction, meanings
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure
from airflow_provider_cloudstore.protocol.meanings import Meaning
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.reading import Reading, read
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """An operation that is sent.

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
        meaning = meanings.meaning_of(reading, operation, self.settings, has_result=found is not None)
        if meaning is None:
            return operation.result(found, reading)
        if meaning is meanings.MISSING and (done := operation.result_of_missing(reading, in_doubt=self.attempts.in_doubt)):
            return done
        return self._error_of_response(meaning, reading)

    def _error_of_response(self, meaning: Meaning, reading: Reading) -> CloudStoreError:
        link = extraction.find_link("", reading, self.settings)
        if link and not isinstance(reading.data, str):  # the message of any operation may repeat a download token
            reading = replace(reading, secrets=(*reading.secrets, *extraction.secrets_of(link)))
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
