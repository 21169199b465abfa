"""What can go wrong, as types that carry data, so that no caller has to parse a message.

Each class declares its consequences as class arguments, so that nobody keeps lists of classes; to omit one is a ``TypeError``.
A message has two lines: the operation, the subject and what happened; then what to do. It is built from those parts alone,
never from a library's exception, because those print whole URLs. Each part is one line, so no text of the service can end a line
of a log and forge the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from enum import Enum
from typing import Any, ClassVar

from airflow_provider_cloudstore.compat import AirflowFailException

_UNPRINTABLE_SPACE = re.compile(r"[^\S ]+")
BASE_URL_ADVICE = "that the connection's host is the base URL: the part before /cloud/api/v2."


def one_line(text: str) -> str:
    """``text`` as one line that neither a log nor a terminal interprets.

    Spaces of any kind and line breaks become a space; control, format and bidirectional characters become escapes, as in a string
    of Python.
    """
    if text.isprintable():
        return text
    text = _UNPRINTABLE_SPACE.sub(" ", text)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class Effect(Enum):
    """Whether a request reached the service, and what it did there."""

    UNSENT = "nothing was sent"
    NO_EFFECT = "it may have been sent, and was not carried out"
    IN_DOUBT = "it may have been carried out"


class About(Enum):
    """Where the cause of an error is to be looked for."""

    SERVICE = "the service, or the way to it"
    CONNECTION = "the connection: its token or its address"
    SUBJECT = "the folder, the file or the source URL"
    TASK = "the task itself"


UNSENT, NO_EFFECT, IN_DOUBT = Effect
SERVICE, CONNECTION, SUBJECT, TASK = About


@dataclass(eq=False, repr=False)
class CloudStoreError(Exception):
    """Base of every error of this package. Its attributes ``sent`` to ``metric`` are declared by each class.

    :param reason: what happened, one clause, free of secrets.
    :param operation: the operation's name, such as ``delete folder``; ``connection`` if there was none yet.
    :param subject: the folder id, the file id, or the redacted source URL.
    :param status: the HTTP status, if there was a response.
    :param attempts: how many requests the call had sent.
    :param retry_after: seconds that the service asked to wait (``Retry-After``), if it did.
    :param advice: what to do, if the hint of the error's class does not say it.
    :param inconclusive: whether the response says nothing about the subject: a wait tolerates a few such responses.
    :param elsewhere: whether the API is not at the connection's address.
    :param message: the service's message, free of secrets; empty if there was none, or a web page.
    :param cause: why a batch ended early; empty for any other error.
    :param retryable: whether the call itself retries it, within its attempts and its time; by default as its class says.
    """

    permanent: ClassVar[bool] = False
    """Whether it is a :class:`PermanentError`."""
    sent: ClassVar[bool] = True
    """Whether a request may have reached the service: in doubt, yes."""
    may_have_effect: ClassVar[bool] = False
    """Whether the operation may have been done all the same."""
    retried: ClassVar[bool] = False
    """Whether calls retry it, unless :attr:`retryable` says otherwise."""
    about: ClassVar[About] = TASK
    """Where its cause is; :meth:`is_about` knows more."""
    waits: ClassVar[bool] = False
    """Whether a wait for a file goes on after it: the file may yet become available."""
    metric: ClassVar[str] = "error"
    """The outcome of the request in metrics. A class may be renamed, this name may not."""
    hint: ClassVar[str] = ""
    hints: ClassVar[Mapping[str, str]] = {}
    """By :attr:`cause`, where :attr:`hint` does not fit."""
    _kinds: ClassVar[dict[str, type[CloudStoreError]]] = {}

    reason: str
    _: KW_ONLY
    operation: str = ""
    subject: str = ""
    status: int | None = None
    attempts: int = 0
    retry_after: float | None = None
    inconclusive: bool = False
    elsewhere: bool = False
    message: str = ""
    advice: str = ""
    cause: str = ""
    retryable: bool | None = None

    def __init_subclass__(cls, *, effect: Effect, retried: bool, about: About, waits: bool, metric: str) -> None:
        super().__init_subclass__()
        cls.sent, cls.may_have_effect, cls.retried = effect is not UNSENT, effect is IN_DOUBT, retried
        cls.about, cls.waits, cls.metric = about, waits, metric
        CloudStoreError._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        for part in ("reason", "operation", "subject", "message", "advice"):
            setattr(self, part, one_line(getattr(self, part)))
        if self.retryable is None:
            self.retryable = self.retried
        super().__init__(self.reason)  # what pickle and copy create an error from, before they set its fields

    def __str__(self) -> str:
        about = " ".join(part for part in (self.operation, f"'{self.subject}'" if self.subject else "") if part)
        tries = f" (attempt {self.attempts})" if self.attempts > 1 else ""
        wait = f", with Retry-After: {self.retry_after:,.0f} s" if self.retry_after and not self.permanent else ""
        todo = f"\n{self.what_to_do}" if self.what_to_do else ""
        unsent = "" if self.sent else "; nothing was sent"
        return f"{about + ': ' if about else ''}{self.reason}{tries}{wait}{unsent}.{todo}"

    @property
    def what_to_do(self) -> str:
        """The advice, or the hint for its cause or its class."""
        return self.advice or self.hints.get(self.cause, self.hint)

    def is_about(self, *about: About) -> bool:
        """Whether its cause is there."""
        return (CONNECTION if self.elsewhere else self.about) in about

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data, for a trigger's event."""
        return {"kind": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> CloudStoreError:
        """The error that :meth:`to_dict` described.

        :raises KeyError: if there is no such error.
        """
        fields = dict(data)
        return CloudStoreError._kinds[fields.pop("kind")](**fields)


class PermanentError(
    CloudStoreError, AirflowFailException, effect=NO_EFFECT, retried=False, about=TASK, waits=False, metric="error"
):
    """The same request would fail again, or must not be repeated, so Airflow does not retry the task."""

    permanent = True


class ConfigurationError(PermanentError, effect=UNSENT, retried=False, about=CONNECTION, waits=False, metric="error"):
    """The Airflow connection cannot be used."""


class InvalidInputError(PermanentError, effect=UNSENT, retried=False, about=SUBJECT, waits=False, metric="error"):
    """An id, URL or path was rejected."""


class ServiceUnreachableError(CloudStoreError, effect=UNSENT, retried=True, about=SERVICE, waits=True, metric="unreachable"):
    """The connection failed (DNS, refused, connect timeout, TLS, proxy): the request was never sent."""

    hint = "Check the host and port, and that this machine can reach them (firewall, proxy)."


class RateLimitError(CloudStoreError, effect=NO_EFFECT, retried=True, about=SERVICE, waits=True, metric="rate_limited"):
    """HTTP 429 or 425, or 503 with a valid ``Retry-After``: the service asks for the request later. It had no effect."""

    hint = "The service limits the rate of requests. Try again later, or spread the calls, for example with an Airflow pool."


class TransientServiceError(CloudStoreError, effect=IN_DOUBT, retried=True, about=SERVICE, waits=True, metric="server_failure"):
    """The service failed, or the outcome is unknown; repeating the request is safe, or the caller opted in to it."""

    hint = "The service failed or did not respond. If retries do not help, ask whoever runs the service."


class OutcomeUnknownError(PermanentError, effect=IN_DOUBT, retried=False, about=SERVICE, waits=False, metric="outcome_unknown"):
    """An upload may or may not have been queued. It is not resent unless the caller opted in."""

    hint = (
        "The upload may or may not have been queued. Check in the service whether the file arrived; if not, clear the task to "
        "send it again. If a second copy does no harm, set retry_unknown_outcome=True."
    )


class ServiceError(CloudStoreError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=True, metric="service_error"):
    """HTTP 2xx whose body reports an error. Airflow's retries apply."""

    hint = "The service reported this error itself. If it means that the token was refused, set extra 'token_refused_pattern'."


class InvalidResponseError(
    CloudStoreError, effect=NO_EFFECT, retried=False, about=CONNECTION, waits=False, metric="invalid_response"
):
    """HTTP 2xx with a body that is not a usable response: too large, a web page, or without a token."""

    hint = "Check that the connection's host is the API's base URL, and that no proxy or login page responds instead."


class RequestRejectedError(CloudStoreError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=False, metric="rejected"):
    """HTTP 4xx, and nobody knows whether the same request would be rejected again: Airflow's retries apply."""

    hint = "Airflow's retries apply. If this persists, check the connection's host (base URL) and the operator's arguments."


class PermissionDeniedError(
    RequestRejectedError, effect=NO_EFFECT, retried=False, about=CONNECTION, waits=False, metric="rejected"
):
    """HTTP 403. Airflow's retries apply: it may be a front end's."""

    hint = "The token lacks a permission, or a firewall rejected the request. Check both, and the id."


class NotFoundError(RequestRejectedError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=True, metric="not_found"):
    """HTTP 404 or 410. Airflow's retries apply: a queued file may yet arrive."""

    hint = f"Check {BASE_URL_ADVICE}"


class BadRequestError(
    RequestRejectedError, PermanentError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=False, metric="rejected"
):
    """HTTP 400, 405, 411, 413, 414, 415, 422 or 3xx: the same request would be rejected again."""

    hint = f"The same request would be rejected again. Check {BASE_URL_ADVICE}"


class AuthenticationError(
    RequestRejectedError, effect=NO_EFFECT, retried=False, about=CONNECTION, waits=False, metric="unauthorized"
):
    """HTTP 401, or words that mean it, and the connection holds no newer token, or that was rejected as well.

    Airflow's retries apply: a rotation may be under way.
    """

    hint = (
        "Set the connection's password to a valid access token. It was read once more, and no newer token works; Airflow's "
        "retries read it again."
    )


class ChecksumError(PermanentError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=False, metric="error"):
    """A downloaded file does not have the expected SHA-256. The target was not changed."""

    hint = "The target was not changed. Check expected_sha256, and whether the file was replaced in the service."


class FileChangedError(CloudStoreError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=False, metric="error"):
    """A file was replaced in the service while it was being read."""

    hint = "The file was replaced while it was being read. Airflow's retries read it from the start."


class FileWaitTimeoutError(PermanentError, effect=NO_EFFECT, retried=False, about=SUBJECT, waits=False, metric="error"):
    """The file did not become available in time. Airflow does not retry a wait that timed out."""

    hint = "Check the file id, and in the service whether the upload failed; or allow more time with 'timeout'."


_RESUMES = "With receipts, the task resumes when it is retried or cleared; with receipts=None, it sends every URL again."


class BatchInterruptedError(CloudStoreError, effect=NO_EFFECT, retried=False, about=TASK, waits=False, metric="error"):
    """A batch ended early, and a retry resumes it.

    :param cause: ``terminated``, ``timeout`` (``execution_timeout`` was nearly over), ``service`` (it failed for every URL),
        ``rate_limit`` (it accepted nothing but asked to wait), ``token`` (it refused the token), ``store`` (the manifest could
        not be copied, or the receipts not be read or written), or ``superseded`` (a newer try has taken over).
    """

    hint = _RESUMES
    hints: ClassVar[Mapping[str, str]] = {
        "service": f"Check the connection's host, and ask whoever runs the service if this persists. {_RESUMES}",
        "rate_limit": f"Lower requests_per_second or max_concurrency, or ask whoever runs the service for its limit. {_RESUMES}",
        "token": f"Set the connection's password to a valid access token. {_RESUMES}",
        "store": f"Nothing is sent that cannot be recorded. {_RESUMES}",
        "superseded": "Another try of this task has taken over; this one has stopped sending.",
    }


class BatchStoppedError(PermanentError, effect=NO_EFFECT, retried=False, about=TASK, waits=False, metric="error"):
    """A batch stopped until somebody has fixed the cause; then clear the task, and it resumes.

    :param cause: ``refused`` (``max_consecutive_failures`` URLs in a row), or ``receipts`` (they are damaged or missing, or
        cannot be written).
    """

    hint = "Fix the cause, then clear the task: it resumes."
    hints: ClassVar[Mapping[str, str]] = {
        "refused": "Correct the manifest or the connection, then clear the task: it resumes.",
    }


class BatchFailedError(PermanentError, effect=NO_EFFECT, retried=False, about=TASK, waits=False, metric="error"):
    """A batch finished, but some uploads failed, or are unknown. A retry would do nothing."""

    hint = "Correct what failed, then clear the task: with receipts, it resends the failed URLs only."
