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
from urllib.parse import urlsplit

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import signals
from airflow_provider_cloudstore.protocol.convention import reports_error
from airflow_provider_cloudstore.protocol.extraction import absolute_url, link_secrets
from airflow_provider_cloudstore.protocol.guards import validate_text
from airflow_provider_cloudstore.protocol.http import COMMON_HEADERS, Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.reading import PAGE_TYPES, Reading, read
from airflow_provider_cloudstore.protocol.retries import Retries
from airflow_provider_cloudstore.protocol.secrets import redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.urls import url_problem
from airflow_provider_cloudstore.results import DownloadedFile, DownloadLink

MAX_REDIRECTS = 5
BEGINNING = 64 * 1024
"""How many bytes of the file :meth:`Download.result` needs; JSON of this size or more is not taken for an error."""
_SHA256 = re.compile("[0-9a-f]{64}")
_LENGTH = re.compile("[0-9]{1,18}")
_STRONG_ETAG = re.compile('"[^"]')
_WEB_PAGE = re.compile(r"(<\?xml[^>]*>\s*)?<(!doctype\s+)?html[\s>]", re.IGNORECASE)
_LINK_REJECTED = (401, 403, 404, 410)
_REDIRECTS = (301, 302, 303, 307, 308)
_NO_RESPONSE = Response(200, {}, b"", 0, 0)
_ON_NO_URL = (
    "Set extra 'download_url' of the connection to the URL with {token} in the token's place, such as "
    "https://files.example.com/download?download_token={token}."
)
_ON_NO_FILE = (
    "Check that the download URL leads to the file itself, and that no proxy or login page responds instead. If it is the file, "
    "set expected_sha256."
)
_ON_URL = "Downloads follow a few redirects, over https, on this machine, or over http where extra 'allow_http' is true."
_ON_REJECTED = "The link was new. Check extra 'download_url' if it is set; otherwise ask whoever runs the service why."


def _length(head: Response) -> int | None:
    """Return the length of a body in bytes; None if it is unknown."""
    length = head.headers.get("content-length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def _own_name(head: Response) -> str | None:
    """Return the last part of the file name in ``Content-Disposition`` (RFC 6266); None if the header has no name."""
    header = Message()
    header["Content-Disposition"] = head.headers.get("content-disposition", "")
    name = header.get_filename("")
    with suppress(UnicodeError):  # many hosts send UTF-8, but http.client decodes Latin-1
        name = name.encode("latin-1").decode()
    name = "".join(filter(str.isprintable, re.split(r"[/\\]", name)[-1])).strip()
    return None if name in ("", ".", "..") else name


def validate_sha256(value: Any) -> str | None:
    """Return an expected SHA-256 in lower case, or None if the value is empty; refuse anything else."""
    text = str(value or "").strip().lower()
    if text and not _SHA256.fullmatch(text):
        raise exceptions.InvalidInputError(f"expected_sha256 must be 64 hexadecimal digits, not {value!r}")
    return text or None


class Download:
    """The download of one file: it makes the requests, judges the responses, and keeps what one attempt leaves to the next.

    :param expected_sha256: the SHA-256 of the whole file; None for no check.
    :ivar retries: count the attempts; redirects are not counted.
    :ivar received: how many bytes of the file have been received.
    :raises InvalidInputError: if the id or the SHA-256 is invalid.
    """

    def __init__(self, file_id: Any, settings: Settings, *, expected_sha256: Any = None) -> None:
        self.settings = settings
        self.file_id = validate_text(file_id, "file_id")
        self.retries = Retries(settings)
        self._expected = validate_sha256(expected_sha256)
        self._start_over()

    def _start_over(self, head: Response = _NO_RESPONSE) -> None:
        """Forget what was received; the file begins with the body of this response, or with that of the next one."""
        self._whole, self.received, self._sha256 = head, 0, hashlib.sha256()

    def url_of(self, link: DownloadLink) -> str:
        """Return the URL of a link.

        :raises ConfigurationError: if the link has none.
        """
        if link.url_with_token:
            return absolute_url(link.url_with_token, self.settings.base_url)
        reason = "the service's response has a download token but no download URL"
        raise self._error(exceptions.ConfigurationError, reason, advice=_ON_NO_URL)

    def request(self, url: str) -> Request:
        """Return a request for the bytes after the received ones, or for the whole file. It does not contain the access token.

        :raises BadRequestError: if a request would expose the token in the URL.
        """
        if problem := url_problem(url, allow_http=self.settings.allow_http):
            raise self._error(exceptions.BadRequestError, f"the URL of the download or of a redirect {problem}", advice=_ON_URL)
        headers = {**COMMON_HEADERS, "Accept": "*/*"}
        if self.received and self._etag:
            headers |= {"Range": f"bytes={self.received}-", "If-Range": self._etag}
        return Request("GET", url.partition("#")[0], headers)

    def redirect(self, head: Response, source: str, count: int) -> str:
        """Return the URL to which the response to ``source`` redirects, after ``count`` redirects; empty if it does not."""
        if head.status not in _REDIRECTS:
            return ""
        if count >= MAX_REDIRECTS:
            raise self._error(exceptions.BadRequestError, f"more than {MAX_REDIRECTS} redirects", head, _ON_URL)
        return absolute_url(head.headers.get("location", ""), source)

    @property
    def _etag(self) -> str:
        """The strong ETag of the version that the file began with; empty if the download cannot resume."""
        etag = self._whole.headers.get("etag", "") if _length(self._whole) else ""
        return etag if _STRONG_ETAG.match(etag) else ""

    def accept(self, head: Response) -> int:
        """Accept a response whose body is the file or its rest, and return the position in the file at which that body begins.

        :raises CloudStoreError: if the body is neither; ``retried`` says whether to make another attempt.
        """
        is_chunked = head.headers.get("transfer-encoding", "").lower() == "chunked"
        if head.status == 200 and (self._expected or is_chunked or _length(head) is not None):
            self._start_over(head)
            return 0
        if head.status == 206 and self._etag and (total := _length(self._whole)):
            rest = {"etag": self._etag, "content-range": f"bytes {self.received}-{total - 1}/{total}"}
            if rest.items() <= head.headers.items():
                return self.received
        if head.status in (206, 416):
            self._start_over()
        raise self._rejection(head)

    def _rejection(self, head: Response) -> CloudStoreError:
        reason = f"HTTP {head.status}"
        if head.status in (206, 416):
            reason += " in place of the rest of the file"
            return self._error(exceptions.TransientServiceError, reason, head)
        if head.status in _LINK_REJECTED:
            return self._error(
                exceptions.TransientServiceError, f"{reason}: the download host rejected the link", head, _ON_REJECTED
            )
        if head.status >= 300:
            kind = signals.of_status(head.status).error
            return self._error(kind, reason, head, _ON_URL if head.status < 400 else "")
        return self._error(exceptions.InvalidResponseError, f"{reason} without a file, or without its length", head, _ON_NO_FILE)

    def add(self, piece: bytes) -> None:
        """Count and hash bytes of the body that was accepted."""
        self.received += len(piece)
        self._sha256.update(piece)

    def check_end(self) -> None:
        """Check that no bytes are missing when a body has ended.

        :raises CloudStoreError: if bytes are missing.
        """
        if _length(self._whole) not in (None, self.received):
            raise self.without_response(TransportFailure(sent=True, reason="the response ended early"))

    def without_response(self, failure: TransportFailure) -> CloudStoreError:
        """Return the error for a response that did not come, or that broke."""
        kind = exceptions.TransientServiceError if failure.sent else exceptions.ServiceUnreachableError
        return self._error(kind, f"download host: {failure.reason}")

    def result(self, link: DownloadLink, path: str, beginning: bytes) -> DownloadedFile:
        """Return the description of the downloaded file.

        :param beginning: the first :data:`BEGINNING` bytes of the file.
        :raises ChecksumError: if the file's SHA-256 is not the expected SHA-256.
        :raises InvalidResponseError: if the host sent a web page or an error in place of the file, and no SHA-256 is expected.
        """
        digest = self._sha256.hexdigest()
        if self._expected and digest != self._expected:
            reason = f"the SHA-256 of the {self.received:,} bytes is {digest}, not {self._expected}"
            raise self._error(exceptions.ChecksumError, reason)
        with suppress(zlib.error):  # another content coding
            if "content-encoding" in self._whole.headers:
                beginning = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(beginning, BEGINNING)
        secrets = (*self.settings.secrets, *link_secrets(link))
        reading = read(replace(self._whole, body=beginning), self.settings, secrets)
        names = path, urlsplit(link.url_with_token or "").path  # a redirect's target says nothing
        if not self._expected and (what := _page_or_error(reading, names)):
            raise self._error(exceptions.InvalidResponseError, f"HTTP 200 with {what}", self._whole, _ON_NO_FILE)
        name = _own_name(self._whole)
        return DownloadedFile(self.file_id, path, name and redact(name, secrets), self.received, digest)

    def _error(self, kind: type[CloudStoreError], reason: str, head: Response | None = None, advice: str = "") -> CloudStoreError:
        return kind(
            reason,
            operation="download",
            subject=redact(self.file_id, self.settings.secrets),
            status=head.status if head else None,
            attempts=self.retries.count,
            retry_after=head.retry_after if head else None,
            advice=advice,
        )


def _page_or_error(reading: Reading, names: tuple[str, ...]) -> str:
    """Describe the web page or error that a host sent with HTTP 200 in place of the file; empty if the body is the file."""
    headers, beginning = reading.response.headers, reading.response.body
    if not beginning or "content-disposition" in headers:
        return ""
    endings = {PurePath(name.lower()).suffix for name in names}
    is_error = len(beginning) < BEGINNING and isinstance(reading.data, dict) and reports_error(reading.data, has_result=False)
    if is_error and not any("json" in ending for ending in endings):
        return f"an error in place of the file: {reading.message or reading.key_names}"
    is_page = headers.get("content-type", "").lower().startswith(PAGE_TYPES) or (
        isinstance(reading.data, str) and _WEB_PAGE.match(reading.data)
    )
    return "a web page in place of the file" if is_page and not endings & {".html", ".htm"} else ""
