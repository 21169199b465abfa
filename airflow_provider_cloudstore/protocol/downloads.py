"""Decides what each response to a download means, and which bytes to request next.

==========================================  ==================================================================================
what happened                               what follows (for one block of an open file, where it differs)
==========================================  ==================================================================================
lost connection, 5xx, 429                   retry with ``Range`` and ``If-Range`` from the next byte
206 with the requested range                the download resumes
200 to a range request                      the file from its start (bytes before the block are skipped)
another version, or 412 or 416              start over: ``FileChangedError`` (permanent)
206 with another range                      start over: ``InvalidResponseError`` (permanent)
401, 403, 404, 410 from the download host   retry with a new link, at most three times in a row
redirect                                    followed up to five times, over https or from loopback to loopback
anything else                               permanent
==========================================  ==================================================================================
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.failures import advice_for, connect_refused, is_rate_limit, rejection, retry_after
from airflow_provider_cloudstore.protocol.messages import FailureKind, Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, USER_AGENT
from airflow_provider_cloudstore.protocol.results import DownloadedFile, DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.urls import is_loopback, url_problem

MAX_REDIRECTS = 5
MAX_REJECTED_LINKS = 3
"""New links to try in a row before giving up."""
_PROGRESS = 64 * 1024  # new bytes that reset the count of attempts
_OPERATION = "download"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)
_LENGTH = re.compile("[0-9]{1,18}")
_EMPTY_RANGE = re.compile(r"bytes \*/0", re.ASCII | re.IGNORECASE)
_LINK_REJECTED = (401, 403, 404, 410)
_NEVER_SENT: dict[FailureKind, type[exceptions.CloudStoreError]] = {
    FailureKind.NEVER_SENT: exceptions.ServiceUnreachableError,
    FailureKind.PROXY_REFUSED: exceptions.ConfigurationError,
}
_REDIRECTS = (301, 302, 303, 307, 308)
_ON_REDIRECT = "Downloads follow a few redirects, over https or on this machine only."
_ON_REJECTED_LINKS = (
    "Fresh links do not work either. Check extra 'download_url' of the connection if it is set; "
    "otherwise ask whoever runs the service why its download host rejects them."
)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Identifies a version of a file (RFC 9110 section 8.8).

    :param total: the size in bytes, or None if unknown.
    :param etag: the ``ETag``, or empty.
    :param last_modified: the ``Last-Modified`` date, or empty.
    :param validator: the value for ``If-Range``: whichever of the two is strong (section 13.1.5), or empty.
    """

    total: int | None
    etag: str
    last_modified: str
    validator: str

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], total: int | None) -> Self:
        """The version that a response describes.

        :param total: the file's size in bytes, if the response has it.
        """
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        strong = etag if etag.startswith('"') else modified if _is_strong(modified, headers.get("date", "")) else ""
        return cls(total, etag, modified, strong)

    def matches(self, other: FileVersion) -> bool:
        """Whether both can be the same version: nothing that both know differs."""
        pairs = ((self.total, other.total), (self.etag, other.etag), (self.last_modified, other.last_modified))
        return all(one == two or None in (one, two) for one, two in pairs)


def _is_strong(modified: str, date: str) -> bool:
    try:
        return (parsedate_to_datetime(date) - parsedate_to_datetime(modified)).total_seconds() >= 1
    except (ValueError, TypeError):  # not a date, or only one has a UTC offset
        return False


def download_url(link: DownloadLink, settings: Settings) -> Secret:
    """The download URL: from the service's response, or else from extra ``download_url``.

    :raises ConfigurationError: if there is none, or it would expose the token.
    """
    template = settings.download_url
    url = link.url_with_token or (template.replace("{token}", quote(link.token, safe="")) if template else "")
    problem = advice = ""
    if not url:
        problem = "the service's response has a download token but no download URL"
        advice = (
            "Set extra 'download_url' of the connection to the URL with {token} in the token's place, such as "
            "https://files.example.com/download?download_token={token}."
        )
    elif found := url_problem(url, allow_http=settings.allow_http):
        problem = f"the download URL {found}; nothing was downloaded"
    if problem:
        raise exceptions.ConfigurationError(problem, operation=_OPERATION, subject=link.file_id, advice=advice)
    return _percent_encoded(url)


def _percent_encoded(url: str) -> Secret:
    parts = urlsplit(url)
    path, query = (quote(part, safe="!$%&'()*+,/:;=?@[]~") for part in (parts.path, parts.query))  # keeps what is encoded
    return Secret(urlunsplit((parts.scheme, parts.netloc, path, query, "")))


def validate_sha256(value: Any) -> str | None:
    """The expected SHA-256 in lower case, or None for no check.

    :param value: 64 hexadecimal digits, None or an empty string.
    :raises InvalidInputError: if it is anything else.
    """
    text = value.strip() if isinstance(value, str) else value
    if text in (None, ""):
        return None
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise exceptions.InvalidInputError(f"expected_sha256 must be 64 hexadecimal digits, not {value!r}; nothing was sent")
    return text.lower()


class Download:
    """One file, or a range of it, over as many requests and links as it takes.

    For each attempt a client calls :meth:`use_link` if :attr:`needs_link`, :meth:`start_attempt`, :meth:`follow_redirect` until
    there is none, :meth:`accept_head`, :meth:`accept_body` for each piece, and :meth:`finish_attempt`.

    :param file_id: the file.
    :param settings: the connection.
    :param expected_sha256: the SHA-256 of the whole file; None for no check.
    :ivar attempts: requests since the last 64 KiB of progress, redirects not counted.
    :ivar position: the next byte to download.
    :ivar version: the version being downloaded, once a response has described it.
    :ivar counts: what to count, ``bytes``, ``resumptions`` and ``replaced_links``; its reader clears it.
    :raises InvalidInputError: if the id or the SHA-256 is invalid; nothing was sent.
    """

    token_rejected = False  # a download carries its own token, not the access token

    def __init__(self, file_id: Any, settings: Settings, *, expected_sha256: Any = None) -> None:
        self.settings = settings
        self.file_id = CREATE_DOWNLOAD_LINK.validate(file_id, settings)
        self.version: FileVersion | None = None
        self.attempts = 0
        self.position = 0
        self.counts: Counter[str] = Counter()
        self._expected = validate_sha256(expected_sha256)
        self._digest = hashlib.sha256()
        self._start = 0
        self._end = math.inf
        self._link = self._url = Secret("")
        self._redirects = 0
        self._links_rejected = 0
        self._progress = 0  # new bytes since the attempts were last reset
        self._furthest = 0  # the highest position so far: bytes downloaded a second time are no progress
        self._body_left = math.inf  # unread bytes of the response's body; infinite if only its end tells

    def part(self, start: int, end: int) -> Self:
        """Another download, of one range, with the same link and of the same version; any number of them may run at once.

        :param start: its first byte.
        :param end: the byte after its last one.
        """
        part = type(self)(self.file_id, self.settings)
        part.version, part._link, part._end = self.version, self._link, end
        part.position = part._start = part._furthest = start
        return part

    @property
    def size(self) -> int:
        """The file's size in bytes, once a range was read.

        :raises InvalidResponseError: if the download host does not send it.
        """
        if math.isinf(self._total):
            raise self._error(exceptions.InvalidResponseError, "the download host does not send the file's size")
        return int(self._total)

    @property
    def _total(self) -> float:
        """The file's size in bytes; infinite if unknown."""
        return math.inf if self.version is None or self.version.total is None else self.version.total

    @property
    def _is_part(self) -> bool:
        return math.isfinite(self._end)

    @property
    def exhausted(self) -> bool:
        """Whether no attempt is left; rejected links have a limit of their own."""
        return self.attempts - self._links_rejected >= self.settings.max_attempts

    @property
    def needs_link(self) -> bool:
        """Whether there is no link, or the last one was rejected."""
        return not self._link.reveal()

    def use_link(self, link: DownloadLink) -> None:
        """Download from a link.

        :raises ConfigurationError: if it has no usable URL.
        """
        self._link = download_url(link, self.settings)

    def start_attempt(self) -> Request:
        """The first request of the next attempt."""
        self.attempts += 1
        self._redirects, self._url = 0, self._link
        if not self._is_resumable:
            self._restart()  # the rest could be of another version
        return self.request()

    @property
    def _is_resumable(self) -> bool:
        return self._is_part or bool(self.version and self.version.validator)

    def describe_retry(self, reason: str) -> str:
        """What failed, and what the next attempt does, for the log.

        :param reason: why the last attempt failed.
        """
        if self.needs_link:
            return f"{reason}; creating another"
        then = "retrying" if self.position == self._start else "resuming" if self._is_resumable else "starting over"
        return f"attempt {self.attempts - self._links_rejected} of {self.settings.max_attempts} failed ({reason}); {then}"

    def request(self) -> Request:
        """The request for the next bytes, at the link or where it redirected to. It has no access token."""
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        if self._is_range:
            headers["Range"] = f"bytes={self.position}-{self._end - 1 if self._is_part else ''}"
            if self.version and self.version.validator:
                headers["If-Range"] = self.version.validator
        return Request("GET", self._url.reveal(), headers)

    @property
    def _is_range(self) -> bool:
        return self.position > 0 or self._is_part

    def follow_redirect(self, head: Response) -> bool:
        """Whether the response is a redirect; then :meth:`request` goes to its target.

        :raises BadRequestError: if the redirect must not be followed.
        """
        location = head.headers.get("location")
        if head.status not in _REDIRECTS or location is None:
            return False
        source = self._url.reveal()
        try:
            url = urljoin(source, location).partition("#")[0]
            from_loopback = is_loopback(urlsplit(source).hostname or "")
        except ValueError:
            url, from_loopback = location, False
        self._redirects += 1
        if self._redirects > MAX_REDIRECTS:
            raise self._redirected(f"HTTP {head.status}: more than {MAX_REDIRECTS} redirects", head)
        if problem := url_problem(url, allow_loopback=from_loopback):
            raise self._redirected(f"HTTP {head.status}: the target of the redirect {problem}", head)
        self._url = _percent_encoded(url)
        return True

    def _redirected(self, reason: str, head: Response) -> exceptions.CloudStoreError:
        return self._error(exceptions.BadRequestError, reason, head, _ON_REDIRECT)

    def accept_head(self, head: Response) -> int:
        """Check that a response has the requested bytes.

        :returns: how many bytes to skip before the first requested one. If :attr:`position` is 0, the file starts over.
        :raises CloudStoreError: if it does not; ``retryable`` says whether to make another attempt.
        """
        if head.status not in (200, 206):
            return self._reject(head)
        length = head.headers.get("content-length")
        is_clear = length is None or (_LENGTH.fullmatch(length) and "transfer-encoding" not in head.headers)
        if head.headers.get("content-encoding", "identity").lower() != "identity" or not is_clear:
            reason = f"HTTP {head.status} with an unrequested Content-Encoding or an ambiguous length"
            raise self._error(exceptions.InvalidResponseError, reason, head)
        return self._accept_range(head) if head.status == 206 else self._accept_whole(head)

    def _accept_whole(self, head: Response) -> int:
        length = head.headers.get("content-length")
        if length is None and "transfer-encoding" not in head.headers and not self._expected:
            raise self._error(
                exceptions.InvalidResponseError,
                "HTTP 200 with neither Content-Length nor chunks, so that a truncated file would go unnoticed; "
                "expected_sha256 makes it acceptable",
                head,
            )
        total = None if length is None else int(length)
        version = FileVersion.from_headers(head.headers, total)
        self._body_left = math.inf if total is None else total
        if not self._is_part:
            self._restart()
            self.version = version
        elif self.version and not self.version.matches(version):
            raise self._file_changed(head)
        self.version = self.version or version
        return self.position

    def _accept_range(self, head: Response) -> int:
        if not self._is_range:
            raise self._error(exceptions.InvalidResponseError, "HTTP 206 (partial content) to a request for the whole file", head)
        found = _CONTENT_RANGE.fullmatch(head.headers.get("content-range", ""))
        first, last = (int(found[1]), int(found[2])) if found else (-1, -1)
        total = int(found[3]) if found and found[3] != "*" else None
        version = FileVersion.from_headers(head.headers, total)
        if self.version and not self.version.matches(version):
            raise self._file_changed(head)
        length = head.headers.get("content-length", str(last - first + 1))
        consistent = first <= last and (total is None or last < total) and length == str(last - first + 1)
        if first != self.position or not consistent:
            raise self._restarting(exceptions.InvalidResponseError, "HTTP 206 with a range that was not requested", head)
        self.version, self._body_left = self.version or version, last - first + 1
        self.counts["resumptions"] += self.position > self._start
        return 0

    def _reject(self, head: Response) -> int:
        status = head.status
        if self._is_range and self.version and status in (412, 416):
            raise self._file_changed(head)
        if self._is_range and status == 416 and _EMPTY_RANGE.fullmatch(head.headers.get("content-range", "")):
            self.version, self._body_left = FileVersion.from_headers(head.headers, 0), 0
            return 0
        if status in _LINK_REJECTED:
            raise self._link_rejected(head)
        if status == 407:
            raise self._incomplete(connect_refused(status))
        kind: type[exceptions.CloudStoreError] = exceptions.InvalidResponseError
        if is_rate_limit(head):
            kind = exceptions.RateLimitError
        elif status >= 500:
            kind = exceptions.TransientServiceError
        elif status >= 400:
            kind = rejection(status)
        elif status >= 300:
            raise self._redirected(f"HTTP {status}", head)
        raise self._error(kind, f"HTTP {status}", head)

    def _link_rejected(self, head: Response) -> exceptions.CloudStoreError:
        self._link = Secret("")
        self._links_rejected += 1
        is_last = self._links_rejected > MAX_REJECTED_LINKS
        what = f"{self._links_rejected} links in a row" if is_last else "the link"
        reason = f"HTTP {head.status}: the download host rejected {what}"
        self.counts["replaced_links"] += not is_last
        # Most links expire during the download: the new one works at once.
        pause = 0.0 if self._links_rejected == 1 and not is_last else retry_after(head)
        kind = exceptions.RequestRejectedError
        return self._error(kind, reason, head, _ON_REJECTED_LINKS, retryable=not is_last, pause=pause)

    def _file_changed(self, head: Response) -> exceptions.CloudStoreError:
        return self._restarting(exceptions.FileChangedError, f"HTTP {head.status}: the file changed during the download", head)

    def _restarting(self, kind: type[exceptions.CloudStoreError], reason: str, head: Response) -> exceptions.CloudStoreError:
        error = self._error(kind, reason, head, retryable=not self._is_part)  # an open file must not mix versions
        if error.retryable:
            self.version = None
            self._restart()
        return error

    def _restart(self) -> None:
        self.position, self._digest = 0, hashlib.sha256()

    @property
    def bytes_wanted(self) -> float:
        """How many bytes of the body to read; infinite if only its end tells."""
        return min(self._end - self.position, self._body_left)

    def skip(self, count: int) -> None:
        """Count bytes of the body that were skipped."""
        self.counts["bytes"] += count
        self._body_left -= count

    def accept_body(self, piece: bytes) -> bool:
        """Count and digest the next bytes of the body.

        :returns: whether there are 64 KiB of progress, after which attempts and time are counted anew.
        """
        self._digest.update(piece)
        self.position += len(piece)
        self.skip(len(piece))
        self._progress += max(0, self.position - self._furthest)
        self._furthest = max(self._furthest, self.position)
        if self._progress < _PROGRESS:
            return False
        self.attempts, self._links_rejected, self._progress = 1, 0, 0
        return True

    def finish_attempt(self, failure: TransportFailure | None) -> None:
        """Check that the attempt downloaded all of its bytes.

        :raises CloudStoreError: if bytes are missing.
        """
        end = min(self._end, self._total)
        missing = end - self.position if math.isfinite(end) else self._body_left
        if failure or missing not in (0, math.inf):
            raise self._incomplete(failure)

    def _incomplete(self, failure: TransportFailure | None) -> exceptions.CloudStoreError:
        reason = failure.reason if failure else "the response ended early"
        if self.position:
            reason += self._where
        kind = _NEVER_SENT.get(failure.kind) if failure else None
        advice = advice_for(failure, "the download host") if failure and kind else ""
        return self._error(kind or exceptions.TransientServiceError, reason, advice=advice)

    def out_of_time(self, seconds: float) -> exceptions.CloudStoreError:
        """The error of a download that ``execution_timeout`` ended.

        :param seconds: how long it ran.
        """
        speed = (self.position - self._start) / seconds / 1000
        reason = f"the task's execution_timeout ended it{self._where}, after {seconds:.1f} s at {speed:,.0f} kB/s; increase it"
        return self._error(exceptions.CloudStoreError, reason)

    @property
    def _where(self) -> str:
        return f" at byte {self.position:,}" + (f" of {self._total:,}" if math.isfinite(self._total) else "")

    def result(self, path: str) -> DownloadedFile:
        """What was downloaded.

        :param path: where it was written to.
        :raises ChecksumError: if its SHA-256 is not the expected one.
        """
        digest = self._digest.hexdigest()
        if self._expected and digest != self._expected:
            reason = f"the SHA-256 of the {self.position:,} bytes is {digest}, not {self._expected}"
            raise self._error(exceptions.ChecksumError, reason)
        return DownloadedFile(self.file_id, path, self.position, digest)

    def _error(
        self,
        kind: type[exceptions.CloudStoreError],
        reason: str,
        head: Response | None = None,
        advice: str = "",
        *,
        retryable: bool | None = None,
        pause: float | None = None,
    ) -> exceptions.CloudStoreError:
        return kind(
            reason,
            operation=_OPERATION,
            subject=redact(self.file_id, self.settings.secrets),
            status=head.status if head else None,
            sent=kind not in _NEVER_SENT.values(),
            attempts=self.attempts,
            retry_after=retry_after(head) if head and pause is None else pause,
            advice=advice,
            retryable=retryable,
        )
