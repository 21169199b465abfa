"""Decides what a download requests, and what each response to it means.

A download resumes only if a strong ``ETag`` shows that the rest is of the same version. If a response is not that rest, the
download starts over.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from contextlib import suppress
from dataclasses import replace
from email.message import Message
from pathlib import PurePath
from typing import Any
from urllib.parse import urljoin, urlsplit

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import meanings
from airflow_provider_cloudstore.protocol.attempts import Attempts
from airflow_provider_cloudstore.protocol.failures import MAX_MESSAGE_LENGTH
from airflow_provider_cloudstore.protocol.finding import absolute_url, secrets_of
from airflow_provider_cloudstore.protocol.guards import validate_text
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import USER_AGENT
from airflow_provider_cloudstore.protocol.reading import PAGE_TYPES, has_sign_of_error, is_rate_limit, read, retry_after
from airflow_provider_cloudstore.protocol.secrets import redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.urls import is_loopback, url_problem
from airflow_provider_cloudstore.results import DownloadedFile, DownloadLink

MAX_REDIRECTS = 5
_PROGRESS = 64 * 1024  # after this many new bytes, the count of attempts starts again
_SHA256 = re.compile("[0-9a-f]{64}")
_LENGTH = re.compile("[0-9]{1,18}")
_WEB_PAGE = re.compile(r"(<\?xml[^>]*>\s*)?<(!doctype\s+)?html[\s>]", re.IGNORECASE)
_ERROR_BYTES = 64 * 1024  # a body of this size or more is not taken for an error in JSON
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LINK_REJECTED = (401, 403, 404, 410)
_REDIRECTS = (301, 302, 303, 307, 308)
_NO_RESPONSE = Response(200, {}, b"", 0, 0)
_ENDED_EARLY = TransportFailure(meanings.IN_DOUBT, "the response ended early")
_ON_NO_URL = (
    "Set extra 'download_url' of the connection to the URL with {token} in the token's place, such as "
    "https://files.example.com/download?download_token={token}."
)
_ON_NO_FILE = "Check that the download URL leads to the file itself, and that no proxy or login page responds instead."
_ON_PAGE_OR_ERROR = f"{_ON_NO_FILE} If it is the file, set expected_sha256, or end the target in .html, .htm or .json as it fits."
_ON_REDIRECT = "Downloads follow a few redirects, over https, on this machine, or over http where extra 'allow_http' is true."
_ON_REJECTED_LINK = "The link was new. Check extra 'download_url' if it is set; otherwise ask whoever runs the service why."


def _length(head: Response) -> int | None:
    """Return the length of a body in bytes; None if the body is chunked, or if its length is unknown."""
    length = "" if "transfer-encoding" in head.headers else head.headers.get("content-length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def _own_name(head: Response) -> str | None:
    """Return the last part of the file name in ``Content-Disposition`` (RFC 6266); None if the header has no name."""
    header = Message()
    header["Content-Disposition"] = head.headers.get("content-disposition", "")
    name = header.get_filename("")
    with suppress(UnicodeError):  # many hosts send UTF-8, but http.client decodes Latin-1
        name = name.encode("latin-1").decode()
    name = _CONTROLS.sub("", re.split(r"[/\\]", name)[-1]).strip()
    return None if name in ("", ".", "..") else name


def validate_sha256(value: Any) -> str | None:
    """Return an expected SHA-256 in lower case, or None if the value is empty.

    :raises InvalidInputError: if the value is not a SHA-256.
    """
    text = str(value or "").strip().lower()
    if text and not _SHA256.fullmatch(text):
        raise exceptions.InvalidInputError(f"expected_sha256 must be 64 hexadecimal digits, not {value!r}")
    return text or None


class Download:
    """The download of one file, over as many requests as it takes.

    An attempt calls :meth:`start_attempt`, then :meth:`accept_head` until it returns None, then :meth:`accept_body` to the end.

    :param expected_sha256: the SHA-256 of the whole file; None for no check.
    :ivar attempts: the attempts since the last 64 KiB of new bytes; redirects are not counted.
    :ivar position: the position of the next byte to download; 0 if the download starts over.
    :raises InvalidInputError: if the id or the SHA-256 is invalid.
    """

    def __init__(self, file_id: Any, settings: Settings, *, expected_sha256: Any = None) -> None:
        self.settings = settings
        self.file_id = validate_text(file_id, "file_id")
        self.attempts = Attempts(settings.max_attempts)
        self._expected = validate_sha256(expected_sha256)
        self._progress = 0  # the position at which the count of attempts last started again
        self._start_over(_NO_RESPONSE)

    def _start_over(self, head: Response) -> None:
        self._whole = head  # the head of the response that the file began with
        self.position, self._digest, self._beginning = 0, hashlib.sha256(), bytearray()

    def start_attempt(self, link: DownloadLink) -> Request:
        """Return the first request of the next attempt.

        :raises ConfigurationError: if the link has no URL, or if its URL would expose the token.
        """
        url = link.url_with_token
        if not url:
            reason = "the service's response has a download token but no download URL"
            raise self._error(exceptions.ConfigurationError, reason, advice=_ON_NO_URL)
        if problem := url_problem(url, allow_http=self.settings.allow_http):
            raise self._error(exceptions.ConfigurationError, f"the download URL {problem}; nothing was downloaded")
        if _length(self._whole) is None or not re.match('"[^"]', self._whole.headers.get("etag", "")):
            self._start_over(_NO_RESPONSE)
        self.attempts, self._redirects = self.attempts.next(), 0
        self._secrets = (*self.settings.secrets, *secrets_of(link))
        self._path = urlsplit(url).path
        return self._get(absolute_url(url, self.settings.base_url))

    def _get(self, url: str) -> Request:
        """Return the request for the next bytes. It does not contain the access token."""
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        if self.position:
            headers |= {"Range": f"bytes={self.position}-", "If-Range": self._whole.headers["etag"]}
        self._request = Request("GET", url.partition("#")[0], headers)
        return self._request

    def accept_head(self, head: Response | TransportFailure) -> Request | None:
        """Return the request to which a response redirects; None if the response's body has the requested bytes.

        :raises CloudStoreError: if the response does neither; ``retried`` says whether to make another attempt.
        """
        if isinstance(head, TransportFailure):
            raise self._broken(head)
        if head.status in _REDIRECTS:
            return self._redirected(head)
        if head.status == 200 and (self._expected or "transfer-encoding" in head.headers or _length(head) is not None):
            self._start_over(head)
        elif head.status != 206 or not self._is_rest(head):
            raise self._rejected(head)
        return None

    def _redirected(self, head: Response) -> Request:
        source, url = self._request.url, head.headers.get("location", "")
        is_local = is_loopback(urlsplit(source).hostname or "")
        with suppress(ValueError):  # if the target is not a URL, url_problem says so
            url = urljoin(source, url)
        self._redirects += 1
        problem = url_problem(url, allow_http=self.settings.allow_http, allow_loopback=is_local)
        if problem or self._redirects > MAX_REDIRECTS:
            what = f"the target of the redirect {problem}" if problem else f"more than {MAX_REDIRECTS} redirects"
            raise self._error(exceptions.BadRequestError, f"HTTP {head.status}: {what}", head, _ON_REDIRECT)
        return self._get(absolute_url(url, source))

    def _is_rest(self, head: Response) -> bool:
        """Whether the body is the requested rest of the same version, in the same content coding."""
        total, whole = _length(self._whole), self._whole.headers
        coding = whole.get("content-encoding", "")
        return (
            total is not None
            and head.headers.get("content-range", "").lower() == f"bytes {self.position}-{total - 1}/{total}"
            and head.headers.get("etag") == whole.get("etag")
            and head.headers.get("content-encoding", coding) == coding
            and _length(head) == total - self.position
        )

    def _rejected(self, head: Response) -> CloudStoreError:
        status = head.status
        if status in (206, 416):
            self._start_over(_NO_RESPONSE)
            reason = f"HTTP {status}: the file changed, or its host sends other ranges"
            return self._error(exceptions.FileChangedError, reason, head)
        if status in _LINK_REJECTED:
            reason = f"HTTP {status}: the download host rejected the link"
            return self._error(exceptions.LinkRejectedError, reason, head, _ON_REJECTED_LINK)
        if status >= 400:
            kind = exceptions.RateLimitError if is_rate_limit(head) else meanings.of_status(status).error
            return self._error(kind, f"HTTP {status}", head)
        reason = f"HTTP {status}"
        if status == 200:
            reason += ": neither Content-Length nor chunks tell where the file ends; expected_sha256 makes that acceptable"
        return self._error(exceptions.InvalidResponseError, reason, head, _ON_NO_FILE)

    def accept_body(self, piece: bytes | TransportFailure) -> bytes:
        """Count and hash the next bytes of the body, and return them. An empty piece marks the end of the body.

        :raises CloudStoreError: if bytes are missing.
        """
        if not piece and _length(self._whole) not in (None, self.position):
            piece = _ENDED_EARLY
        if isinstance(piece, TransportFailure):
            raise self._broken(piece)
        self._digest.update(piece)
        self._beginning += piece[: _ERROR_BYTES - len(self._beginning)]
        self.position += len(piece)
        if self.position - self._progress >= _PROGRESS:  # bytes that are received again are no progress
            self._progress = self.position
            self.attempts = Attempts(self.settings.max_attempts, count=1)
        return piece

    def _broken(self, failure: TransportFailure) -> CloudStoreError:
        reason = f"{failure.reason} at byte {self.position:,}" if self.position else failure.reason
        return self._error(failure.meaning.error, f"download host: {reason}", advice=failure.meaning.advice)

    def result(self, path: str) -> DownloadedFile:
        """Return the description of the downloaded file.

        :param path: where the file was written.
        :raises ChecksumError: if the file's SHA-256 is not the expected SHA-256.
        :raises InvalidResponseError: if the host sent a web page or an error in place of the file, and no SHA-256 is expected.
        """
        digest = self._digest.hexdigest()
        if self._expected and digest != self._expected:
            reason = f"the SHA-256 of the {self.position:,} bytes is {digest}, not {self._expected}"
            raise self._error(exceptions.ChecksumError, reason)
        if not self._expected and (what := self._page_or_error(path)):
            raise self._error(exceptions.InvalidResponseError, f"HTTP 200 with {what}", self._whole, _ON_PAGE_OR_ERROR)
        name = _own_name(self._whole)
        return DownloadedFile(self.file_id, path, name and redact(name, self._secrets), self.position, digest)

    def _page_or_error(self, path: str) -> str:
        """Describe the web page or error that a host sent with HTTP 200 in place of the file; empty if the body is the file."""
        if not self.position or "content-disposition" in self._whole.headers:
            return ""
        beginning = bytes(self._beginning)
        with suppress(zlib.error):  # it is not compressed
            beginning = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(beginning, _ERROR_BYTES)
        reading = read(replace(self._whole, body=beginning), self._secrets)
        endings = {PurePath(name.lower()).suffix for name in (path, self._path)}  # a redirect's target says nothing
        is_error = self.position < _ERROR_BYTES and not reading.problem and has_sign_of_error(reading, has_result=False)
        if is_error and ".json" not in endings:
            words = reading.safe(reading.words(self.settings.service) or reading.keys)
            return f"an error in place of the file: {words[:MAX_MESSAGE_LENGTH]}"
        is_page = self._whole.headers.get("content-type", "").lower().startswith(PAGE_TYPES) or (
            isinstance(reading.data, str) and _WEB_PAGE.match(reading.data)
        )
        return "a web page in place of the file" if is_page and not endings & {".html", ".htm"} else ""

    def _error(self, kind: type[CloudStoreError], reason: str, head: Response | None = None, advice: str = "") -> CloudStoreError:
        return kind(
            reason,
            operation="download",
            subject=redact(self.file_id, self.settings.secrets),
            status=head.status if head else None,
            attempts=self.attempts.count,
            retry_after=retry_after(head) if head else None,
            advice=advice,
        )
