"""One call, from its guard to its result: what a client asks between two attempts.

A client's loop is ``request() -> send -> finish()``, driven by tenacity with :func:`retry_policy`. The call remembers what the
attempts before it left open: an attempt that may have had its effect, and a token that was refused.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from tenacity import RetryCallState, retry_if_exception, stop_before_delay

from airflow_provider_cloudstore.protocol import errors, results
from airflow_provider_cloudstore.protocol.content import Content, read_content
from airflow_provider_cloudstore.protocol.encodings import hides_secret
from airflow_provider_cloudstore.protocol.failures import classify_failure, classify_response, is_gone, retry_after
from airflow_provider_cloudstore.protocol.messages import FailureKind, Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL, Operation
from airflow_provider_cloudstore.protocol.results import DownloadLink, FolderDeletion, RemoteUpload
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.storable import MAX_CHARACTERS, Json, storable

T = TypeVar("T")

DEFAULT_BUDGET = 300.0
"""Seconds that one call may take with all its attempts, where no ``execution_timeout`` is shorter."""
_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
_MAX_MESSAGE_LENGTH = 300
_WITHHELD = "(withheld: it holds a credential in an encoded form)"
_MARGIN = 4096  # characters behind what is shown, so that an encoded credential that is cut in two is still recognised
_SMALL = 8192  # characters of a response that is checked as a whole, which costs less than text by text


class Call(ABC, Generic[T]):
    """One operation on one subject, over as many attempts as it takes.

    :param subject: on what: a folder id, a file id or a source URL.
    :param settings: the address and the token.
    :ivar outcomes: what each request ended with: the type of its error, or None for success.
    :ivar secrets: what no message may hold: every token used, and what gives access in a source URL.
    :param repeat: whether an operation that is not repeatable is sent again when its outcome is unknown.
    :param ignore_missing: whether it is a success that the subject of a deletion is gone already.
    :raises InvalidInputError: if the guard refuses the subject; nothing was sent.
    """

    operation: ClassVar[Operation]

    def __init__(
        self, subject: Any, settings: Settings, *, retry_unknown_outcome: bool = False, ignore_missing: bool = False
    ) -> None:
        self.settings = settings
        self.attempts = 0
        self.outcomes: list[type[errors.CloudStoreError] | None] = []
        self.token_rejected = False
        self._subject = self._validated(subject)
        self.secrets: tuple[Secret, ...] = (*settings.secrets, *self.operation.secrets(self._subject))
        self._redacted = redact(self.operation.redacted(self._subject), self.secrets)
        self._retry_unknown_outcome = retry_unknown_outcome
        self._ignore_missing = ignore_missing
        self._missing = False
        self._credential_replacements = 0
        self._may_have_succeeded = False

    @abstractmethod
    def result(self, response: Response, content: Content) -> T | None:
        """The result of a successful response, or None where the response does not hold one.

        :param response: the response.
        :param content: what its body says.
        """

    def _validated(self, subject: Any) -> str:
        try:
            return self.operation.validate(subject, self.settings)
        except errors.InvalidInputError as error:
            what = error.reason
        raise errors.InvalidInputError(what, operation=self.operation.name)

    @property
    def exhausted(self) -> bool:
        """Whether no attempt is left. The one with a renewed token comes on top: it is no retry of the same request."""
        return self.attempts - self._credential_replacements >= self.settings.max_attempts

    def replace_credentials(self, settings: Settings) -> None:
        """Go on with the connection as it reads now, after a 401.

        :param settings: the connection, read again.
        :raises AuthenticationError: if it still holds the token that was refused.
        """
        if settings.access_token == self.settings.access_token:
            raise self._error(errors.AuthenticationError, "HTTP 401: the service refused the access token", 401)
        self.settings = settings
        self.token_rejected = False
        self.secrets += settings.secrets

    def discount_attempt(self) -> None:
        """Do not count the last attempt: it had no effect, and whoever paces many calls takes it on itself."""
        self.attempts -= 1

    def request(self) -> Request:
        """The request of the next attempt."""
        self.attempts += 1
        return self.operation.request(self._subject, self.settings)

    def handle_outcome(self, outcome: Response | TransportFailure) -> T:
        """The result of an attempt.

        :param outcome: what came of the request.
        :raises CloudStoreError: if it failed; ``again`` tells whether the loop goes on.
        """
        try:
            result = self._result_of(outcome)
        except errors.CloudStoreError as error:
            self.outcomes.append(type(error))
            raise
        self.outcomes.append(None)
        return result

    def _result_of(self, outcome: Response | TransportFailure) -> T:
        if isinstance(outcome, TransportFailure):
            kind, what = classify_failure(self.operation, outcome, retry_unknown_outcome=self._retry_unknown_outcome)
            if outcome.kind is not FailureKind.OUTCOME_UNKNOWN:
                what = f"{what}, at {self.settings.route}"
            raise self._error(kind, what, None)
        content = read_content(outcome)
        self._missing = is_gone(self.operation, outcome, content, self.settings.not_found_pattern)
        verdict = classify_response(
            self.operation, outcome, content, retry_unknown_outcome=self._retry_unknown_outcome, gone=self._missing
        )
        if verdict is not None and not (self._missing and self._missing_is_success):
            raise self._rejection(verdict, outcome, content)
        result = self.result(outcome, content)
        if result is None:
            what = f"HTTP {outcome.status}, but the answer holds no download token: {self._safe(content.keys)}"
            raise self._error(errors.InvalidResponseError, what, outcome.status)
        return result

    @property
    def _missing_is_success(self) -> bool:
        return self.operation.missing_is_success and (self._ignore_missing or self._may_have_succeeded)

    def _rejection(
        self, verdict: tuple[type[errors.CloudStoreError], str], response: Response, content: Content
    ) -> errors.CloudStoreError:
        kind, what = verdict
        # Checked before it is cut: of a secret that is cut in two, nobody could find the rest.
        message = self._safe(content.error_message or content.message)[:_MAX_MESSAGE_LENGTH]
        error = self._error(kind, f"{what}: {message}" if message else what, response.status, retry_after(response))
        error.web_page, error.message = content.is_web_page, message
        if kind is errors.AuthenticationError and not self._credential_replacements:
            self._credential_replacements, self.token_rejected, error.retryable = 1, True, True
        return error

    def _final(self, kind: type[errors.CloudStoreError]) -> type[errors.CloudStoreError]:
        """``kind``, unless an attempt may have worked: that stays so, whatever the later ones end with."""
        self._may_have_succeeded |= kind is errors.TransientServiceError or issubclass(kind, errors.OutcomeUnknownError)
        if not self._may_have_succeeded or kind is errors.AuthenticationError:
            return kind
        if self.operation.idempotent:
            return errors.TransientServiceError if kind is errors.ServiceUnreachableError else kind
        if issubclass(kind, errors.OutcomeUnknownError):
            return kind
        return errors.RetryableOutcomeUnknownError if kind.retryable else errors.OutcomeUnknownError

    def _error(
        self, kind: type[errors.CloudStoreError], what: str, status: int | None, pause: float | None = None
    ) -> errors.CloudStoreError:
        kind = self._final(kind)
        return kind(
            redact(what, self.secrets),
            operation=self.operation.name,
            subject=self._redacted,
            status=status,
            sent=kind not in (errors.ServiceUnreachableError, errors.ConfigurationError),
            attempts=self.attempts,
            retry_after=pause,
        )

    def _safe(self, text: str) -> str:
        """``text`` without secrets: masked where they stand in clear, withheld whole where only decoding shows one."""
        shown = redact(text, self.secrets)[: MAX_CHARACTERS + _MARGIN]
        return _WITHHELD if hides_secret(shown, self.secrets) else shown

    def _is_clean(self, content: Content) -> bool:
        """Whether no part of a small response holds a secret, in any encoding: one check of the whole costs less than many."""
        return len(content.text) <= _SMALL and self._safe(content.text) == content.text

    def _storable(self, content: Content, is_clean: bool) -> Json:
        """The content as an XCom may hold it: a service that repeats the source URL repeats what gives access to it."""
        return storable(content.data) if is_clean else storable(content.data, self._safe)


class DeleteFolder(Call[FolderDeletion]):
    """Delete a folder with everything in it, for good (API document, section 4.1)."""

    operation = DELETE_FOLDER

    def result(self, response: Response, content: Content) -> FolderDeletion:
        """What was deleted, and what the service said."""
        missing = None if self._may_have_succeeded else False
        existed = missing if self._missing else True
        return FolderDeletion(self._subject, response.sent_at, self._storable(content, self._is_clean(content)), existed)


class UploadFromUrl(Call[RemoteUpload]):
    """Queue an upload which the service fetches itself (API document, section 4.2)."""

    operation = UPLOAD_FROM_URL

    def result(self, response: Response, content: Content) -> RemoteUpload:
        """What was queued, and what the service said."""
        is_clean = self._is_clean(content)
        file_id = results.find_file_id(content.data, self.settings.file_id_path, self.secrets, is_clean=is_clean)
        return RemoteUpload(self._redacted, response.sent_at, self._storable(content, is_clean), file_id)


class CreateDownloadLink(Call[DownloadLink]):
    """Make a download token for a file (API document, section 4.3)."""

    operation = CREATE_DOWNLOAD_LINK

    def result(self, response: Response, content: Content) -> DownloadLink | None:
        """The link, or None where the answer holds no token."""
        return results.find_link(self._subject, response, content.data, self.settings.token_path, self.secrets)


class Retried(Protocol):
    """What the retry policy asks a call, or a download."""

    settings: Settings
    attempts: int
    token_rejected: bool

    @property
    def exhausted(self) -> bool:
        """Whether no attempt is left."""
        ...


def retry_policy(call: Retried, budget: float, on_retry: Callable[[str], None]) -> dict[str, Any]:
    """The arguments for tenacity's ``Retrying`` and ``AsyncRetrying``: the one policy of every caller.

    Exponential backoff with full jitter, or the time that the service names; it ends with the attempts of the connection, or
    before a pause that would end after the budget.

    :param call: the call.
    :param budget: seconds for all attempts and pauses.
    :param on_retry: is given one line before each pause: operation, attempt, reason and delay.
    """
    too_late = stop_before_delay(budget)

    def wait(state: RetryCallState) -> float:
        if call.token_rejected:
            return 0.0
        error = _error_of(state)
        return error.retry_after if error.retry_after is not None else _backoff(call.attempts)

    def stop(state: RetryCallState) -> bool:
        if call.exhausted:
            return True
        error = _error_of(state)
        error.retry_after_too_long = too_late(state) and error.retry_after is not None
        return too_late(state)

    def announce(state: RetryCallState) -> None:
        error = _error_of(state)
        if call.token_rejected:
            then = "the service refused the access token; reading the connection again, in case it holds a new one"
        else:
            then = (
                f"attempt {call.attempts} of {call.settings.max_attempts} failed ({error.reason}); "
                f"trying again in {state.upcoming_sleep:.1f} s"
            )
        on_retry(f"{error.operation} '{error.subject}': {then}")

    def again(error: BaseException) -> bool:
        return isinstance(error, errors.CloudStoreError) and error.retryable

    return {"retry": retry_if_exception(again), "wait": wait, "stop": stop, "before_sleep": announce, "reraise": True}


def _backoff(attempts: int) -> float:
    # By the call's own count, which a download that makes progress begins anew; tenacity's goes on.
    return random.uniform(0, min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2 ** max(0, attempts - 1)))


def _error_of(state: RetryCallState) -> errors.CloudStoreError:
    # tenacity asks after an attempt that `again` has let through, so there is an outcome, and it is one of ours.
    return cast("errors.CloudStoreError", state.outcome and state.outcome.exception())
