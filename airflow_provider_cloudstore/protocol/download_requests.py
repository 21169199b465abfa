"""Decides what a download requests, and what each response to it means.

A file continues only where a strong ``ETag`` says that the rest is of the same version. Wherever a response is not that rest, it
starts over.
"""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import suppress
from dataclasses import replace
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.bodies import PAGE_TYPES, read_body
from airflow_provider_cloudstore.protocol.failures import advice_on, error_of
from airflow_provider_cloudstore.protocol.finding import absolute_url, secrets_of
from airflow_provider_cloudstore.protocol.guards import validate_file_id
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import MAX_MESSAGE_LENGTH, USER_AGENT, Reading
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.signals import (
    has_sign_of_error,
    is_rate_limit,
    of_failure,
    of_status,
    retry_after,
    words_of,
)
from airflow_provider_cloudstore.protocol.urls import is_loopback, url_problem
from airflow_provider_cloudstore.results import DownloadedFile, DownloadLink

MAX_REDIRECTS = 5
_PROGRESS = 64 * 1024  # new bytes after which attempts are counted anew
_OPERATION = "download"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII | re.IGNORECASE)
_LENGTH = re.compile("[0-9]{1,18}")
_WEB_PAGE = re.compile(r"(<\?xml[^>]*>\s*)?<(!doctype\s+)?html[\s>]", re.IGNORECASE)
_ERROR_BYTES = 64 * 1024  # JSON of this size or more is no error
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LINK_REJECTED = (401, 403, 404, 410)
_REDIRECTS = (301, 302, 303, 307, 308)
_ON_NO_FILE = "Check that the download URL leads to the file itself, and that no proxy or login page responds instead."
_ON_PAGE_OR_ERROR = f"{_ON_NO_FILE} If it is the file, set expected_sha256, or end the target in .html, .htm or .json as it fits."
_ON_REDIRECT = "Downloads follow a few redirects, over https, on this machine, or over http where extra 'allow_http' is true."
_ON_REJECTED_LINK = (
    "The link was new. Check extra 'download_url' of the connection if it is set; "
    "otherwise ask whoever runs the service why its download host rejects links."
)


class _Version(NamedTuple):
    """What identifies a version of a file: its size in bytes, or None if unknown, and its headers (RFC 9110 section 8.8)."""

    total: int | None = None
    etag: str = ""
    last_modified: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether what has the same size and ``ETag`` has the same bytes: the size is known, and the ``ETag`` strong."""
        return self.total is not None and self.etag.startswith('"') and len(self.etag) > 2


def download_url(link: DownloadLink, settings: Settings) -> Secret:
    """The download URL of a link.

    :raises ConfigurationError: if there is none, or it would expose the token.
    """
    url = link.url_with_token or ""
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
    return Secret(absolute_url(url, settings.base_url).partition("#")[0])


def _length(head: Response) -> int | None:
    """How many bytes a body has; None if its chunks tell, or nothing does."""
    length = "" if "transfer-encoding" in head.headers else head.headers.get("content-length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def _own_name(head: Response) -> str | None:
    """The last part of the name in ``Content-Disposition`` (RFC 6266); None if there is none."""
    header = Message()
    header["Content-Disposition"] = head.headers.get("content-disposition", "")
    given: list[Any] = [value for key, value in header.get_params([], "content-disposition") if key.lower() == "filename"]
    encoded = [value for value in given if isinstance(value, tuple)]  # filename*, which takes precedence
    text = collapse_rfc2231_value([*encoded, *given, ""][0])
    if not encoded:
        with suppress(UnicodeError):  # many hosts send UTF-8, and http.client reads Latin-1
            text = text.encode("latin-1").decode()
    name = _CONTROLS.sub("", re.split(r"[/\\]", text)[-1]).strip()
    return None if name in ("", ".", "..") else name


def validate_sha256(value: Any) -> str | None:
    """An expected SHA-256 in lower case, or None if none is expected.

    :raises InvalidInputError: if it is none.
    """
    text = value.strip() if isinstance(value, str) else value
    if text in (None, ""):
        return None
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise exceptions.InvalidInputError(f"expected_sha256 must be 64 hexadecimal digits, not {value!r}")
    return text.lower()


class Download:
    """One file, over as many requests as it takes.

    For each attempt a client calls :meth:`start_attempt`, :meth:`follow_redirect` until there is none, :meth:`accept_head`,
    :meth:`accept_body` for each piece, and :meth:`finish_attempt`.

    :param expected_sha256: the SHA-256 of the whole file; None for no check.
    :ivar attempts: those since the last one that brought 64 KiB, redirects not counted.
    :ivar position: the next byte to download; 0 if the file starts over.
    :raises InvalidInputError: if the id or the SHA-256 is invalid.
    """

    def __init__(self, file_id: Any, settings: Settings, *, expected_sha256: Any = None) -> None:
        self.settings = settings
        self.file_id = validate_file_id(file_id)
        self.attempts = Attempts(settings.max_attempts)
        self.position = self._furthest = self._began_at = 0
        self._version = _Version()
        self._expected = validate_sha256(expected_sha256)
        self._digest = hashlib.sha256()
        self._url = Secret("")
        self._secrets = settings.secrets
        self._redirects = 0
        self._path = ""  # of the download URL
        self._whole = Response(200, {}, b"", 0, 0)  # the head of the response that the file began with
        self._beginning = bytearray()

    def start_attempt(self, link: DownloadLink) -> Request:
        """The first request of the next attempt.

        :raises ConfigurationError: if the link has no usable URL.
        """
        self._url, self._redirects = download_url(link, self.settings), 0
        self._secrets = (*self.settings.secrets, *secrets_of(link))
        self._path = urlsplit(self._url.reveal()).path
        self.attempts = self.attempts.next()
        self._began_at = self._furthest
        if not self._version.is_certain:
            self._restart()
        return self.request()

    def _restart(self) -> None:
        self.position, self._digest, self._version = 0, hashlib.sha256(), _Version()
        self._beginning = bytearray()

    def request(self) -> Request:
        """The request for the next bytes, at the link or where it redirected to. It has no access token."""
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        if self.position:
            headers |= {"Range": f"bytes={self.position}-", "If-Range": self._version.etag}
        return Request("GET", self._url.reveal(), headers)

    def follow_redirect(self, head: Response) -> bool:
        """Whether the response is a redirect; then :meth:`request` goes to its target.

        :raises BadRequestError: if the redirect must not be followed.
        """
        if head.status not in _REDIRECTS:
            return False
        source, url = self._url.reveal(), head.headers.get("location", "")
        is_local = is_loopback(urlsplit(source).hostname or "")
        with suppress(ValueError):  # then it is no URL, as url_problem says
            url = urljoin(source, url).partition("#")[0]
        self._redirects += 1
        problem = url_problem(url, allow_http=self.settings.allow_http, allow_loopback=is_local)
        if problem or self._redirects > MAX_REDIRECTS:
            what = f"the target of the redirect {problem}" if problem else f"more than {MAX_REDIRECTS} redirects"
            raise self._error(exceptions.BadRequestError, f"HTTP {head.status}: {what}", head, _ON_REDIRECT)
        self._url = Secret(absolute_url(url, source))
        return True

    def accept_head(self, head: Response) -> None:
        """Check that a response has the requested bytes. If :attr:`position` is 0, the file starts over.

        :raises CloudStoreError: if it does not; ``retried`` says whether to make another attempt.
        """
        if head.status == 200:
            self._accept_whole(head)
        elif head.status in (206, 416):
            self._accept_rest(head)
        else:
            raise self._rejected(head)

    def _accept_whole(self, head: Response) -> None:
        total = _length(head)
        if total is None and "transfer-encoding" not in head.headers and not self._expected:
            reason = "HTTP 200 with neither Content-Length nor chunks, so that a truncated file would go unnoticed"
            raise self._error(
                exceptions.InvalidResponseError, f"{reason}; expected_sha256 makes it acceptable", head, _ON_NO_FILE
            )
        self._restart()
        self._version = _Version(total, head.headers.get("etag", ""), head.headers.get("last-modified", ""))
        self._whole = head

    def _accept_rest(self, head: Response) -> None:
        found = _CONTENT_RANGE.fullmatch(head.headers.get("content-range", ""))
        first, last, total = map(int, found.groups()) if found else (-1, -1, 0)
        version = _Version(total, head.headers.get("etag", ""), head.headers.get("last-modified", ""))
        is_requested = head.status == 206 and (first, last + 1) == (self.position, total)
        if not (is_requested and self._is_part(head, last + 1 - first)) or self._version not in (_Version(), version):
            self._restart()
            reason = f"HTTP {head.status}: the file changed, or its host sends other ranges than requested"
            raise self._error(exceptions.FileChangedError, reason, head)
        self._version = version

    def _is_part(self, head: Response, length: int) -> bool:
        """Whether the body can be that many bytes of the file as it began: neither of another coding, nor in several parts."""
        coding = self._whole.headers.get("content-encoding", "")
        is_alike = head.headers.get("content-encoding", coding) == coding
        return is_alike and _length(head) in (None, length) and not head.headers.get("content-type", "").startswith("multipart/")

    def _rejected(self, head: Response) -> exceptions.CloudStoreError:
        status = head.status
        if status in _LINK_REJECTED:
            reason = f"HTTP {status}: the download host rejected the link"
            return self._error(exceptions.LinkRejectedError, reason, head, _ON_REJECTED_LINK)
        if is_rate_limit(head):
            return self._error(exceptions.RateLimitError, f"HTTP {status}", head)
        if status < 400:
            return self._error(exceptions.InvalidResponseError, f"HTTP {status}", head, _ON_NO_FILE)
        return self._error(error_of(of_status(status), idempotent=True), f"HTTP {status}", head)

    @property
    def bytes_wanted(self) -> float:
        """How many bytes are missing; infinite if only the end of the body tells."""
        total = self._version.total
        return math.inf if total is None else total - self.position

    def accept_body(self, piece: bytes) -> None:
        """Count and digest the next bytes of the body."""
        self._digest.update(piece)
        self._beginning += piece[: _ERROR_BYTES - len(self._beginning)]
        self.position += len(piece)

    def finish_attempt(self, failure: TransportFailure | None) -> None:
        """Check that the attempt downloaded all of its bytes.

        :raises CloudStoreError: if bytes are missing.
        """
        self._furthest = max(self._furthest, self.position)
        if self._furthest - self._began_at >= _PROGRESS:  # bytes that come a second time are no progress
            self.attempts = Attempts(self.settings.max_attempts, count=1)
        if not failure and self.bytes_wanted in (0, math.inf):
            return
        reason = failure.reason if failure else "the response ended early"
        if self.position:
            reason += f" at byte {self.position:,}"
        kind: type[exceptions.CloudStoreError] = exceptions.TransientServiceError
        if failure:
            kind = error_of(of_failure(failure), idempotent=True)
        raise self._error(kind, reason, advice="" if kind.sent or not failure else advice_on(failure, "the download host"))

    def result(self, path: str) -> DownloadedFile:
        """What was downloaded.

        :param path: where it was written to.
        :raises ChecksumError: if its SHA-256 is not the expected one.
        :raises InvalidResponseError: if it is a web page or an error in place of the file, and no SHA-256 is expected.
        """
        digest = self._digest.hexdigest()
        if self._expected and digest != self._expected:
            reason = f"the SHA-256 of the {self.position:,} bytes is {digest}, not {self._expected}"
            raise self._error(exceptions.ChecksumError, reason)
        if not self._expected and (what := self._in_place_of_the_file(path)):
            raise self._error(exceptions.InvalidResponseError, f"HTTP 200 with {what}", self._whole, _ON_PAGE_OR_ERROR)
        name = _own_name(self._whole)
        return DownloadedFile(self.file_id, path, name and redact(name, self._secrets), self.position, digest)

    def _in_place_of_the_file(self, path: str) -> str:
        """The web page or the error that a host may have sent with HTTP 200; empty if this is the file."""
        if not self.position or "content-disposition" in self._whole.headers:
            return ""
        whole = replace(self._whole, body=bytes(self._beginning))
        body = read_body(whole)
        is_error = self.position < _ERROR_BYTES and not body.problem and has_sign_of_error(body, has_result=False)
        if is_error and not self._is_named(path, ".json"):
            words = Reading(whole, body, self._secrets).safe(words_of(body, self.settings.service) or body.keys)
            return f"an error in place of the file: {words[:MAX_MESSAGE_LENGTH]}"
        is_page = whole.headers.get("content-type", "").lower().startswith(PAGE_TYPES) or (
            isinstance(body.data, str) and _WEB_PAGE.match(body.data)
        )
        return "a web page in place of the file" if is_page and not self._is_named(path, ".html", ".htm") else ""

    def _is_named(self, path: str, *endings: str) -> bool:
        """Whether the target or the download URL has one of these endings. Where a redirect leads to says nothing."""
        return path.lower().endswith(endings) or self._path.lower().endswith(endings)

    def _error(
        self,
        kind: type[exceptions.CloudStoreError],
        reason: str,
        head: Response | None = None,
        advice: str = "",
    ) -> exceptions.CloudStoreError:
        return kind(
            reason,
            operation=_OPERATION,
            subject=redact(self.file_id, self.settings.secrets),
            status=head.status if head else None,
            attempts=self.attempts.count,
            retry_after=retry_after(head) if head else None,
            advice=advice,
        )
