"""What can go wrong, as types that carry data, so that no caller has to parse a message.

Each class says in class attributes what its callers ask, so that nobody keeps lists of classes. A subclass of yours inherits
them.

A message has two lines: the operation, the subject and what happened; then what to do. It is built from those parts alone,
never from a library's exception, because those print whole URLs. Each part is one line, so no text of the service can end a line
of a log and forge the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, ClassVar, Literal

from airflow_provider_cloudstore.compat import AirflowException, AirflowFailException, AirflowSensorTimeout

Wait = Literal["ends", "goes on", "tolerates"]
"""What a wait for a file does after an error; ``tolerates``: it goes on unless several of them in a row last."""

_UNPRINTABLE_SPACE = re.compile(r"[^\S ]+")
BASE_URL_ADVICE = "that the connection's host is the base URL, and its extra 'api_path' where the calls are below it."


def one_line(text: str) -> str:
    """``text`` as one line that neither a log nor a terminal interprets.

    Spaces of any kind and line breaks become a space; control, format and bidirectional characters become escapes, as in a string
    of Python.
    """
    if text.isprintable():
        return text
    text = _UNPRINTABLE_SPACE.sub(" ", text)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@dataclass(eq=False, repr=False)
class CloudStoreError(AirflowException):
    """Base of every error of this package.

    :param reason: what happened, one clause, free of secrets.
    :param operation: the operation's name, such as ``delete folder``; ``connection`` if there was none yet.
    :param subject: the folder id, the file id, or the redacted source URL.
    :param status: the HTTP status, if there was a response.
    :param attempts: how many requests the call had sent.
    :param retry_after: seconds that the service asked to wait (``Retry-After``), if it did.
    :param message: the service's message, free of secrets; empty if there was none, or a web page.
    :param advice: what to do, if the hint of the error's class does not say it.
    :param ended_by: why a batch ended early; empty for any other error.
    :param wait: what a wait does after it, if not what its class says.
    """

    permanent: ClassVar[bool] = False
    """Whether Airflow's retries are skipped: it is a :class:`PermanentError`."""
    sent: ClassVar[bool] = True
    """Whether a request may have reached the service: in doubt, yes."""
    may_have_effect: ClassVar[bool] = False
    """Whether the operation may have been done all the same."""
    retried: ClassVar[bool] = False
    """Whether the call itself makes another attempt, within its attempts and its time."""
    default_wait: ClassVar[Wait] = "ends"
    """What a wait for a file does after it."""
    hint: ClassVar[str] = ""
    """What to do about it."""
    hints: ClassVar[Mapping[str, str]] = {}
    """By :attr:`ended_by`, where :attr:`hint` does not fit."""

    reason: str
    _: KW_ONLY
    operation: str = ""
    subject: str = ""
    status: int | None = None
    attempts: int = 0
    retry_after: float | None = None
    message: str = ""
    advice: str = ""
    ended_by: str = ""
    wait: Wait | None = None

    def __post_init__(self) -> None:
        for part in ("reason", "operation", "subject", "message", "advice"):
            setattr(self, part, one_line(getattr(self, part)))
        self.wait = self.wait or self.default_wait
        super().__init__(self.reason)  # what pickle and copy create an error from, before they set its fields

    def __str__(self) -> str:
        about = " ".join(part for part in (self.operation, f"'{self.subject}'" if self.subject else "") if part)
        tries = f" (attempt {self.attempts})" if self.attempts > 1 else ""
        pause = f", with Retry-After: {self.retry_after:,.0f} s" if self.retry_after and not self.permanent else ""
        todo = f"\n{self.what_to_do}" if self.what_to_do else ""
        unsent = "" if self.sent else "; nothing was sent"
        return f"{about + ': ' if about else ''}{self.reason}{tries}{pause}{unsent}.{todo}"

    @property
    def what_to_do(self) -> str:
        """The advice, or the hint."""
        return self.advice or self.hints.get(self.ended_by, self.hint)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data, for a trigger's event; one of a user's own subclass as its parent here."""
        kind = next(one.__name__ for one in type(self).__mro__ if one.__module__ == __name__)
        return {"kind": kind, **asdict(self)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> CloudStoreError:
        """The error that :meth:`to_dict` described.

        :raises KeyError: if this module has no such error.
        """
        fields = dict(data)
        kind: type[CloudStoreError] = globals()[fields.pop("kind")]
        return kind(**fields)


class PermanentError(CloudStoreError, AirflowFailException):
    """The same request would fail again, or must not be repeated, so Airflow does not retry the task."""

    permanent = True


class ConfigurationError(PermanentError):
    """The Airflow connection cannot be used."""

    sent = False


class InvalidInputError(PermanentError):
    """An id, URL or path was rejected."""

    sent = False


class ServiceUnreachableError(CloudStoreError):
    """The connection failed (DNS, refused, connect timeout, TLS, proxy): the request was never sent."""

    sent = False
    retried = True
    default_wait = "goes on"
    hint = "Check the host and port, and that this machine can reach them (firewall, proxy)."


class RateLimitError(CloudStoreError):
    """HTTP 429 or 425, or 503 with a valid ``Retry-After``: the service asks for the request later. It had no effect."""

    retried = True
    default_wait = "goes on"
    hint = "The service limits the rate of requests. Try again later, or spread the calls, for example with an Airflow pool."


class TransientServiceError(CloudStoreError):
    """The service failed, or the outcome is unknown; repeating the request is safe, or the caller opted in to it."""

    may_have_effect = True
    retried = True
    default_wait = "goes on"
    hint = "The service failed or did not respond. If retries do not help, ask whoever runs the service."


class OutcomeUnknownError(PermanentError):
    """An upload may or may not have been queued. It is not resent unless the caller opted in."""

    may_have_effect = True
    hint = (
        "The upload may or may not have been queued. Check in the service whether the file arrived; if not, clear the task to "
        "send it again. If a second copy does no harm, set retry_unknown_outcome=True."
    )


class ServiceError(CloudStoreError):
    """HTTP 2xx whose body reports an error. Airflow's retries apply."""

    default_wait = "goes on"
    hint = (
        "The service reported this error itself. If it is a success, set extra 'success_when'; if the token was refused, set "
        "extra 'token_refused_pattern'."
    )


class InvalidResponseError(CloudStoreError):
    """HTTP 2xx with a body that is not a usable response: too large, a web page, or without a token."""

    default_wait = "tolerates"
    hint = "Check that the connection's host is the API's base URL, and that no proxy or login page responds instead."


class RequestRejectedError(CloudStoreError):
    """HTTP 4xx, and nobody knows whether the same request would be rejected again: Airflow's retries apply."""

    default_wait: ClassVar[Wait] = "tolerates"
    hint = "Airflow's retries apply. If this persists, check the connection's host (base URL) and the operator's arguments."


class PermissionDeniedError(RequestRejectedError):
    """HTTP 403. Airflow's retries apply: it may be a front end's."""

    hint = "The token lacks a permission, or a firewall rejected the request. Check both, and the id."


class NotFoundError(RequestRejectedError):
    """The service says that the file or folder does not exist (yet). Airflow's retries apply: a queued file may yet arrive."""

    default_wait = "goes on"
    hint = f"Check the id, and {BASE_URL_ADVICE}"


class BadRequestError(RequestRejectedError, PermanentError):
    """HTTP 400, 405, 411, 413, 414, 415, 422 or 3xx: the same request would be rejected again."""

    hint = f"The same request would be rejected again. Check {BASE_URL_ADVICE}"


class AuthenticationError(RequestRejectedError):
    """The service refused the token (HTTP 401, or words that mean it), and a newer one if the connection has one by now.

    Airflow's retries apply: a rotation may be under way.
    """

    default_wait = "ends"
    hint = (
        "Set the connection's password to a valid access token. It was read once more, and no newer token works; Airflow's "
        "retries read it again."
    )


class LinkRejectedError(RequestRejectedError):
    """The download host rejects a link that was just created. A download tries again with a new one."""

    retried = True


class ChecksumError(PermanentError):
    """A downloaded file does not have the expected SHA-256. The target was not changed."""

    hint = "The target was not changed. Check expected_sha256, and whether the file was replaced in the service."


class FileChangedError(CloudStoreError):
    """A file was replaced in the service while it was being read. The download starts over."""

    retried = True
    hint = "The file was replaced while it was being read. Airflow's retries read it from the start."


class FileWaitTimeoutError(PermanentError, AirflowSensorTimeout):
    """The file did not become available in time. Airflow does not retry a wait that timed out."""

    hint = "Check the file id, and in the service whether the upload failed; or allow more time with 'timeout'."


_RESUMES = "With receipts, the task resumes when it is retried or cleared; with receipts=None, it sends every URL again."


class BatchInterruptedError(CloudStoreError):
    """A batch ended early, and a retry resumes it.

    Its ``ended_by`` is ``terminated`` (also if ``execution_timeout`` was nearly over), ``service`` (it failed for every URL),
    ``rate_limit`` (it accepted nothing but asked to wait), ``token`` (it refused the token), ``store`` (the manifest could not be
    copied, or the receipts not be read or written), or ``superseded`` (a newer try has taken over).
    """

    hint = _RESUMES
    hints: ClassVar[Mapping[str, str]] = {
        "service": f"Check the connection's host, and ask whoever runs the service if this persists. {_RESUMES}",
        "rate_limit": f"Lower requests_per_second or max_concurrency, or ask whoever runs the service for its limit. {_RESUMES}",
        "token": f"Set the connection's password to a valid access token. {_RESUMES}",
        "store": f"Nothing is sent that cannot be recorded. {_RESUMES}",
        "superseded": "Another try of this task has taken over; this one has stopped sending.",
    }


class BatchStoppedError(PermanentError):
    """A batch stopped until somebody has fixed the cause; then clear the task, and it resumes.

    Its ``ended_by`` is ``refused`` (``max_consecutive_failures`` URLs in a row), or ``receipts`` (they are damaged or missing, or
    cannot be written).
    """

    hint = "Fix the cause, then clear the task: it resumes."
    hints: ClassVar[Mapping[str, str]] = {
        "refused": "Correct the manifest or the connection, then clear the task: it resumes.",
    }


class BatchFailedError(PermanentError):
    """A batch finished, but some uploads failed, or are unknown. A retry would do nothing."""

    hint = "Correct what failed, then clear the task: with receipts, it resends the failed URLs only."
