"""Named responses: what RFC 9110 and RFC 9112 show or forbid, and truncated bodies that were once taken for whole ones."""

from __future__ import annotations

from tests.differential.bodies import Says
from tests.differential.raw_server import Script
from tests.differential.responses import BLANK_BEFORE_EXTENSION_IS_VALID, Kind, RawResponse

TOKEN = "aTokenOfAnExample"
BODY = b'{"status": "success", "download_token": "%s", "a": "b"}' % TOKEN.encode()
_FIRST, _REST = BODY[:-16], BODY[-16:]
_SIZE = b"%x\r\n" % len(BODY)
_LENGTH = b"Content-Length: %d\r\n" % len(BODY)
_OK, _CHUNKED, _END = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"\r\n0\r\n\r\n"
_TWO_CHUNKS = b"%x%b\r\n%b\r\n10%b\r\n%b\r\n"


def _with(*headers: str) -> bytes:
    """A response with these headers and a length."""
    return _OK + b"".join(header.encode("latin-1") + b"\r\n" for header in headers) + _LENGTH + b"\r\n" + BODY


def _extended(extension: bytes) -> bytes:
    """Two chunks with an extension."""
    return _CHUNKED + _TWO_CHUNKS % (len(_FIRST), extension, _FIRST, extension, _REST) + b"0\r\n\r\n"


_VALID = {
    "a response as in RFC 9110 section 3.9": _with(
        "Date: Mon, 27 Jul 2009 12:28:53 GMT",
        "Server: Apache/2.4 (Unix; a comment (in a comment))",
        "Last-Modified: Wed, 22 Jul 2009 19:15:56 GMT",
        'ETag: "34aa387-d-1568eb00"',
        "Accept-Ranges: bytes",
        "Vary: Accept-Encoding",
        "Content-Type: text/plain",
    ),
    "chunks (9112 7.1)": _extended(b""),
    "a chunk extension (9112 7.1.1)": _extended(b";ieof;a=b"),
    "a quoted chunk extension (9112 7.1.1)": _extended(b';a="b;c\\""'),
    "trailers (9112 7.1.2)": _CHUNKED + _SIZE + BODY + b"\r\n0\r\nExpires: Wed, 21 Oct 2026 07:28:00 GMT\r\nX-Digest: a\r\n\r\n",
    "zeros before a chunk's size (9112 7.1)": _CHUNKED + b"0000" + _SIZE + BODY + b"\r\n0000\r\n\r\n",
    "no reason phrase (9112 4)": _with().replace(b"200 OK", b"200 "),
    "a body until the connection closes (9112 6.3)": _OK + b"\r\n" + BODY,
    "Connection: close (9112 9.6)": _with("Connection: close"),
    "HTTP/1.0 (9112 9.3)": _with().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0 that stays open (9112 9.3)": _with("Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "100 before it (9110 15.2.1)": b"HTTP/1.1 100 Continue\r\n\r\n" + _with(),
    "102 and 103 before it (9110 15.2)": b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n"
    + _with(),
    "empty and repeated headers, no blank after a colon, tabs (9110 5)": _with("A:", "B:b", "B: \tc\t", "B: , ,d", "C: \xe9"),
    "names in any case (9110 5.1)": _with("cONTENT-tYPE: application/json").replace(b"Content-Length", b"CONTENT-length"),
    "a multipart type (9110 8.3.3)": _with("Content-Type: multipart/mixed; boundary=x"),
    "a type with a quoted parameter (9110 8.3.1)": _with('Content-Type: application/json; Charset="utf-8"'),
}
_BLANKS = {
    "a blank before a chunk extension (9112 7.1.1)": _extended(b"; a=b"),
    "blanks around a chunk extension (9112 7.1.1)": _extended(b" ; a = b"),
}
_STATUSES = {
    204: ["ETag: W/"],
    206: ["Content-Type: multipart/byteranges; boundary=THIS_STRING_SEPARATES"],
    301: ["Location: http://www.example.org/index.asp"],
    304: ['ETag: "a"'],
    401: ['WWW-Authenticate: Basic realm="simple", Newauth realm="apps", type=1, title="Login to \\"apps\\""'],
    405: ["Allow: GET, HEAD, PUT"],
    407: ["Proxy-Authenticate: Basic"],
    416: ["Content-Range: bytes */47022"],
    426: ["Upgrade: HTTP/3.0", "Connection: Upgrade"],
    503: ["Retry-After: Fri, 31 Dec 2100 23:59:59 GMT"],
}
_TRUNCATED = {
    "the last chunk's size is cut": _CHUNKED + _SIZE + BODY + b"\r\n000",
    "the line break after the last chunk is missing": _CHUNKED + _SIZE + BODY + b"\r\n0\r\n",
    "a trailer is cut": _CHUNKED + _SIZE + BODY + b"\r\n0\r\nX-Trailer: a\r\n",
    "there is no last chunk (9112 8)": _CHUNKED + _SIZE + BODY + b"\r\n",
    "a chunk is cut (9112 8)": _CHUNKED + _SIZE + _FIRST,
    "a body with a length is cut (9112 8)": _OK + _LENGTH + b"\r\n" + _FIRST,
    "the head is cut (9112 8)": _OK + _LENGTH,
    "nothing but an interim response": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "101 (9110 15.2.2)": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
}
_MALFORMED = {
    "LF alone after a chunk": _CHUNKED + b"%x\r\n%b\n10\r\n%b" % (len(_FIRST), _FIRST, _REST) + _END,
    "no line break after a chunk": _CHUNKED + b"%x\r\n%b12000\r\n%b" % (len(_FIRST), _FIRST, _REST),
    "CR alone hides a length (9112 2.2)": _OK + b"X: 1\rContent-Length: 3\r\n\r\n" + BODY,
    "a folded header (9112 5.2)": _with("X: a\r\n  b"),
    "a folded length (9112 5.2)": _OK + b"Content-Length: 1\r\n 0\r\n\r\n" + BODY,
    "a blank before a colon (9112 5.1)": _with("X : a"),
    "two lengths (9112 6.3)": _with("Content-Length: 3"),
    "a length and chunks (9112 6.3)": _OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + _SIZE + BODY + _END,
    "chunked is not the last coding (9112 6.3)": _OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + _SIZE + BODY + _END,
    "a blank line before the status line (9112 2.2)": b"\r\n" + _with(),
    "another version (9112 2.3)": _with().replace(b"HTTP/1.1", b"HTTP/1.2"),
}


def _example(sent: bytes, kind: Kind, status: int = 200) -> RawResponse:
    lines = sent.rpartition(b"HTTP/1.")[2].partition(b"\r\n\r\n")[0].decode("latin-1").splitlines()
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return RawResponse(
        status, headers, BODY, kind, Script(lambda: [sent], closes=True), Says.DONE if status != 204 else None, TOKEN
    )


def _of_status(status: int, headers: list[str]) -> RawResponse:
    bare = status in (204, 304)
    sent = _with(*headers).replace(b"200 OK", b"%d It" % status)
    return _example(sent.replace(_LENGTH, b"").replace(BODY, b"") if bare else sent, Kind.VALID, status)


EXAMPLES = {
    **{name: _example(sent, Kind.VALID) for name, sent in _VALID.items()},
    **{name: _example(sent, Kind.VALID if BLANK_BEFORE_EXTENSION_IS_VALID else Kind.MALFORMED) for name, sent in _BLANKS.items()},
    **{f"HTTP {status} (9110 15)": _of_status(status, headers) for status, headers in _STATUSES.items()},
    **{name: _example(sent, Kind.TRUNCATED) for name, sent in _TRUNCATED.items()},
    **{name: _example(sent, Kind.MALFORMED) for name, sent in _MALFORMED.items()},
}
