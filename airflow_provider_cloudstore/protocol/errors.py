"""What can go wrong, as types that carry data: nobody has to read a message to know what happened.

A message says the operation, the subject, what happened and what to do. It is built from those parts alone, never from a
library's exception, because those print whole URLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class CloudStoreError(Exception):
    """Base of every error of this package.

    :param reason: what happened, one clause, already free of secrets.
    :param operation: the operation's name, such as ``delete folder``; ``connection`` where that cannot be used for any.
    :param subject: the folder id, the file id, or the redacted source URL.
    :param status: the HTTP status, if an answer came.
    :param sent: whether the request may have reached the service.
    :param attempts: how many requests were sent before this error was final.
    :param retry_after: seconds that the service asked to wait, if it did.
    :param retry_after_too_long: whether the call gave up because that exceeded the time it had left.
    :param web_page: whether a page for people came in place of the service's response: it says nothing of the subject.
    :param message: what the service said, free of secrets; empty where nothing or a web page came in its place.
    """

    permanent: ClassVar[bool] = False
    """Whether a later try of the same thing must fail the same way: Airflow's retries are not spent on it."""
    retryable: bool = False
    """Whether the same call tries again by itself, within its attempts and its time."""
    hint: ClassVar[str] = ""
    hint_for: ClassVar[Mapping[str, str]] = {}
    """By the operation's name, where the general advice does not fit."""

    def __init__(
        self,
        reason: str,
        *,
        operation: str = "",
        subject: str = "",
        status: int | None = None,
        sent: bool = False,
        attempts: int = 0,
        retry_after: float | None = None,
        web_page: bool = False,
        message: str = "",
        retry_after_too_long: bool = False,
    ) -> None:
        self.reason = reason
        self.operation = operation
        self.subject = subject
        self.status = status
        self.sent = sent
        self.attempts = attempts
        self.retry_after = retry_after
        self.web_page = web_page
        self.message = message
        self.retry_after_too_long = retry_after_too_long
        about = " ".join(part for part in (operation, f"'{subject}'" if subject else "") if part)
        tries = f" (attempt {attempts})" if attempts > 1 else ""
        hint = self.hint_for.get(operation, self.hint)
        super().__init__(f"{about + ': ' if about else ''}{reason}{tries}.{' ' + hint if hint else ''}")

    def __reduce__(self) -> tuple[Any, ...]:
        """An error goes through ``pickle`` and ``copy`` unchanged; by default it would be made anew from its message."""
        return restore, (type(self), self.args, vars(self))

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON can hold it: what a trigger's event tells the worker."""
        return {"kind": type(self).__name__, **vars(self), "retryable": False}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> CloudStoreError:
        """The error that :meth:`to_dict` told of.

        :param data: what it returned.
        :raises KeyError: if there is no such error.
        """
        fields = dict(data)
        kind = _kinds(CloudStoreError)[fields.pop("kind")]
        fields.pop("retryable")
        return kind(**fields)


def restore(kind: type[CloudStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> CloudStoreError:
    """An error as it was when it was pickled or copied.

    :param kind: its type.
    :param args: its message.
    :param fields: all its data.
    """
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


def _kinds(base: type[CloudStoreError]) -> dict[str, type[CloudStoreError]]:
    found = {base.__name__: base}
    for kind in base.__subclasses__():
        if globals().get(kind.__name__) is kind:  # not what the hooks derive of it
            found |= _kinds(kind)
    return found


class ConfigurationError(CloudStoreError):
    """The Airflow connection is not usable. Nothing was sent."""

    permanent = True


class InvalidInputError(CloudStoreError):
    """An id or a URL was rejected before anything was sent."""

    permanent = True


class ServiceUnreachableError(CloudStoreError):
    """The connection failed (DNS, refused, connect timeout, TLS, proxy): the request was never sent."""

    retryable = True
    hint = (
        "Nothing was sent. Check the connection's host and port, and that this machine may reach it (firewall, proxy); "
        "for a private certificate authority set extra 'verify' to its bundle's path."
    )
    hint_for: ClassVar[Mapping[str, str]] = {
        "download": (
            "Check that this machine may reach the host that files are downloaded from, which need not be the connection's "
            "(firewall, proxy); for a private certificate authority set extra 'verify' to its bundle's path."
        )
    }


class RateLimitError(CloudStoreError):
    """HTTP 429, or 503 with ``Retry-After``: the service refused the request and asks for a pause."""

    retryable = True
    hint = "The service asks for a pause. Spread the calls, for example with an Airflow pool."


class TransientServiceError(CloudStoreError):
    """The request was sent and the outcome is unknown, or the service failed; repeating the request is safe."""

    retryable = True
    hint = "The service failed or went silent. Airflow's retries may try again; if it lasts, ask who runs the service."


class OutcomeUnknownError(CloudStoreError):
    """An upload may or may not have been queued. It is not resent unless the caller opted in.

    :param repeat: whether the caller opted in to sending it again (``retry_unknown_outcome=True``).
    """

    permanent = True
    hint = (
        "The upload may or may not have been queued. Look in the service for the file before you send it again; "
        "where a second copy does no harm, set retry_unknown_outcome=True."
    )


class RetryableOutcomeUnknownError(OutcomeUnknownError):
    """Like :class:`OutcomeUnknownError`, but the caller opted in to resending."""

    permanent = False
    retryable = True
    hint = "The upload may or may not have been queued, and retry_unknown_outcome=True allows to send it again."


class ServiceError(CloudStoreError):
    """HTTP 2xx whose body says that the operation failed. Airflow's retries apply."""

    hint = "The service answered with an error of its own; its words above say which."


class InvalidResponseError(CloudStoreError):
    """HTTP 2xx with a body that is not a usable response: too large, a web page, or without a token."""

    hint = "Check that the connection's host is the API's base URL and that no proxy or login page answers in its place."
    hint_for: ClassVar[Mapping[str, str]] = {
        "download link": f"{hint[:-1]}; for a service that answers in a shape of its own set extra 'token_path'.",
        "download": "Check that the download URL leads to the file itself, and that no proxy or login page answers in its place.",
    }


class RequestRejectedError(CloudStoreError):
    """HTTP 3xx or 4xx: the same request would be refused again, so Airflow does not retry it."""

    permanent = True
    hint = "The same request would be refused again. Check the connection's host (base URL) and the operator's arguments."


class RedirectError(RequestRejectedError):
    """HTTP 3xx. Redirects are never followed, because they could carry the token elsewhere."""

    hint = "Redirects are not followed, because the token must not travel. Set the connection's host to the final base URL."
    hint_for: ClassVar[Mapping[str, str]] = {
        "download": "A download follows a few redirects, over https only, or from this machine to itself."
    }


class BadRequestError(RequestRejectedError):
    """HTTP 400."""

    hint = "Check the id that was given: the service did not accept it."
    hint_for: ClassVar[Mapping[str, str]] = {"remote upload": "Check the URL that was given: the service did not accept it."}


class AuthenticationError(RequestRejectedError):
    """HTTP 401, also after the connection was read once more for a newer token."""

    hint = "Put a valid access token into the connection's password: it was read again, and no newer token works."


class PermissionDeniedError(RequestRejectedError):
    """HTTP 403."""

    hint = "The token is known but may not do this. Use a token with the right to it, or check the id."


class NotFoundError(RequestRejectedError):
    """HTTP 404 or 410."""

    hint = "Check that the connection's host is the base URL: the part before /cloud/api/v2."
    hint_for: ClassVar[Mapping[str, str]] = {
        "delete folder": (
            "Check the id, and that the connection's host is the base URL: the part before /cloud/api/v2. "
            "Where it is fine that the folder is gone already, set ignore_missing=True."
        ),
        "download link": (
            "Check the id, and that the connection's host is the base URL: the part before /cloud/api/v2. "
            "A file that was queued for upload is found only after the service has fetched it: wait_for_file=True waits for it."
        ),
    }


class DownloadLinkRejectedError(RequestRejectedError):
    """HTTP 401, 403, 404 or 410 from the download host, even for new links."""

    hint = (
        "Fresh links do not work either. If extra 'download_url' of the connection gives their address, check it; "
        "else ask who runs the service why its download host refuses them."
    )


class ChecksumError(CloudStoreError):
    """A downloaded file does not have the expected SHA-256. Nothing was left at the target."""

    permanent = True
    hint = "Nothing was left at the target. Check expected_sha256, and whether the file was replaced in the service."


class FileChangedError(CloudStoreError):
    """A file was replaced in the service while it was read."""

    hint = "The file was replaced while it was read. Airflow's retries read it from its start."


class FileWaitTimeoutError(CloudStoreError):
    """The file did not become available in time. Airflow does not retry a wait that timed out."""

    permanent = True
    hint = "Look in the service whether the upload failed, or allow more time with 'timeout'."


class StateStoreError(CloudStoreError):
    """Airflow's task state store could not be read or written before an upload. Nothing was sent."""

    hint = (
        "Nothing was sent: without its record an upload that is killed could be sent twice. Airflow's retries try again; "
        "check that the API server can be reached."
    )


class BatchFailedError(CloudStoreError):
    """A batch ended with uploads that failed or may not have been queued. An Airflow retry would have nothing to do."""

    permanent = True
    hint = (
        "The XCom lists the first failures, the receipts all of them. Clear the task once their cause is gone: it sends what "
        "failed again, and nothing that was queued. What is unknown may have been queued: look in the service first; "
        "retry_unknown_outcome=True sends it again, too."
    )


class BatchInterruptedError(CloudStoreError):
    """The task of a batch was terminated."""

    hint = (
        "With receipts or Airflow's state store (3.3 and later) a retry of the task resumes there; without, it sends all again."
    )


class BatchStoppedError(CloudStoreError):
    """A batch with ``on_error="stop"`` ended with its first failure; a retry sends that URL again."""

    hint = "A retry of the task sends this one again; what was queued before is not sent again."


class BatchStoppedAtUnknownError(BatchStoppedError):
    """A batch with ``on_error="stop"`` ended with an upload that may have been queued; a retry resumes after it."""

    hint = (
        "It may have been queued: look in the service for the file. A retry of the task resumes after it; "
        "with retry_unknown_outcome=True it is sent again."
    )


class BatchServiceError(CloudStoreError):
    """A batch ended because the service failed for every URL."""

    hint = (
        "With receipts or Airflow's state store (3.3 and later) a retry of the task resumes once the service works; without, it "
        "sends all again. Check the connection's host, too."
    )


class BatchStoreError(CloudStoreError):
    """A batch ended because its progress could not be recorded, so a retry would not have known what was sent."""

    hint = "Nothing is sent while it cannot be recorded. A retry of the task resumes once the store is back."


class ManifestChangedError(CloudStoreError):
    """A batch ended because its manifest changed between the count and the sending. What was sent before is recorded."""

    hint = (
        "Write a manifest once, or each version under a name of its own. A retry counts it anew; with receipts or Airflow's "
        "state store it does not send again what was queued."
    )


class ReceiptsLostError(CloudStoreError):
    """The receipts folder of a batch was removed or emptied while the batch ran."""

    permanent = True
    hint = (
        "Nothing more is sent, and Airflow's retries are not spent on it: without the receipts they would send every URL again, "
        "unless Airflow's state store (3.3 and later) has the progress, too. Restore the folder, or clear the task."
    )


class BatchSupersededError(CloudStoreError):
    """A try of a batch stopped because a newer try has taken over."""

    hint = "Another try of this task is at work, or was: this one sends nothing any more."


class MethodNotAllowedError(RequestRejectedError):
    """HTTP 405: something other than this API answers at that address."""

    hint = "Something other than the version 2 API answers there. Check the connection's host (base URL)."
