"""Passes on the bytes of one response in a form that every parser reads alike, so that both clients decide alike."""

from __future__ import annotations

import math
import re

from airflow_provider_cloudstore.protocol import messages

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rb"[^\0\r\n]*"
_FIELDS = re.compile(rb"(?:%b:%b\r?\n(?:[ \t]%b\r?\n)*)*\r?\n" % (_NAME, _VALUE, _VALUE))
_FIELD = re.compile(r"(?m)^([^\s:]+):([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)")
_TRANSFER_ENCODING = re.compile(rb"(?im)^transfer-encoding:[^\r\n]*")
# Some parsers ignore the continuation of a folded header, so one that determines where the body ends must not be folded.
_FOLDED_LENGTH = re.compile(rb"(?im)^(?:content-length|transfer-encoding):[^\n]*\n[ \t]")
_TRAILER = re.compile(rb"%b:%b\r\n" % (_NAME, _VALUE))
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;%b)?\r\n" % _VALUE)


class MalformedResponse(OSError):
    """The bytes received are not one response of HTTP/1.0 or 1.1, are ambiguous, or are too many."""


class IncompleteResponse(OSError):
    """The connection closed before the end of the response."""


class ResponseFilter:
    """Validates one response, and drops what has no meaning here: interim responses, chunk extensions, trailers.

    :param max_bytes: how many bytes may be received for the response.
    :ivar status: the status of the final response, once its head is complete.
    :ivar headers: its headers; see :func:`~airflow_provider_cloudstore.protocol.messages.headers_of`.
    :ivar ended: whether the response is complete.
    :ivar surplus: whether bytes followed it: the connection must not be used again.
    """

    def __init__(self, max_bytes: float = math.inf) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = self.surplus = False
        self._bytes_left, self._head_bytes_left = max_bytes, messages.MAX_HEAD_BYTES  # interim responses count for both
        self._head = bytearray()  # as far as received
        self._chunks: _Chunks | None = None
        self._left = math.inf  # bytes of a body that is not chunked; infinite until the connection closes

    def feed(self, data: bytes) -> bytes:
        """Validate the next bytes received, and return what to pass on.

        :raises MalformedResponse: if they cannot belong to a response.
        """
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise MalformedResponse
        if self.ended:
            self.surplus = True
            return b""
        passed = b""
        if not self.status:
            passed, data = self._receive_head(data)
            if not self.status:
                return b""
        if self._chunks:
            body = self._chunks.feed(data)
            self.ended, rest = self._chunks.ended, self._chunks.rest
        else:
            split = len(data) if self._left > len(data) else int(self._left)
            body, rest = data[:split], data[split:]
            self._left -= split
            self.ended = not self._left
        self.surplus = self.ended and bool(rest)
        return passed + body

    def end(self) -> None:
        """Validate that the response may end here, because the connection closed.

        :raises IncompleteResponse: if it has begun, and its length or its chunks say that bytes are missing.
        """
        if self._head or (self.status and not self.ended and not (self._chunks is None and math.isinf(self._left))):
            raise IncompleteResponse

    def _receive_head(self, data: bytes) -> tuple[bytes, bytes]:
        """The head of the final response once it is complete, and what follows it."""
        at = max(0, len(self._head) - 2)
        self._head += data
        self._head_bytes_left -= len(data)
        while end := _BLANK_LINE.search(self._head, at):
            head, at = bytes(self._head[: end.end()]), 0
            del self._head[: end.end()]
            status = _status_of(head)
            if not messages.is_interim(status):
                rest, self._head = bytes(self._head), bytearray()
                self._begin_body(status, head)
                # http.client takes a body for unchunked if white space follows the word.
                return _TRANSFER_ENCODING.sub(b"Transfer-Encoding: chunked", head) if self._chunks else head, rest
        if self._head_bytes_left < 0:
            raise MalformedResponse
        return b"", b""

    def _begin_body(self, status: int, head: bytes) -> None:
        headers = messages.headers_of(_FIELD.findall(head.decode("latin-1")))
        if not messages.is_unambiguous(status, headers) or _FOLDED_LENGTH.search(head):
            raise MalformedResponse
        self.status, self.headers = status, headers
        if not messages.has_body(status):
            self._left = 0
        elif "transfer-encoding" in headers:
            self._chunks = _Chunks()
        elif length := headers.get("content-length"):
            self._left = int(length)


def _status_of(head: bytes) -> int:
    """The status of an unambiguous head (RFC 9112 sections 4 and 5): no other version, no NUL or lone CR in a header."""
    line = _STATUS_LINE.match(head)
    valid = line and _FIELDS.fullmatch(head, line.end()) and head.count(b"\n") <= messages.MAX_HEADER_LINES + 2
    status = int(line[1]) if line and valid else 0
    if status < 200 and not messages.is_interim(status):
        raise MalformedResponse
    return status


class _Chunks:
    """A chunked body (RFC 9112 section 7.1), passed on without extensions and trailers."""

    def __init__(self) -> None:
        self.ended = False
        self.rest = b""  # an incomplete line; after the end, what follows
        self._left = 0  # bytes of the current chunk
        self._accept_line = self._accept_size

    def feed(self, data: bytes) -> bytes:
        data, at, passed = self.rest + data, 0, []
        while at < len(data) and not self.ended:
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                passed.append(piece)
                at += len(piece)
                continue
            end = data.find(b"\n", at) + 1
            if (end or len(data)) - at > messages.MAX_LINE_BYTES:
                raise MalformedResponse
            if not end:
                break
            passed.append(self._accept_line(data[at:end]))
            at = end
        self.rest = data[at:]
        return b"".join(passed)

    def _accept_size(self, line: bytes) -> bytes:
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise MalformedResponse
        self._left = int(size[1], 16)
        self._accept_line = self._accept_end_of_data if self._left else self._accept_trailer
        return size[1] + b"\r\n"

    def _accept_end_of_data(self, line: bytes) -> bytes:
        if line != b"\r\n":
            raise MalformedResponse
        self._accept_line = self._accept_size
        return line

    def _accept_trailer(self, line: bytes) -> bytes:
        self.ended = line == b"\r\n"
        if not self.ended and not _TRAILER.fullmatch(line):
            raise MalformedResponse
        return line if self.ended else b""
