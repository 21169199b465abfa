"""One call, from its guard to its result, and the retry policy of every call.

A client's loop is ``request() -> send -> handle_outcome()``, repeated as :func:`pause_before_retry` says.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pendulum import UTC, DateTime

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol import failures, results
from airflow_provider_cloudstore.protocol.failures import CallContext, Failure
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL, Operation
from airflow_provider_cloudstore.protocol.results import Content, DownloadLink, FolderDeletion, RemoteUpload
from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_parameters
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.storable import Json, storable

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.download_requests import Download

T = TypeVar("T")

DEFAULT_BUDGET = 300.0
"""Seconds that a call may take with all its attempts, unless ``execution_timeout`` is shorter; of a download, a pause."""
_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
_MAX_MESSAGE_LENGTH = 300
# Whose cause may be the connection: its token, or its address.
_ABOUT_THE_CONNECTION = (
    exceptions.AuthenticationError,
    exceptions.PermissionDeniedError,
    exceptions.InvalidResponseError,
)


class Call(ABC, Generic[T]):
    """One operation on one subject, with all its attempts.

    :param subject: a folder id, a file id or a source URL.
    :param settings: the address and the token.
    :param retry_unknown_outcome: whether an upload is resent if its outcome is unknown.
    :param ignore_missing: whether deleting a folder that does not exist is a success.
    :param max_attempts: how many requests to send at most, if not as many as the connection allows.
    :ivar outcomes: how each attempt ended: the type of its error, or None for success.
    :raises InvalidInputError: if the guard rejects the subject; nothing was sent.
    """

    operation: ClassVar[Operation]

    def __init__(
        self,
        subject: Any,
        settings: Settings,
        *,
        retry_unknown_outcome: bool = False,
        ignore_missing: bool = False,
        max_attempts: int | None = None,
    ) -> None:
        self.settings = settings
        self.attempts = 0
        self.outcomes: list[type[exceptions.CloudStoreError] | None] = []
        self.token_rejected = False
        self.max_attempts = max_attempts or settings.max_attempts
        self._context = CallContext(self.operation, retry_unknown_outcome, ignore_missing, settings.not_found_pattern)
        try:
            self._subject = self.operation.validate(subject, settings)
        except exceptions.InvalidInputError as error:
            raise replace(error, operation=self.operation.name) from None

    def find(self, response: Response, content: Content) -> Any:
        """What the operation asked for, or None; beside it, an ``error`` is a warning."""
        return None

    @abstractmethod
    def result(self, found: Any, response: Response, content: Content, existed: bool | None) -> T:
        """The result of a successful response.

        :param found: what :meth:`find` returned.
        :param existed: whether the subject existed; None if unknown.
        :raises InvalidResponseError: if the response lacks what the operation asked for.
        """

    @cached_property
    def secrets(self) -> tuple[Secret, ...]:
        """What no message may contain: every token used, and the credentials in a source URL."""
        return (*self.settings.secrets, *self.operation.secrets(self._subject))

    @property
    def _redacted(self) -> str:
        return redact(self.operation.redacted(self._subject), self.secrets)

    @property
    def exhausted(self) -> bool:
        """Whether no attempt is left. The one with a new token is extra: it does not retry the same request."""
        return self.attempts - self._context.token_was_rejected >= self.max_attempts

    def replace_credentials(self, settings: Settings) -> None:
        """Continue after a 401 with the connection as it reads now.

        :param settings: the connection, read again.
        :raises AuthenticationError: if it still holds the token that was rejected.
        """
        if settings.access_token == self.settings.access_token:
            raise self._error(failures.UNCHANGED_TOKEN)
        self.secrets += settings.secrets
        self.settings = settings
        self.token_rejected = False
        self._context = replace(self._context, not_found_pattern=settings.not_found_pattern)

    def describe_retry(self, reason: str) -> str:
        """What failed, and what the next attempt does, for the log."""
        if self.token_rejected:
            return "the service refused the access token; reading the connection again for a new one"
        return f"attempt {self.attempts} of {self.max_attempts} failed ({reason}); retrying"

    def request(self) -> Request:
        """The request of the next attempt."""
        self.attempts += 1
        return self.operation.request(self._subject, self.settings)

    def handle_outcome(self, outcome: Response | TransportFailure) -> T:
        """The result of an attempt.

        :raises CloudStoreError: if the attempt failed; ``retryable`` says whether to make another.
        """
        self.outcomes.append(None)
        try:
            return self._result_of(outcome)
        except exceptions.CloudStoreError as error:
            self.outcomes[-1] = type(error)
            raise

    def _result_of(self, outcome: Response | TransportFailure) -> T:
        if isinstance(outcome, TransportFailure):
            raise self._error(failures.classify_failure(self._context, outcome, self.settings.route))
        content = results.read_content(outcome)
        found = self.find(outcome, content)
        verdict = failures.classify_response(self._context, outcome, content, has_result=found is not None)
        if isinstance(verdict, Failure):
            raise self._response_error(verdict, outcome, content)
        return self.result(found, outcome, content, verdict.existed)

    def _response_error(self, failure: Failure, response: Response, content: Content) -> exceptions.CloudStoreError:
        link = results.find_link("", response, content.data, (), ()) if isinstance(content.data, dict) else None
        self.secrets += link.secrets if link else ()  # the message may repeat the download token
        # Checked before it is cut: the rest of a secret that is cut in two would not be recognized.
        message = self._safe(content.message)[:_MAX_MESSAGE_LENGTH]
        detail = message or (self._safe(content.keys) if failure.error is exceptions.ServiceError else "")
        self.token_rejected = failure.retry_with_new_token
        return self._error(failure, detail=detail, message=message, pause=failures.retry_after(response))

    def _error(
        self, failure: Failure, *, detail: str = "", message: str = "", pause: float | None = None
    ) -> exceptions.CloudStoreError:
        self._context = failure.remembered_in(self._context)
        reason = failure.reason
        if failure.error in _ABOUT_THE_CONNECTION or failures.is_elsewhere(failure.error, failure.status):
            named = f"connection '{self.settings.conn_id}' " if self.settings.conn_id else ""
            reason += f" ({named}at {self.settings.route})"
        return failure.error(
            redact(f"{reason}: {detail}" if detail else reason, self.secrets),
            operation=self.operation.name,
            subject=self._redacted,
            status=failure.status,
            attempts=self.attempts,
            retry_after=pause,
            inconclusive=failure.inconclusive,
            message=message,
            advice=failure.advice,
            retryable=failure.retry_with_new_token or failure.error.retried,
        )

    def _safe(self, text: str) -> str:
        """``text`` without secrets."""
        return redact_parameters(redact(text, self.secrets))

    def _storable(self, content: Content, kept: str = "") -> Json:
        """The content as an XCom may hold it: a service that repeats the source URL repeats its credentials.

        :param kept: a value that is stored unchanged: the file's id.
        """
        return storable(content.data, lambda text: text if text == kept else self._safe(text))


class DeleteFolder(Call[FolderDeletion]):
    """Permanently delete a folder and everything in it (API document, section 4.1)."""

    operation = DELETE_FOLDER

    def result(self, found: None, response: Response, content: Content, existed: bool | None) -> FolderDeletion:
        """The deletion, with the service's response."""
        sent = DateTime.fromtimestamp(response.sent, UTC)
        return FolderDeletion(self._subject, sent, self._storable(content), existed)


class UploadFromUrl(Call[RemoteUpload]):
    """Queue an upload that the service fetches itself (API document, section 4.2)."""

    operation = UPLOAD_FROM_URL

    def find(self, response: Response, content: Content) -> str | None:
        """The file's id, checked against the access token alone: a source URL may well name the file."""
        return results.find_file_id(content.data, self.settings.file_id_path, (self.settings.access_token,))

    def result(self, found: str | None, response: Response, content: Content, existed: bool | None) -> RemoteUpload:
        """The queued upload, with the service's response."""
        file_id = found or ""
        sent = DateTime.fromtimestamp(response.sent, UTC)
        return RemoteUpload(file_id, self._redacted, sent, self._storable(content, file_id))


class CreateDownloadLink(Call[DownloadLink]):
    """Create a download token for a file (API document, section 4.3)."""

    operation = CREATE_DOWNLOAD_LINK

    def find(self, response: Response, content: Content) -> DownloadLink | None:
        """The link, if the response contains a token."""
        return results.find_link(self._subject, response, content.data, self.settings.token_path, self.secrets)

    def result(self, found: DownloadLink | None, response: Response, content: Content, existed: bool | None) -> DownloadLink:
        """The link."""
        if found is None:
            raise self._error(failures.classify_missing_token(self._context, response), detail=self._safe(content.keys))
        return found


def pause_before_retry(
    call: Call[Any] | Download, error: exceptions.CloudStoreError, time_left: float, on_retry: Callable[[str], None]
) -> float | None:
    """Seconds to pause before the next attempt, or None if there is none: the one retry policy of every caller.

    Exponential backoff with full jitter, or ``Retry-After``; it ends after the connection's ``max_attempts``, or if the next
    pause would exceed the time that is left.

    :param error: how the last attempt ended.
    :param time_left: the seconds that are left for further attempts and the pauses between them.
    :param on_retry: is called with one line before each pause: operation, attempt, reason and delay.
    """
    if not error.retryable or call.exhausted:
        return None
    pause = 0.0 if call.token_rejected else _backoff(call.attempts) if error.retry_after is None else error.retry_after
    if pause >= time_left:
        return None
    when = f" in {pause:.1f} s" if pause else ""
    on_retry(f"{error.operation} '{error.subject}': {call.describe_retry(error.reason)}{when}")
    return pause


def _backoff(attempts: int) -> float:
    return random.uniform(0, min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2 ** max(0, attempts - 1)))
