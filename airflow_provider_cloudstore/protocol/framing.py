"""Validates a response's head and chunks the same for both clients, whose libraries tolerate different errors."""

from __future__ import annotations

import re

from airflow_provider_cloudstore.protocol.messages import MAX_LINE_BYTES

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [0-9]{3}(?: [^\r\n]*)?\r?\n")
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rb"[^\0\r\n]*"
# Some readers ignore the continuation of a folded header, so a header that determines the body's end must not be folded.
_FOLDED_LENGTH = re.compile(rb"(?im)^(?:content-length|transfer-encoding):[^\n]*\n[ \t]")
_FIELDS = re.compile(rb"(?:%b:%b\r?\n(?:[ \t]%b\r?\n)*)*\r?\n" % (_NAME, _VALUE, _VALUE))
_TRAILER = re.compile(rb"%b:%b\r\n" % (_NAME, _VALUE))
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;%b)?\r\n" % _VALUE)


def is_status_line(head: bytes | bytearray) -> bool:
    """Whether a response begins with a status line of HTTP/1.0 or 1.1 (RFC 9112 section 4).

    It is strict where readers differ: no RTSP, no ``HTTP/1.2``, no leading blank line, no other white space.

    :param head: the start of the response, with at least its first line.
    """
    return _STATUS_LINE.match(head) is not None


def is_head(head: bytes | bytearray) -> bool:
    """Whether a response's head is unambiguous (RFC 9112 sections 4 and 5): a status line, and headers without NUL or a lone CR.

    :param head: the status line, the headers and the blank line after them.
    """
    line = _STATUS_LINE.match(head)
    return line is not None and _FIELDS.fullmatch(head, line.end()) is not None and not _FOLDED_LENGTH.search(head)


class Chunks:
    """Validates a chunked body piece by piece (RFC 9112 section 7.1), and ignores what follows it."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._chunk_left = 0  # bytes still expected of the current chunk
        self._after_data = self._in_trailers = self._ended = False

    def accept(self, data: bytes) -> bool:
        """Whether the body is valid so far.

        :param data: the next bytes.
        """
        at = 0
        while at < len(data) and not self._ended:
            if self._chunk_left:
                skipped = min(self._chunk_left, len(data) - at)
                self._chunk_left -= skipped
                at += skipped
                continue
            if whole := self._end_of_whole_chunk(data, at):
                at = whole
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if len(self._line) > (2 if self._after_data else MAX_LINE_BYTES):
                return False
            if self._line.endswith(b"\n"):
                line, self._line = self._line, bytearray()
                if not self._accept_line(line):
                    return False
        return True

    def _end_of_whole_chunk(self, data: bytes, at: int) -> int:
        """Where the chunk that begins here ends, or 0: chunks of one byte would cost four times as much line by line."""
        if self._line or self._after_data or self._in_trailers or not (size := _CHUNK.match(data, at)):
            return 0
        count, end_of_line = int(size[1], 16), size.end()
        end = end_of_line + count + 2
        whole = count and end_of_line - at <= MAX_LINE_BYTES and data[end - 2 : end] == b"\r\n"
        return end if whole else 0

    def _accept_line(self, line: bytearray) -> bool:
        if self._after_data:
            self._after_data = False
            return line == b"\r\n"
        if self._in_trailers:
            self._ended = line == b"\r\n"
            return self._ended or _TRAILER.fullmatch(line) is not None
        size = _CHUNK.fullmatch(line)
        if size is None:
            return False
        self._chunk_left = int(size[1], 16)
        self._after_data = self._chunk_left > 0
        self._in_trailers = not self._chunk_left
        return True
