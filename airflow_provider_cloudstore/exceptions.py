"""What can go wrong, as types that carry data, so that no caller has to parse a message.

A message has two lines: the operation, the subject and what happened; then what to do. It is built from those parts alone,
never from a library's exception, because those print whole URLs. Each part is one line, so no text of the service can end a line
of a log and forge the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, ClassVar

from airflow_provider_cloudstore.compat import AirflowFailException

_UNPRINTABLE_SPACE = re.compile(r"[^\S ]+")
_BASE_URL = "that the connection's host is the base URL: the part before /cloud/api/v2."


def one_line(text: str) -> str:
    """``text`` as one line that neither a log nor a terminal interprets.

    Spaces of any kind and line breaks become a space; control, format and bidirectional characters become escapes, as in a string
    of Python.

    :param text: any text for display.
    """
    if text.isprintable():
        return text
    text = _UNPRINTABLE_SPACE.sub(" ", text)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@dataclass(eq=False, repr=False)
class CloudStoreError(Exception):
    """Base of every error of this package.

    :param reason: what happened, one clause, free of secrets.
    :param operation: the operation's name, such as ``delete folder``; ``connection`` if there was none yet.
    :param subject: the folder id, the file id, or the redacted source URL.
    :param status: the HTTP status, if there was a response.
    :param attempts: how many requests the call had sent.
    :param retry_after: seconds that the service asked to wait (``Retry-After``), if it did.
    :param advice: what to do, if the hint of the error's class does not say it.
    :param inconclusive: whether the response says nothing about the subject: a wait tolerates a few such responses.
    :param message: the service's message, free of secrets; empty if there was none, or a web page.
    :param cause: why a batch ended early; empty for any other error.
    :param retryable: whether the call itself retries it, within its attempts and its time; by default as its class says.
    """

    permanent: ClassVar[bool] = False
    """Whether it is a :class:`PermanentError`."""
    sent: ClassVar[bool] = True
    """Whether a request may have reached the service: in doubt, yes."""
    retried: ClassVar[bool] = False
    """Whether calls retry it, unless :attr:`retryable` says otherwise."""
    hint: ClassVar[str] = ""
    hint_for: ClassVar[Mapping[str, str]] = {}
    """By the operation's name, or by a batch's cause, where :attr:`hint` does not fit."""

    reason: str
    _: KW_ONLY
    operation: str = ""
    subject: str = ""
    status: int | None = None
    attempts: int = 0
    retry_after: float | None = None
    inconclusive: bool = False
    message: str = ""
    advice: str = ""
    cause: str = ""
    retryable: bool | None = None

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
        return f"{about + ': ' if about else ''}{self.reason}{tries}{wait}.{todo}"

    @property
    def what_to_do(self) -> str:
        """The advice, or the hint for its cause, its operation or its class."""
        return self.advice or self.hint_for.get(self.cause or self.operation, self.hint)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data, for a trigger's event."""
        return {"kind": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> CloudStoreError:
        """The error that :meth:`to_dict` described.

        :raises KeyError: if there is no such error.
        """
        fields = dict(data)
        return _KINDS[fields.pop("kind")](**fields)


class PermanentError(CloudStoreError, AirflowFailException):
    """The same request must fail again, so Airflow does not retry the task."""

    permanent = True


class ConfigurationError(PermanentError):
    """The Airflow connection cannot be used. Nothing was sent."""

    sent = False


class InvalidInputError(PermanentError):
    """An id or URL was rejected before anything was sent."""

    sent = False


class ServiceUnreachableError(CloudStoreError):
    """The connection failed (DNS, refused, connect timeout, TLS, proxy): the request was never sent."""

    sent = False
    retried = True
    hint = "Check the host and port, and that this machine can reach them (firewall, proxy)."


class RateLimitError(CloudStoreError):
    """HTTP 429 or 425, or 503 with a valid ``Retry-After``: the service asks for the request later. It had no effect."""

    retried = True
    hint = "The service limits the rate of requests. Try again later, or spread the calls, for example with an Airflow pool."


class TransientServiceError(CloudStoreError):
    """The service failed, or the outcome is unknown; repeating the request is safe, or the caller opted in to it."""

    retried = True
    hint = "The service failed or did not respond. If retries do not help, ask whoever runs the service."
    hint_for: ClassVar[Mapping[str, str]] = {
        "remote upload": "The upload may or may not have been queued; retry_unknown_outcome=True allows resending it."
    }


class OutcomeUnknownError(PermanentError):
    """An upload may or may not have been queued. It is not resent unless the caller opted in."""

    hint = (
        "The upload may or may not have been queued. Check in the service whether the file arrived; if not, clear the task to "
        "send it again. If a second copy does no harm, set retry_unknown_outcome=True."
    )


class ServiceError(CloudStoreError):
    """HTTP 2xx whose body reports an error. Airflow's retries apply."""

    hint = "The service reported this error itself."
    hint_for: ClassVar[Mapping[str, str]] = {
        "delete folder": f"{hint} If it means that the folder does not exist, extra 'not_found_pattern' must match it."
    }


class InvalidResponseError(CloudStoreError):
    """HTTP 2xx with a body that is not a usable response: too large, a web page, or without a token."""

    hint = "Check that the connection's host is the API's base URL, and that no proxy or login page responds instead."
    hint_for: ClassVar[Mapping[str, str]] = {
        "download link": f"{hint} If the service returns the token in an unusual place, set extra 'token_path'.",
        "download": "Check that the download URL leads to the file itself, and that no proxy or login page responds instead.",
    }


class RequestRejectedError(CloudStoreError):
    """HTTP 4xx, and nobody knows whether the same request would be rejected again: Airflow's retries apply."""

    hint = "Airflow's retries apply. If this persists, check the connection's host (base URL) and the operator's arguments."


class PermissionDeniedError(RequestRejectedError):
    """HTTP 403. Airflow's retries apply: it may be a front end's."""

    hint = "The token lacks a permission, or a firewall rejected the request. Check both, and the id."


class NotFoundError(RequestRejectedError):
    """HTTP 404 or 410. Airflow's retries apply: a queued file may yet arrive."""

    hint = f"Check {_BASE_URL}"
    hint_for: ClassVar[Mapping[str, str]] = {
        "delete folder": f"Check the id, and {_BASE_URL} If a missing folder is fine, set ignore_missing=True.",
        "download link": (
            f"Check the id, and {_BASE_URL} "
            "A queued file is not found until the service has fetched it: set wait_for_file=True to wait for it."
        ),
    }


class BadRequestError(RequestRejectedError, PermanentError):
    """HTTP 400, 405, 411, 413, 414, 415, 422 or 3xx: the same request would be rejected again."""

    hint = f"The same request would be rejected again. Check {_BASE_URL}"
    hint_for: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("delete folder", "download link"), "Check the id: the service did not accept it."),
        "remote upload": "Check the URL: the service did not accept it.",
    }


class AuthenticationError(RequestRejectedError, PermanentError):
    """HTTP 401, and the connection holds no newer token, or that was rejected as well."""

    hint = "Set the connection's password to a valid access token. It was read once more, and no newer token works."


class ChecksumError(PermanentError):
    """A downloaded file does not have the expected SHA-256. The target was not changed."""

    hint = "The target was not changed. Check expected_sha256, and whether the file was replaced in the service."


class FileChangedError(CloudStoreError):
    """A file was replaced in the service while it was being read."""

    hint = "The file was replaced while it was being read. Airflow's retries read it from the start."


class FileWaitTimeoutError(PermanentError):
    """The file did not become available in time. Airflow does not retry a wait that timed out."""

    hint = "Check the file id, and in the service whether the upload failed; or allow more time with 'timeout'."


_RESUMES = "With receipts, the task resumes when it is retried or cleared; with receipts=None, it sends every URL again."


class BatchInterruptedError(CloudStoreError):
    """A batch ended early, and a retry resumes it.

    :param cause: ``terminated``, ``timeout`` (``execution_timeout`` was nearly over), ``service`` (it failed for every URL),
        ``rate_limit`` (it accepted nothing but asked to wait), ``store`` (the manifest could not be copied, or the receipts not
        be read or written), or ``superseded`` (a newer try has taken over).
    """

    hint = _RESUMES
    hint_for: ClassVar[Mapping[str, str]] = {
        "service": f"Check the connection's host, and ask whoever runs the service if this persists. {_RESUMES}",
        "rate_limit": f"Lower requests_per_second or max_concurrency, or ask whoever runs the service for its limit. {_RESUMES}",
        "store": f"Nothing is sent that cannot be recorded. {_RESUMES}",
        "superseded": "Another try of this task has taken over; this one has stopped sending.",
    }


class BatchStoppedError(PermanentError):
    """A batch stopped until somebody has mended the cause; then clear the task, and it resumes.

    :param cause: ``token`` (the service refuses it), ``refused`` (``max_consecutive_failures`` URLs in a row), or ``receipts``
        (they are damaged or missing, or cannot be written).
    """

    hint = "Mend the cause, then clear the task: it resumes."
    hint_for: ClassVar[Mapping[str, str]] = {
        "token": "Set the connection's password to a valid access token, then clear the task: it resumes.",
        "refused": "Correct the manifest or the connection, then clear the task: it resumes.",
    }


class BatchFailedError(PermanentError):
    """A batch finished, but more than ``allowed_failures`` uploads failed, or some are unknown. A retry would do nothing."""

    hint = "Correct what failed, then clear the task: with receipts, it resends the failed URLs only."


_KINDS: dict[str, type[CloudStoreError]] = {
    name: kind for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, CloudStoreError)
}
