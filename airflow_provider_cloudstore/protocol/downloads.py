"""Downloads: where a link leads, what a response to it means, and which bytes still have to come. No byte is kept here.

==========================================  ==================================================================================
what happened                               whole file (a block of one, read through the filesystem, where it differs)
==========================================  ==================================================================================
the connection broke, 5xx, 429              again, with ``Range`` and ``If-Range`` from the byte that is due
206 that continues exactly                  the rest
200, where a part was asked for             the file from its start (what lies before the block is passed over)
206 or 416 that does not fit, new version   again from the start (``FileChangedError``)
401, 403, 404, 410 of the download host     again with a new link, at most three times in a row
redirect                                    followed, up to five times, over https, or from this machine to itself
everything else                             permanent
==========================================  ==================================================================================
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from airflow_provider_cloudstore import __version__
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.failures import retry_after
from airflow_provider_cloudstore.protocol.messages import FailureKind, Request, Response, TransportFailure, is_unambiguous
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK
from airflow_provider_cloudstore.protocol.results import DownloadedFile, DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings, is_loopback
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

MAX_REDIRECTS = 5
MAX_REJECTED_LINKS = 3
"""Links that the download host may refuse in a row, before it is believed that it refuses them all."""
_PROGRESS = 64 * 1024  # bytes that make an attempt a success of its own: what comes after them is counted anew
_OPERATION = "download"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)
_EMPTY_RANGE = re.compile(r"bytes \*/0", re.ASCII | re.IGNORECASE)
_LINK_REJECTED = (401, 403, 404, 410)
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What tells two states of a file apart (RFC 9110 section 8.8).

    :param total: its size in bytes, or None where the host does not say.
    :param etag: its ``ETag``; empty where there is none.
    :param last_modified: its ``Last-Modified``; empty where there is none.
    :param validator: what ``If-Range`` may hold: one of the two, if it is strong (section 13.1.5).
    """

    total: int | None
    etag: str
    last_modified: str
    validator: str

    @classmethod
    def of(cls, headers: Mapping[str, str], total: int | None) -> Self:
        """The version that a response speaks of.

        :param headers: the response's.
        :param total: the size that it tells.
        """
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        strong = etag if etag.startswith('"') else modified if _is_strong(modified, headers.get("date", "")) else ""
        return cls(total, etag, modified, strong)

    def matches(self, other: FileVersion) -> bool:
        """Whether nothing speaks against both being the same bytes.

        :param other: what a later response says.
        """
        pairs = ((self.total, other.total), (self.etag, other.etag), (self.last_modified, other.last_modified))
        return all(one == two or None in (one, two) for one, two in pairs)


def _is_strong(modified: str, date: str) -> bool:
    try:
        return (parsedate_to_datetime(date) - parsedate_to_datetime(modified)).total_seconds() >= 1
    except (ValueError, TypeError):  # not a date, or only one of them with its offset
        return False


def download_url(link: DownloadLink, settings: Settings) -> Secret:
    """The address to download from: the one in the response, or else the one that extra ``download_url`` says.

    :param link: the link.
    :param settings: the connection.
    :raises ConfigurationError: if there is none, or its scheme gives the token away.
    """
    template = settings.download_url
    url = link.url_with_token or (template.replace("{token}", quote(link.token, safe="")) if template else "")
    if not url:
        raise _rejection(
            errors.ConfigurationError,
            "the service's response holds a download token, and no URL to download from: set extra 'download_url' of the "
            "connection to the URL with {token} in the token's place, such as "
            "https://files.example.com/download?download_token={token}",
            link.file_id,
        )
    problem = _problem_of(url, http_to_everybody=settings.allow_http)
    if problem:
        raise _rejection(
            errors.ConfigurationError, f"the download URL that the service gives {problem}; nothing was downloaded", link.file_id
        )
    return _as_sent(url)


def _as_sent(url: str) -> Secret:
    parts = urlsplit(url)
    path, query = (quote(part, safe="!$%&'()*+,/:;=?@[]~") for part in (parts.path, parts.query))  # what is encoded stays so
    return Secret(urlunsplit((parts.scheme, parts.netloc, path, query, "")))


def _rejection(kind: type[errors.CloudStoreError], what: str, file_id: str) -> errors.CloudStoreError:
    return kind(what, operation=_OPERATION, subject=file_id)


def _problem_of(url: str, *, http_to_everybody: bool = False, http_to_this_machine: bool = True) -> str:
    """What is wrong with an address that is about to be downloaded from; the words hold nothing of it but the scheme."""
    try:
        parts = split_url(url)
    except AmbiguousUrlError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return f"has the scheme '{parts.scheme}'"
    if parts.username is not None:
        return "holds a user or a password"
    fine = http_to_everybody or (http_to_this_machine and is_loopback(parts.hostname or ""))
    return "is plain http, which shows the token to everybody on the way" if parts.scheme == "http" and not fine else ""


def validate_sha256(value: Any) -> str | None:
    """The expected SHA-256 in lower case, or None where none is expected.

    :param value: what was given or rendered: 64 hexadecimal digits, None or an empty text.
    :raises InvalidInputError: if it is anything else.
    """
    text = value.strip() if isinstance(value, str) else value
    if text in (None, ""):
        return None
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise errors.InvalidInputError(f"expected_sha256 must be 64 hexadecimal digits, not {value!r}; nothing was sent")
    return text.lower()


class Download:
    """One file, or a part of it, over as many connections and links as it takes.

    A client's loop is: ``use`` a link where one is needed, ``request``, while it ``redirects`` ``request`` again, ``begin`` the
    body, ``received`` each piece, ``end`` it.

    :param file_id: the file.
    :param settings: the connection.
    :param expected_sha256: what the whole file must have.
    :raises InvalidInputError: if the guard refuses one of them; nothing was sent.
    """

    token_rejected = False  # no access token takes part: the download carries its own

    def __init__(self, file_id: Any, settings: Settings, *, expected_sha256: Any = None) -> None:
        self.settings = settings
        self.file_id = CREATE_DOWNLOAD_LINK.validate(file_id, settings)
        self.version: FileVersion | None = None
        self.attempts = 0
        self.position = 0
        self._expected = validate_sha256(expected_sha256)
        self._digest = hashlib.sha256()
        self._end: int | None = None
        self._link = self._url = Secret("")
        self._hops = 0
        self._links_rejected = 0
        self._fresh = 0  # bytes since the attempts are counted
        self._furthest = 0  # the highest position so far: bytes that come once more are no progress
        self._left: int | None = None  # bytes that the body still holds

    def narrow(self, start: int, end: int) -> None:
        """Ask for a part next. Link and version stay: the parts are those of one file.

        :param start: its first byte.
        :param end: the byte after its last one.
        """
        self.position, self._end, self.attempts, self._links_rejected, self._fresh = start, end, 0, 0, 0
        self._furthest = start

    @property
    def size(self) -> int:
        """The file's size, once a part of it was read.

        :raises InvalidResponseError: if the download's host does not tell it.
        """
        if self.version is None or self.version.total is None:
            raise self._error(errors.InvalidResponseError, "the download's host does not tell the file's size", None)
        return self.version.total

    @property
    def exhausted(self) -> bool:
        """Whether no attempt is left since the last bytes came; links that were refused have a limit of their own."""
        return self.attempts - self._links_rejected >= self.settings.max_attempts

    @property
    def needs_link(self) -> bool:
        """Whether there is no link, or the last one was refused."""
        return not self._link.reveal()

    def use(self, link: DownloadLink) -> None:
        """Go on with a link.

        :param link: a fresh one.
        :raises ConfigurationError: if it leads nowhere.
        """
        self._link = download_url(link, self.settings)

    def first_request(self) -> Request:
        """The request of the next attempt, at the link."""
        self.attempts += 1
        self._hops, self._url = 0, self._link
        if self._end is None and not (self.version and self.version.validator):
            self._start_over()  # nobody could tell whether the rest is of the same file
        return self.request()

    def request(self) -> Request:
        """The request for the bytes that are due, where the last redirect led. No access token is in it."""
        headers = {"User-Agent": f"airflow-provider-cloudstore/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"}
        if self._asks_for_a_part:
            headers["Range"] = f"bytes={self.position}-{'' if self._end is None else self._end - 1}"
            if self.version and self.version.validator:
                headers["If-Range"] = self.version.validator
        return Request("GET", self._url.reveal(), headers)

    @property
    def _asks_for_a_part(self) -> bool:
        return self.position > 0 or self._end is not None

    def redirects(self, head: Response) -> bool:
        """Whether the response leads elsewhere; :meth:`request` is then the request there.

        :param head: the response, without its body.
        :raises RedirectError: if it leads to where no download goes.
        """
        location = head.headers.get("location")
        if head.status not in _REDIRECTS or location is None:
            return False
        here = self._url.reveal()
        try:
            url = urljoin(here, location).partition("#")[0]
            from_loopback = is_loopback(urlsplit(here).hostname or "")
        except ValueError:
            url, from_loopback = location, False
        self._hops += 1
        problem = f"after {MAX_REDIRECTS} others" if self._hops > MAX_REDIRECTS else ""
        problem = problem or _problem_of(url, http_to_this_machine=from_loopback)
        if problem:
            raise self._error(errors.RedirectError, f"HTTP {head.status}, a redirect that is not followed: {problem}", head)
        self._url = _as_sent(url)
        return True

    def begin(self, head: Response) -> int:
        """Take a response for what is due.

        :param head: the response, without its body.
        :returns: how many bytes of its body come before the first that is due. A body begins at the start of the file again
            where :attr:`position` is 0.
        :raises CloudStoreError: if it is none; ``again`` tells whether the loop goes on.
        """
        if head.status not in (200, 206):
            return self._classify(head)
        coding = head.headers.get("content-encoding", "identity").lower()
        if coding != "identity" or not is_unambiguous(head.status, head.headers):
            raise self._error(
                errors.InvalidResponseError, f"HTTP {head.status} with a body in a coding that nobody asked for", head
            )
        return self._begin_part(head) if head.status == 206 else self._begin_whole(head)

    def _begin_whole(self, head: Response) -> int:
        length = head.headers.get("content-length")
        if length is None and "transfer-encoding" not in head.headers and not self._expected:
            raise self._error(
                errors.InvalidResponseError,
                "HTTP 200 that tells neither its length nor its end, so that nobody could say whether the file is whole; "
                "with expected_sha256 it can be checked",
                head,
            )
        self._left = None if length is None else int(length)
        version = FileVersion.of(head.headers, self._left)
        if self._end is None:
            self._start_over()
        elif self.version and not self.version.matches(version):
            raise self._changed(head)
        self.version = version
        return self.position

    def _begin_part(self, head: Response) -> int:
        found = _CONTENT_RANGE.fullmatch(head.headers.get("content-range", ""))
        first, last = (int(found[1]), int(found[2])) if found else (-1, -1)
        total = int(found[3]) if found and found[3] != "*" else None
        version = FileVersion.of(head.headers, total)
        length = head.headers.get("content-length")
        matches = first == self.position and first <= last and (total is None or last < total)
        if not self._asks_for_a_part:
            raise self._error(errors.InvalidResponseError, "HTTP 206, part of the file, to a request for the whole file", head)
        if not (matches and length in (None, str(last - first + 1))):
            raise self._changed(head, "a part that is not the one asked for")
        if self.version and not self.version.matches(version):
            raise self._changed(head)
        self.version, self._left = self.version or version, last - first + 1
        return 0

    def _classify(self, head: Response) -> int:
        status = head.status
        if status in (412, 416) and self._asks_for_a_part:
            if self.version:
                raise self._changed(head)
            if status == 416 and _EMPTY_RANGE.fullmatch(head.headers.get("content-range", "")):
                self.version, self._left = FileVersion.of(head.headers, 0), 0
                return 0
        if status in _LINK_REJECTED:
            raise self._link_rejected(head)
        if status == 429 or status >= 500:
            limited = status == 429 or (status == 503 and "retry-after" in head.headers)
            raise self._error(errors.RateLimitError if limited else errors.TransientServiceError, f"HTTP {status}", head)
        kind = (
            errors.RequestRejectedError
            if status >= 400
            else errors.RedirectError
            if status >= 300
            else errors.InvalidResponseError
        )
        raise self._error(kind, f"HTTP {status}", head)

    def _link_rejected(self, head: Response) -> errors.CloudStoreError:
        self._link = Secret("")
        self._links_rejected += 1
        if self._links_rejected > MAX_REJECTED_LINKS:
            what = f"HTTP {head.status}: the download host refused {self._links_rejected} links in a row"
            return self._error(errors.DownloadLinkRejectedError, what, head)
        error = self._error(errors.DownloadLinkRejectedError, f"HTTP {head.status}: the link has ended; creating another", head)
        error.retryable = True
        if self._links_rejected == 1:
            error.retry_after = 0.0  # most have ended while the download was under way
        return error

    def _changed(
        self, head: Response, what: str = "another version of the file than the one that was begun"
    ) -> errors.CloudStoreError:
        error = self._error(errors.FileChangedError, f"HTTP {head.status} with {what}", head)
        error.retryable = self._end is None
        if error.retryable:
            self.version = None
            self._start_over()
        return error

    def _start_over(self) -> None:
        self.position, self._digest = 0, hashlib.sha256()

    @property
    def wanted(self) -> int | None:
        """How many bytes of the body are still to be read; None for all that come."""
        due = None if self._end is None else max(0, self._end - self.position)
        return self._left if due is None else due if self._left is None else min(due, self._left)

    def skipped(self, count: int) -> None:
        """Count bytes of the body that were passed over.

        :param count: how many.
        """
        self._left = None if self._left is None else self._left - count

    def received(self, piece: bytes) -> None:
        """Count and digest what came.

        :param piece: the next bytes of the body.
        """
        self._digest.update(piece)
        self.position += len(piece)
        self.skipped(len(piece))
        self._fresh += max(0, self.position - self._furthest)
        self._furthest = max(self._furthest, self.position)
        if self._fresh >= _PROGRESS:
            self.attempts, self._links_rejected, self._fresh = 1, 0, 0

    def end(self, failure: TransportFailure | None) -> None:
        """Settle an attempt whose body is over.

        :param failure: what broke it, if something did.
        :raises CloudStoreError: if bytes are missing.
        """
        total = self.version.total if self.version else None
        due = total if self._end is None else self._end if total is None else min(self._end, total)
        if failure is None and (self._left if due is None else due - self.position) in (None, 0):
            return
        reason = failure.reason if failure else "the response ended early"
        size = f" of {total:,}" if total is not None else ""
        kind = (
            errors.ServiceUnreachableError if failure and failure.kind is FailureKind.NEVER_SENT else errors.TransientServiceError
        )
        where = f" at byte {self.position:,}{size}" if self.position else ""
        raise self._error(kind, reason + where, None)

    def result(self, path: str) -> DownloadedFile:
        """What was downloaded, once no attempt is due any more.

        :param path: where it was written to.
        :raises ChecksumError: if it is not the file that was expected.
        """
        digest = self._digest.hexdigest()
        if self._expected and digest != self._expected:
            what = f"{self.position:,} bytes came, with the SHA-256 {digest} and not {self._expected}"
            raise self._error(errors.ChecksumError, what, None)
        return DownloadedFile(self.file_id, path, self.position, digest)

    def _error(self, kind: type[errors.CloudStoreError], what: str, head: Response | None) -> errors.CloudStoreError:
        return kind(
            what,
            operation=_OPERATION,
            subject=redact(self.file_id, self.settings.secrets),
            status=head.status if head else None,
            sent=kind is not errors.ServiceUnreachableError,
            attempts=self.attempts,
            retry_after=retry_after(head) if head else None,
        )
