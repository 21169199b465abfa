"""Reads a response's head and its chunks alike for both clients, whose libraries forgive different things."""

from __future__ import annotations

import re

from airflow_provider_cloudstore.protocol.messages import MAX_LINE_BYTES

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [0-9]{3}(?: [^\r\n]*)?\r?\n")
_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rb"[^\0\r\n]*"
# Of a header that goes on in the next line some readers see the first line alone: it must not be one that says where a body ends.
_FOLDED_LENGTH = re.compile(rb"(?im)^(?:content-length|transfer-encoding):[^\n]*\n[ \t]")
_FIELDS = re.compile(rb"(?:%b:%b\r?\n(?:[ \t]%b\r?\n)*)*\r?\n" % (_NAME, _VALUE, _VALUE))
_TRAILER = re.compile(rb"%b:%b\r\n" % (_NAME, _VALUE))
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;%b)?\r\n" % _VALUE)


def is_status_line(head: bytes | bytearray) -> bool:
    """Whether a response begins with a status line of HTTP/1.0 or 1.1 (RFC 9112 section 4).

    What only some readers take for one is none: that of RTSP or ``HTTP/1.2``, one behind a blank line or with other blanks in it.

    :param head: the beginning of the response, with its first line whole.
    """
    return _STATUS_LINE.match(head) is not None


def is_head(head: bytes | bytearray) -> bool:
    """Whether a response's head has one meaning (RFC 9112 sections 4 and 5): a status line, and headers without NUL or a lone CR.

    :param head: the status line, the headers and the blank line behind them.
    """
    line = _STATUS_LINE.match(head)
    return line is not None and _FIELDS.fullmatch(head, line.end()) is not None and not _FOLDED_LENGTH.search(head)


class Chunks:
    """Follows a chunked body, piece by piece (RFC 9112 section 7.1). What comes behind it is not looked at."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._due = 0  # bytes of a chunk that are still to come
        self._behind_data = self._in_trailers = self._ended = False

    def accept(self, data: bytes) -> bool:
        """Whether the body is a chunked one as far as it has come.

        :param data: the next bytes.
        """
        at = 0
        while at < len(data) and not self._ended:
            if self._due:
                passed = min(self._due, len(data) - at)
                self._due -= passed
                at += passed
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if len(self._line) > (2 if self._behind_data else MAX_LINE_BYTES):
                return False
            if self._line.endswith(b"\n"):
                line, self._line = self._line, bytearray()
                if not self._accept_line(line):
                    return False
        return True

    def _accept_line(self, line: bytearray) -> bool:
        if self._behind_data:
            self._behind_data = False
            return line == b"\r\n"
        if self._in_trailers:
            self._ended = line == b"\r\n"
            return self._ended or _TRAILER.fullmatch(line) is not None
        size = _CHUNK.fullmatch(line)
        if size is None:
            return False
        self._due = int(size[1], 16)
        self._behind_data = self._due > 0
        self._in_trailers = not self._due
        return True
