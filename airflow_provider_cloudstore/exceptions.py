"""The errors of this package. They carry data, so that no caller has to parse a message, or to list classes.

A message has two lines. The first names the operation, the subject and what happened; the second says what to do. A message never
includes the text of a library's exception, because libraries print whole URLs. Each part of a message is a single line, so that
text from the service cannot end a line of a log and forge the next line.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, ClassVar, Literal

from airflow_provider_cloudstore.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
)

TASK_ENDED = (AirflowTaskTimeout, AirflowTaskTerminated)
"""What Airflow raises in a task to end it: after ``execution_timeout``, or on SIGTERM. No ``Exception``, and it is retried."""

Wait = Literal["ends", "goes on", "tolerates"]
"""What a wait for a file does after an error. ``tolerates``: it goes on until a series of such errors has lasted a while."""

_BASE_URL = "that the connection's host is the base URL, and that extra 'api_path' is the path of the calls below that URL."
_UNPRINTABLE_SPACE = re.compile(r"[^\S ]+")


def one_line(text: str) -> str:
    """Return ``text`` as one line that neither a log nor a terminal interprets.

    Line breaks and unusual spaces become a plain space. Control, format and bidirectional characters are escaped as in a Python
    string literal.
    """
    text = _UNPRINTABLE_SPACE.sub(" ", text)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@dataclass(eq=False, repr=False)
class CloudStoreError(AirflowException):
    """Base of every error of this package; also raised if Airflow does not find the connection.

    :param reason: what happened, as one clause without secrets.
    :param operation: the operation's name, such as ``delete folder``; ``connection`` if no operation had begun.
    :param subject: the folder id, the file id, or the redacted source URL.
    :param status: the HTTP status, if there was a response.
    :param attempts: how many requests the call had sent.
    :param retry_after: seconds that the service asked to wait (``Retry-After``); None if it did not ask.
    :param message: the service's message, without secrets; empty if the response had no message or was a web page.
    :param advice: what to do; by default, :attr:`default_advice`.
    """

    permanent: ClassVar[bool] = False
    """Whether Airflow skips its retries, because the error is a :class:`PermanentError`."""
    sent: ClassVar[bool] = True
    """Whether a request may have reached the service; true in case of doubt."""
    may_have_effect: ClassVar[bool] = False
    """Whether the operation may have been carried out in spite of the error."""
    retried: ClassVar[bool] = False
    """Whether the call itself makes another attempt, as long as it has attempts and time left."""
    wait: ClassVar[Wait] = "tolerates"
    """What a wait for a file does after the error."""
    default_advice: ClassVar[str] = ""
    """What to do about an error that was raised without advice."""

    reason: str
    _: KW_ONLY
    operation: str = ""
    subject: str = ""
    status: int | None = None
    attempts: int = 0
    retry_after: float | None = None
    message: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        self.advice = self.advice or self.default_advice
        for part in ("reason", "operation", "subject", "message", "advice"):
            setattr(self, part, one_line(getattr(self, part)))
        super().__init__(self.reason)  # pickle and copy recreate an error from this argument, then set its fields

    @property
    def about(self) -> str:
        """The operation and its subject for a message, such as ``delete folder '42'``."""
        return " ".join(part for part in (self.operation, f"'{self.subject}'" if self.subject else "") if part)

    def __str__(self) -> str:
        tries = f" (attempt {self.attempts})" if self.attempts > 1 else ""
        pause = f", with Retry-After: {self.retry_after:,.0f} s" if self.retry_after and not self.permanent else ""
        todo = f"\n{self.advice}" if self.advice else ""
        unsent = "" if self.sent else "; nothing was sent"
        return f"{self.about + ': ' if self.about else ''}{self.reason}{tries}{pause}{unsent}.{todo}"

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain data, for a trigger's event. A user's subclass becomes its nearest base class here."""
        kind = next(base.__name__ for base in type(self).__mro__ if base.__module__ == __name__)
        return {"kind": kind, **asdict(self)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> CloudStoreError:
        """Recreate the error that :meth:`to_dict` described.

        :raises KeyError: if this module has no error class of that name.
        """
        fields = dict(data)
        kind: type[CloudStoreError] = globals()[fields.pop("kind")]
        return kind(**fields)


class PermanentError(CloudStoreError, AirflowFailException):
    """The same request would fail again or must not be repeated, so Airflow does not retry the task."""

    permanent = True
    wait: ClassVar[Wait] = "ends"


class ConfigurationError(PermanentError):
    """The Airflow connection cannot be used."""


class InvalidInputError(PermanentError):
    """An id, URL or path was rejected."""

    sent = False


class ServiceUnreachableError(CloudStoreError):
    """The connection failed (DNS, refused, connect timeout, TLS, proxy): the request was never sent."""

    sent = False
    retried = True
    wait = "goes on"
    default_advice = (
        "Check the host, its port and its certificate, and that this machine can reach it (DNS, firewall, VPN, and the proxy of "
        "extra 'proxy' or of the environment). For a private certificate authority, set extra 'verify' to the path of its bundle."
    )


class RateLimitError(CloudStoreError):
    """HTTP 429 or 425, or 503 with a valid ``Retry-After``: the service asks to try later. The request had no effect."""

    retried = True
    wait = "goes on"
    default_advice = (
        "The service limits the rate of requests. Try again later, or spread the calls, for example with an Airflow pool."
    )


class TransientServiceError(CloudStoreError):
    """The service failed, or its answer was lost, on a call that may be repeated."""

    may_have_effect = True
    retried = True
    wait = "goes on"
    default_advice = "The service failed or did not respond. If retries do not help, ask whoever runs the service."


class OutcomeUnknownError(PermanentError):
    """A call that is unsafe to repeat (an upload, or a POST of ``request``) may have been carried out. The caller can opt in."""

    may_have_effect = True


class ServiceError(CloudStoreError):
    """HTTP 2xx whose body reports an error. Airflow's retries apply."""

    default_advice = (
        "Correct what the service reports. If it means success, set extra 'success_when'; if it means a refused token, set extra "
        "'token_refused_pattern'."
    )


class InvalidResponseError(CloudStoreError):
    """HTTP 2xx with a body that is not a usable response: it is too large, is a web page, or contains no token."""

    may_have_effect = True
    default_advice = "Check that the connection's host is the API's base URL, and that no proxy or login page responds instead."


class RequestRejectedError(CloudStoreError):
    """HTTP 409, 423, 507 or another 4xx: the same request may succeed later. Airflow's retries apply."""

    default_advice = (
        "Airflow's retries apply. If this persists, resolve what the service reports, or check the arguments and the base URL."
    )


class PermissionDeniedError(RequestRejectedError):
    """HTTP 403. Airflow's retries apply, because the response may come from a front end."""

    default_advice = "The token lacks a permission, or a firewall rejected the request. Check both, and the id."


class NotFoundError(RequestRejectedError):
    """The service says that the file or folder does not exist (yet). Airflow's retries apply: a queued file may arrive later."""

    wait = "goes on"
    default_advice = f"Check the id, and {_BASE_URL}"


class BadRequestError(RequestRejectedError, PermanentError):
    """HTTP 400, 405, 411, 413, 414, 415, 422 or 3xx: the same request would be rejected again."""

    wait = "tolerates"
    default_advice = f"The same request would be rejected again. Check the arguments, and {_BASE_URL}"


class AuthenticationError(RequestRejectedError):
    """The service refused the token (HTTP 401, or such a message), and the connection has no newer one.

    Airflow's retries apply, because a rotation may be under way.
    """

    wait = "ends"
    default_advice = (
        "Set the connection's password to a valid access token, and extra 'token_in' to where the service takes it. Airflow's "
        "retries read the connection again. If the token comes from POST /authorize, another task that asked for a token may "
        "have ended it: run fewer of these tasks side by side."
    )


class ChecksumError(PermanentError):
    """A downloaded file does not have the expected SHA-256. The target was not changed."""

    default_advice = "The target was not changed. Check expected_sha256, and whether the file was replaced in the service."


class FileWaitTimeoutError(PermanentError, AirflowSensorTimeout):
    """The file did not become available in time. Airflow does not retry a wait that timed out."""

    default_advice = "Check the file id, and in the service whether the upload failed; or allow more time with 'timeout'."


class BatchInterruptedError(CloudStoreError):
    """A batch ended early: service or store failed, the token was refused, or the task had to end. A retry resumes it."""

    default_advice = (
        "With receipts, the task resumes when it is retried or cleared; with receipts=None, it sends every URL again."
    )


class BatchSupersededError(BatchInterruptedError):
    """A newer try of the same batch took over, so this one stopped sending."""

    default_advice = "Another try of this task has taken over; this one has stopped sending."


class BatchFailedError(PermanentError):
    """A batch needs your decision: uploads failed or are unknown, many in a row were refused, or receipts are unusable."""

    default_advice = "Correct what failed, then clear the task: with receipts, it sends what failed or was not sent."
