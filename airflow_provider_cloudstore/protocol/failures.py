"""Makes the error of an attempt from its meaning, what was seen and what the service said, without secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.exceptions import CloudStoreError, OutcomeUnknownError, TransientServiceError, Wait
from airflow_provider_cloudstore.protocol import finding, meanings
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.meanings import Meaning
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.secrets import redact
from airflow_provider_cloudstore.protocol.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.operations import Operation

MAX_MESSAGE_LENGTH = 300


def error_of_response(
    meaning: Meaning, reading: Reading, operation: Operation[Any], settings: Settings, attempts: Attempts
) -> CloudStoreError:
    """Return the error of an attempt that received a response."""
    link = finding.find_link("", reading, settings)
    if link and not isinstance(reading.data, str):  # the message of any operation may repeat a download token
        reading = replace(reading, secrets=(*reading.secrets, *finding.secrets_of(link)))
    # The text is redacted before it is cut, because a secret that is cut in two would not be recognized.
    message = reading.redacted(reading.message(settings.service))[:MAX_MESSAGE_LENGTH]
    if meaning is meanings.NO_TOKEN_FOUND and " " not in message:  # a single word may be a token in an undeclared field
        message = ""
    shows_keys = not reading.problem and reading.data is not None and (meaning is meanings.NO_TOKEN_FOUND or not message)
    details = "; ".join(filter(None, (message, reading.redacted(reading.key_names) if shows_keys else "")))
    more: dict[str, Any] = {"status": reading.response.status, "message": message, "retry_after": reading.response.retry_after}
    more["wait"] = _wait_after(meaning, reading, settings)
    return error_of(meaning, reading.status_text, operation, settings, attempts, details=details, **more)


def _wait_after(meaning: Meaning, reading: Reading, settings: Settings) -> Wait | None:
    """Return what a wait for a file does after an error; None if the error's class says it."""
    if meaning is meanings.TOKEN_ENDED:
        return "tolerates"
    if meaning not in (meanings.STATED_ERROR, meanings.NO_SUCH_PATH):
        return None
    # Without a pattern, any words of the service may mean that the file is not there yet.
    return "tolerates" if reading.problem or settings.service.not_found_pattern else "goes on"


def error_of(
    meaning: Meaning,
    seen: str,
    operation: Operation[Any],
    settings: Settings,
    attempts: Attempts,
    *,
    details: str = "",
    **more: Any,
) -> CloudStoreError:
    """Return the error of an attempt.

    :param seen: what was seen, such as ``HTTP 404``.
    :param details: what the service said, without secrets.
    :param more: further fields of the error.
    """
    kind = meaning.error
    if kind.may_have_effect and not operation.idempotent:
        kind = OutcomeUnknownError
    elif attempts.in_doubt and not kind.sent:
        kind = TransientServiceError  # only the last attempt was not sent
    reason = meaning.says.format(seen)
    if meaning.names_address:
        connection = f"connection '{settings.conn_id}' " if settings.conn_id else ""
        reason += f" ({connection}at {settings.route})"
    if details:
        reason = f"{reason}: {details}".rstrip(". ")
    secrets = (*settings.secrets, *operation.secrets)
    return kind(
        redact(reason, secrets),
        operation=operation.name,
        subject=operation.redacted(secrets),
        attempts=attempts.count,
        advice=f"{operation.hints.get(kind, '')} {meaning.advice or kind.default_advice}".strip(),
        **more,
    )
