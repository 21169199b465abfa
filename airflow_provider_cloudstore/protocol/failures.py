"""What each outcome of an attempt means for each operation, by what is known of the call: the table in docs/operate/retries.md.

Nothing else decides this. Beyond that table:

- An error that a 2xx response states as a number from 400 to 599 counts as that HTTP status. 408, 425, 429 and 5xx may be
  stated of an upload that was queued: its outcome is unknown.
- An error envelope, or JSON with HTTP 400, whose words match extra ``not_found_pattern`` is a 404; it overrides neither a
  401 nor a number that a 2xx response states. An upload has no subject that could be missing.
- "Not found" is success for a deletion with ``ignore_missing``, or after an attempt that may have deleted the folder; never for a
  web page.
- Once an attempt may have succeeded, no later error but 401 denies it: an upload ends with ``OutcomeUnknownError``, and a later
  request that was never sent counts as ``TransientServiceError``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.results import Content
from airflow_provider_cloudstore.protocol.settings import PROXY_ADVICE

_REJECTIONS: dict[int, type[exceptions.RequestRejectedError]] = {
    403: exceptions.PermissionDeniedError,
    404: exceptions.NotFoundError,
    410: exceptions.NotFoundError,
    **dict.fromkeys((400, 405, 411, 413, 414, 415, 422), exceptions.BadRequestError),
}
_LIMITS = (425, 429)  # "Too Early" (RFC 8470 section 5.2), and "Too Many Requests" (RFC 6585 section 4): neither had an effect
_NOT_THE_API = "Something other than the version 2 API responds there. Check the connection's host (base URL)."
_REDIRECTED = "Redirects are not followed, to keep the token from other hosts. Set the connection's host to the final base URL."

_PROXY_REFUSED = "the proxy refused the credentials (HTTP 407), and forwarded nothing"
_ADVICE = {
    FailureKind.UNREACHABLE: (
        "Check the port and the spelling of {host}, that the service is running there, and that this machine can reach it (DNS, "
        "firewall, VPN, proxy)."
    ),
    FailureKind.TLS: (
        "Check the port and the certificate of {host}: if it speaks plain http there, the URL must begin with http://; for a "
        "private certificate authority, set extra 'verify' to the path of its bundle."
    ),
    FailureKind.PROXY: (
        "Check the proxy (extra 'proxy', or HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment), and that it may connect to "
        "{host}."
    ),
    FailureKind.PROXY_REFUSED: PROXY_ADVICE,
}

_OF_THE_SERVICE = (
    exceptions.ServiceUnreachableError,
    exceptions.TransientServiceError,
    exceptions.RateLimitError,
    exceptions.OutcomeUnknownError,
    exceptions.InvalidResponseError,
    exceptions.PermissionDeniedError,
    exceptions.NotFoundError,
)
_REPORTED = ", but the service reports an error"
_MAX_RETRY_AFTER = 86_400.0  # seconds; a broken one must not delay a task for years
_SECONDS = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class CallContext:
    """What is known of a call before its next outcome.

    :param operation: the operation.
    :param retry_unknown_outcome: whether the caller allows resending an upload that may have arrived.
    :param ignore_missing: whether deleting a folder that does not exist is a success.
    :param not_found_pattern: what the message of an error envelope matches that means "not found".
    :param may_have_succeeded: whether the outcome of an earlier attempt is unknown.
    :param token_was_rejected: whether an earlier attempt was answered with 401.
    """

    operation: Operation
    retry_unknown_outcome: bool = False
    ignore_missing: bool = False
    not_found_pattern: re.Pattern[str] | None = None
    may_have_succeeded: bool = False
    token_was_rejected: bool = False


@dataclass(frozen=True, slots=True)
class Success:
    """The operation was done.

    :param existed: whether its subject existed; None if unknown.
    """

    existed: bool | None = True


@dataclass(frozen=True, slots=True)
class Failure:
    """The attempt failed.

    :param error: the type of its error.
    :param reason: what happened, one clause.
    :param advice: what to do, if the error's class does not say it.
    :param retry_with_new_token: whether to read the connection again and retry with its token.
    :param status: the HTTP status, or the one that a 2xx response states.
    :param inconclusive: whether the response says nothing about the subject, so that a wait tolerates a few of them.
    """

    error: type[exceptions.CloudStoreError]
    reason: str
    advice: str = ""
    retry_with_new_token: bool = False
    status: int | None = None
    inconclusive: bool = False

    def remembered_in(self, context: CallContext) -> CallContext:
        """The context of the next attempt."""
        unknown = issubclass(self.error, (exceptions.TransientServiceError, exceptions.OutcomeUnknownError))
        return replace(
            context,
            may_have_succeeded=context.may_have_succeeded or unknown,
            token_was_rejected=context.token_was_rejected or self.retry_with_new_token,
        )


UNCHANGED_TOKEN = Failure(exceptions.AuthenticationError, "HTTP 401: the service refused the access token", status=401)
"""The connection still holds the token that the service refused."""


def classify_failure(context: CallContext, failure: TransportFailure, route: str) -> Failure:
    """What a request without a complete response means.

    :param route: the address and the proxy, reported if nothing was sent.
    """
    if failure.kind is FailureKind.OUTCOME_UNKNOWN:
        return _unknown(context, failure.reason)
    kind, advice = unsent(failure, "the connection's host")
    return _failure(context, kind, f"{failure.reason}, at {route}", f"Nothing was sent. {advice}")


def unsent(failure: TransportFailure, host: str) -> tuple[type[exceptions.CloudStoreError], str]:
    """The error of a request that was never sent, and what to do.

    :param host: what could not be reached, in words.
    """
    is_refused = failure.kind is FailureKind.PROXY_REFUSED
    kind = exceptions.ConfigurationError if is_refused else exceptions.ServiceUnreachableError
    return kind, _ADVICE[failure.kind].format(host=host)


def connect_refused(status: int) -> TransportFailure:
    """What it means that a proxy refused to open a tunnel (RFC 9110 section 9.3.6): nothing was sent to the service.

    :param status: the HTTP status of its response to ``CONNECT``.
    """
    if status == 407:
        return TransportFailure(FailureKind.PROXY_REFUSED, _PROXY_REFUSED)
    reason = f"no connection to the service: the proxy answered HTTP {status} to CONNECT"
    return TransportFailure(FailureKind.PROXY, reason)


def classify_response(
    context: CallContext, response: Response, content: Content, *, has_result: bool = False
) -> Success | Failure:
    """What a response means.

    :param has_result: whether it holds what the operation asked for: a file's id, or a download token.
    """
    is_success = 200 <= response.status < 300
    stated = _stated(content) if is_success else None
    status, reason = stated or response.status, f"HTTP {response.status}"
    if stated:
        reason += f"{_REPORTED} ({stated})"
    is_error = content.is_error or (content.mentions_error and not (is_success and has_result))
    verdict: Success | Failure
    if _is_missing(context, status, content, may_match=not stated and status != 401 and (is_error or status == 400)):
        verdict = _classify_missing(context, reason)
    elif is_success and is_error and not context.operation.idempotent and (_leaves_in_doubt(stated) or has_result):
        verdict = _unknown(context, reason if stated else f"{reason}{_REPORTED}")
    elif is_success and not stated:
        verdict = _classify_success(context, content, reason, is_error=is_error)
    else:
        # A front end's page (Varnish's, after a timeout), what may be cut off, and a file's id leave an upload in doubt.
        says_enough = "content-length" in response.headers and not content.problem and not has_result
        is_clear_503 = is_rate_limit(response) and (context.operation.idempotent or says_enough)
        verdict = _classify_error(context, status, reason, is_limit=status in _LIMITS or is_clear_503)
    if isinstance(verdict, Success):
        return verdict
    return replace(verdict, status=status, inconclusive=_is_inconclusive(context, verdict.error, status, content))


def classify_missing_token(context: CallContext, response: Response) -> Failure:
    """What a response means that is a success, but contains no download token."""
    reason = f"HTTP {response.status}, but the response contains no download token"
    return replace(_failure(context, exceptions.InvalidResponseError, reason), status=response.status, inconclusive=True)


def _is_missing(context: CallContext, status: int, content: Content, *, may_match: bool) -> bool:
    """Whether the service reports that the subject does not exist; a web page is not the service's report."""
    if not context.operation.can_be_missing or content.is_web_page:
        return False
    if status in (404, 410):
        return True
    pattern = context.not_found_pattern if may_match and isinstance(content.data, dict) else None
    return bool(pattern and content.message and pattern.search(content.message))


def _classify_missing(context: CallContext, reason: str) -> Success | Failure:
    if context.operation.missing_is_success and (context.ignore_missing or context.may_have_succeeded):
        return Success(existed=None if context.may_have_succeeded else False)
    return _failure(context, exceptions.NotFoundError, reason)


def _classify_success(context: CallContext, content: Content, reason: str, *, is_error: bool) -> Success | Failure:
    if content.problem:
        reason = f"{reason} with {content.problem}"
        if context.operation.idempotent:
            return _failure(context, exceptions.InvalidResponseError, reason)
        return _unknown(context, f"{reason}; check the connection's host" if content.is_web_page else reason)
    if is_error:
        return _failure(context, exceptions.ServiceError, f"{reason}{_REPORTED}")
    return Success()


def _stated(content: Content) -> int | None:
    """The HTTP status that a 2xx response states; if it states several, the one in doubt."""
    found = content.stated_statuses
    return next(filter(_leaves_in_doubt, found), found[0]) if found else None


def _leaves_in_doubt(stated: int | None) -> bool:
    """Whether who states a status in a 2xx response may have queued an upload before it failed."""
    return stated is not None and (stated in (408, *_LIMITS) or stated >= 500)


def _classify_error(context: CallContext, status: int, reason: str, *, is_limit: bool) -> Failure:
    if is_limit:
        return _failure(context, exceptions.RateLimitError, reason)
    if status == 408 or not 300 <= status < 500:  # also what no HTTP exchange ends with: 101, 999
        return _unknown(context, reason)
    if status < 400:
        return _failure(context, exceptions.BadRequestError, f"{reason}, a redirect", _REDIRECTED)
    if status == 401:
        return Failure(exceptions.AuthenticationError, reason, retry_with_new_token=not context.token_was_rejected)
    if status == 407:
        return _failure(context, exceptions.ConfigurationError, _PROXY_REFUSED, PROXY_ADVICE)
    return _failure(context, rejection(status), reason, _NOT_THE_API if status == 405 else "")


def rejection(status: int) -> type[exceptions.RequestRejectedError]:
    """The error of an HTTP status from 400 to 499 that is neither a limit nor about a token."""
    return _REJECTIONS.get(status, exceptions.RequestRejectedError)


def _is_inconclusive(context: CallContext, kind: type[exceptions.CloudStoreError], status: int, content: Content) -> bool:
    """Whether a response says nothing about the subject: it may come from a front end, or be about something else."""
    if kind is exceptions.ServiceError:
        return context.not_found_pattern is not None
    if kind is exceptions.NotFoundError or (kind is exceptions.BadRequestError and status == 400):
        return content.is_web_page
    return kind is not exceptions.AuthenticationError and issubclass(
        kind, (exceptions.InvalidResponseError, exceptions.RequestRejectedError)
    )


def _unknown(context: CallContext, reason: str) -> Failure:
    may_repeat = context.operation.idempotent or context.retry_unknown_outcome
    return Failure(exceptions.TransientServiceError if may_repeat else exceptions.OutcomeUnknownError, reason)


def _failure(context: CallContext, kind: type[exceptions.CloudStoreError], reason: str, advice: str = "") -> Failure:
    """A failure of ``kind``, unless that would deny that an earlier attempt may have succeeded."""
    meant = kind
    if context.may_have_succeeded:
        if kind is exceptions.ServiceUnreachableError or (kind.retried and not context.operation.idempotent):
            kind = exceptions.TransientServiceError
        elif not context.operation.idempotent:
            kind = exceptions.OutcomeUnknownError
    return Failure(kind, reason, advice if kind is meant else "")


def is_rate_limit(response: Response) -> bool:
    """Whether the service asks for the request later, so it had no effect: HTTP 425 and 429, or 503 with a time.

    A 503 may come from a front end after the upload was queued, so its ``Retry-After`` must name a time: a date that has passed
    says nothing about this request.
    """
    return response.status in _LIMITS or (response.status == 503 and retry_after(response) is not None)


def retry_after(response: Response) -> float | None:
    """Seconds that the service asks to wait: whole ones, or an HTTP date to come (RFC 9110 section 10.2.3); at most a day.

    :param response: the response; a date is relative to its arrival.
    """
    value = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), _MAX_RETRY_AFTER)
    if not value.endswith(" GMT"):
        return None
    try:
        seconds = parsedate_to_datetime(value).timestamp() - response.received
    except (ValueError, TypeError, OverflowError):  # not a date, or one out of range
        return None
    return min(seconds, _MAX_RETRY_AFTER) if seconds > 0 else None


def is_about_subject(error: exceptions.CloudStoreError) -> bool:
    """Whether the service itself did not accept the id or URL (HTTP 400), and not a front end with a web page."""
    return isinstance(error, exceptions.BadRequestError) and error.status == 400 and not error.inconclusive


def is_about_service(error: exceptions.CloudStoreError) -> bool:
    """Whether an upload failed because of the service, or of what responds in its place, rather than because of its URL."""
    return isinstance(error, _OF_THE_SERVICE) or is_elsewhere(type(error), error.status)


def is_elsewhere(kind: type[exceptions.CloudStoreError], status: int | None) -> bool:
    """Whether the API is not at the connection's address: a redirect, or HTTP 405."""
    return kind is exceptions.BadRequestError and status is not None and (status < 400 or status == 405)
