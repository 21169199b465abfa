"""Raw HTTP responses at random, each with what is true of it: whether it is valid, and which body it frames."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from tests.differential import bodies
from tests.differential.bodies import Says
from tests.differential.raw_server import Script
from tests.differential.secret_forms import ACCESS_TOKEN, FORMS

BLANK_BEFORE_EXTENSION_IS_VALID = True
"""Whether ``5; a=b`` counts as valid: RFC 9112 section 7.1.1 forbids to send the blank, and requires to accept it."""
_SHOWN = 600
_MIB = 1024 * 1024


class Kind(Enum):
    """What a reader can know of a response."""

    VALID = "valid and whole"
    TRUNCATED = "it ends too early, or never"
    MALFORMED = "malformed: it may only do no harm"


@dataclass(frozen=True, slots=True)
class RawResponse:
    """One response.

    :param status: the status of the final response.
    :param headers: its headers, names in lower case, of a repeated one the last.
    :param body: the body after transfer decoding; of a malformed response, the one that was meant.
    :param script: what goes over the wire.
    :param says: what the body says with HTTP 2xx, if that is plain.
    :param token: the download token in a plain body.
    :param leftover: whether bytes stay on the connection that belong to no response of ours.
    :param stalls: whether a reader has to wait for its time limit.
    :param hostile: whether it aims at memory or time.
    """

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)
    kind: Kind
    script: Script
    says: Says | None = None
    token: str | None = None
    leftover: bool = False
    stalls: bool = False
    hostile: bool = False

    @property
    def says_where_it_ends(self) -> bool:
        """Whether its head tells how its body is delimited; else the body ends with the connection."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def shown(self) -> str:
        """The bytes on the wire, the beginning of them where they are many."""
        sent = b"".join(itertools.islice(self.script.pieces(), 20_000))
        more = f" ... ({len(sent)} bytes or more)" if len(sent) > _SHOWN else ""
        end = "reset" if self.script.resets else "closed" if self.script.closes else "left open"
        return f"{sent[:_SHOWN]!r}{more}, then {end} [{self.kind.value}]"


@dataclass(slots=True)
class _Draft:
    """A response while it is put together."""

    status: int
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    version: str = "HTTP/1.1"
    reason: str = "OK"
    interim: bytes = b""
    says: Says | None = None
    token: str | None = None

    def head(self, *framing: tuple[str, str]) -> bytes:
        self.headers += framing
        lines = [f"{self.version} {self.status} {self.reason}", *(f"{name}: {value}" for name, value in self.headers)]
        return self.interim + "\r\n".join([*lines, "", ""]).encode("latin-1")

    def done(self, kind: Kind, script: Script, *, stalls: bool = False) -> RawResponse:
        headers = {name.lower(): value.strip() for name, value in self.headers}
        return RawResponse(self.status, headers, self.body, kind, script, self.says, self.token, stalls=stalls)


def generate(rng: Random) -> RawResponse:
    """A response to an API call, at random."""
    roll = rng.random()
    if roll < 0.03:
        return _no_http(rng)
    if roll < 0.04:
        return _hostile(rng)
    plain = bodies.body(rng)
    status = rng.choice(rng.choices(list(_STATUSES.values()), list(_STATUSES))[0])
    draft = _Draft(status, plain.text.encode(), says=plain.says, token=plain.token)
    if rng.random() < 0.3:
        draft.headers.append(("Content-Type", rng.choice(_CONTENT_TYPES)))
        draft.says = None  # reading it is not the point here
    if rng.random() < 0.1:
        packed, deflated = gzip.compress(draft.body, mtime=0), zlib.compress(draft.body)
        codings = [("gzip", packed), ("GZIP", packed + b"junk"), ("gzip", packed[:-8]), ("gzip", draft.body), ("br", draft.body)]
        coding, draft.body = rng.choice([*codings, ("deflate", deflated), ("deflate", deflated[2:-4]), ("gzip, gzip", packed)])
        draft.headers.append(("Content-Encoding", coding))
        draft.says = None
    if 300 <= status < 400:
        draft.headers.append(("Location", rng.choice(_LOCATIONS)))
    return _framed(rng, draft)


def generate_for_download(rng: Random, content: bytes, start: int | None, etag: str) -> RawResponse:
    """A response to the request for a file, at random.

    :param start: the first byte of the requested range; None for the whole file.
    :param etag: the file's entity tag; empty for none.
    """
    roll = rng.random()
    if roll < 0.02:
        return _no_http(rng)
    if roll < 0.03:
        return _stalling(rng, _Draft(200, b""))
    if rng.random() < 0.15:
        start = None  # the host ignores ranges
    draft = _Draft(200, content, [("ETag", etag)] if etag else [])
    if start is not None:
        draft.status, draft.body = 206, content[start:]
        draft.headers.append(("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"))
    if start == len(content):
        draft.status, draft.headers = 416, [("Content-Range", f"bytes */{len(content)}")]
    if roll < 0.08:
        draft.status = rng.choice([500, 503, 404, 302, 416, 204])
    if 0.08 <= roll < 0.1:
        draft.headers.append(("Content-Encoding", "gzip"))
    if 0.1 <= roll < 0.15:  # until the connection closes, and too early
        part = draft.head(("Connection", "close")) + draft.body[:-1]
        return draft.done(Kind.TRUNCATED, Script(lambda: [part]))
    return _framed(rng, draft)


_STATUSES = {
    60: [200],
    7: [201, 202, 203, 204, 205, 206, 226, 299],
    8: [300, 301, 302, 303, 304, 307, 308, 399],
    12: [400, 401, 402, 403, 404, 404, 405, 406, 407, 408, 409, 410, 413, 421, 422, 425, 426, 451, 499],
    5: [429, 503],
    6: [500, 501, 502, 503, 504, 507, 511, 520, 599],
    2: [600, 666, 999, 101],
}
_RETRY_AFTER = ["0", "1", "999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 2100 23:59:59 GMT", "soon", "-5", "1, 2"]
_LOCATIONS = ["/elsewhere", "http://[bad", "//evil.example.com/", "\xff\xfe", "", "http://h:99999999/", "x" * 7000, "http://a b/"]
_CONTENT_TYPES = [
    *["text/plain", "text/html", "", "\xe9/\xff", "application/json;charset=utf-7", "application/json; charset=us-ascii"],
    *["multipart/mixed; boundary=x", "multipart/mixed", "message/rfc822", "text/html;charset=hex", 'text/plain; charset="utf-8"'],
]
_OTHER_HEADERS = [
    *[("Set-Cookie", "session=abc; Path=/"), ("X-Echo", FORMS["percent"](ACCESS_TOKEN)), ("Server", "\xff\xfe\xe9"), ("X", "")],
    *[("X-Echo", ACCESS_TOKEN.encode().decode("latin-1")), ("WWW-Authenticate", 'Basic realm="x"'), ("Refresh", "0; url=/else")],
    *[("Keep-Alive", "timeout=5, max=1000"), ("Connection", "keep-alive"), ("Connection", "close"), ("X-Long", "y" * 4000)],
    *[("Upgrade", "h2c"), ("Trailer", "X-Trailer"), ("Date", "never"), ("Link", "</elsewhere>; rel=preload")],
]
_INTERIM = ["100 Continue", "102 Processing", "103 Early Hints\r\nLink: </x>; rel=preload", "100", "104 Resumption", "199 What"]
_LATE = b'HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{"download_token":"a-late-token"}'


def _framed(rng: Random, draft: _Draft) -> RawResponse:
    """A response with the draft's body: valid, truncated, malformed, or with bytes after it."""
    draft.reason = rng.choice(["OK", "OK", "", "Not what it says", "\xe9t\xe9", "200 OK"])
    if rng.random() < 0.03:
        draft.reason = bodies.echo(rng).encode().decode("latin-1")
    if rng.random() < (0.6 if draft.status in (429, 503) else 0.02):
        draft.headers.append(("Retry-After", rng.choice(_RETRY_AFTER)))
    draft.headers += [rng.choice(_OTHER_HEADERS) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    rng.shuffle(draft.headers)
    interim = [f"HTTP/1.1 {rng.choice(_INTERIM)}\r\n\r\n" for _ in range(rng.choice([0] * 9 + [1, 2, 5]))]
    draft.interim = "".join(interim).encode()
    if draft.status in (204, 304, 101):
        draft.body, draft.says, draft.token = b"", None, None
        more = [("Upgrade", "h2c"), ("Connection", "Upgrade")] if draft.status == 101 else []
        parts, closes = [(draft.head(*more), False)], draft.status == 101 or rng.random() < 0.2
        return draft.done(Kind.TRUNCATED if draft.status == 101 else Kind.VALID, _script(rng, parts, closes=closes))
    parts, closes = _parts(rng, draft)
    if closes or rng.random() < 0.7:
        return draft.done(Kind.VALID, _script(rng, parts, closes=closes or rng.random() < 0.2))
    if rng.random() < 0.4:
        sent = b"".join(part for part, _ in parts)
        cut = sent[: -rng.choice([rng.randint(1, len(sent)), rng.randint(1, 5)])]
        return draft.done(Kind.TRUNCATED, _script(rng, [(cut, False)], resets=rng.random() < 0.2))
    if rng.random() < 0.2:
        late = rng.choice([_LATE, _LATE * 3, b"\r\n", b"junk", b"\0" * 300])
        return replace(draft.done(Kind.MALFORMED, _script(rng, [*parts, (late, False)], closes=False)), leftover=True)
    return draft.done(Kind.MALFORMED, _script(rng, _broken(rng, parts)))


_Parts = list[tuple[bytes, bool]]  # the bytes of a response; of each part whether it is of the body


def _parts(rng: Random, draft: _Draft) -> tuple[_Parts, bool]:
    """The bytes of a valid response, and whether its body ends with the connection."""
    roll, body = rng.random(), draft.body
    if roll < 0.45:
        name, value = "Content-Length", str(len(body))
        spelled = rng.choice([(name, value)] * 5 + [(name.lower(), value), (name.upper(), f"  {value}\t ")])
        return [(draft.head(spelled), False), (body, True)], False
    if roll < 0.85:
        head = draft.head(("Transfer-Encoding", rng.choice(["chunked", "chunked", "CHUNKED"])))
        last = rng.choice([b"0\r\n\r\n"] * 8 + [b"000\r\n\r\n", b"0;x=y\r\n\r\n", b"0\r\nX-Trailer: a\r\nB: c\r\n\r\n"])
        return [(head, False), *_chunks(rng, body), (last, False)], False
    draft.version = rng.choice(["HTTP/1.0", "HTTP/1.1"])
    return [(draft.head(("Connection", "close")), False), (body, True)], True


def _chunks(rng: Random, body: bytes) -> Iterator[tuple[bytes, bool]]:
    largest = rng.choice([1 if len(body) < 2000 else 500, 7 if len(body) < 9000 else 500, 1000, 70_000])
    extensions = [b";a=b", b";x", b';a="b c"', *([b"; a=b", b" ;a"] if BLANK_BEFORE_EXTENSION_IS_VALID else [])]
    extension = rng.choice([b""] * 9 + [rng.choice(extensions)])
    at = 0
    while at < len(body):
        piece = body[at : at + rng.randint(1, largest)]
        size = f"{len(piece):{rng.choice(['x', 'X', 'x', '04x'])}}".encode()
        yield size + extension + b"\r\n", False
        yield piece, True
        yield b"\r\n", False
        at += len(piece)


_INSERTED = [
    *[b"\0", b"\r", b" ", b"\t", b":", b"-", b"+", b"x", b"0x", b"_", b",", b";", b"9", b"9" * 40, b"\xff", b"\r\n x", b"x\n"],
    *[b"z" * 70_000, b"x\r\n" + b"X: y\r\n" * 300, b"x\r\nno colon, " + FORMS["percent"](ACCESS_TOKEN).encode()],
]
_REPLACED = {
    b"HTTP/1.1 ": [
        b"http/1.1 ",
        b"HTTP/2 ",
        b"HTTP/0.9 ",
        b"HTTP/1.01234 ",
        b"ICY ",
        b"",
        b"\r\nHTTP/1.1 ",
        b"HTTP/1.1 -",
        b"HTTP/1.1 0",
    ],
    b": chunked": [
        b": gzip",
        b": gzip, chunked",
        b": chunked, gzip",
        b": xchunked",
        b": identity",
        b": chunked\r\nContent-Length: 3",
    ],
    b"\r\n": [b"\n", b"\r", b"\n\r"],
}


def _broken(rng: Random, parts: _Parts) -> _Parts:
    """The same bytes with something inserted or replaced outside the body; none of it makes the body shorter."""
    if rng.random() < 0.2:
        old = rng.choice(list(_REPLACED))
        new = rng.choice(_REPLACED[old])
        return [(part if is_body else part.replace(old, new), is_body) for part, is_body in parts]
    at = rng.choice([0, 0, *(number for number, (_, is_body) in enumerate(parts) if not is_body)])
    part = parts[at][0]
    cut = rng.randint(0, len(part) - 2)
    return [*parts[:at], (part[:cut] + rng.choice(_INSERTED) + part[cut:], False), *parts[at + 1 :]]


def _script(rng: Random, parts: _Parts, *, closes: bool = True, resets: bool = False) -> Script:
    """The bytes, now and then in several pieces."""
    sent = b"".join(part for part, _ in parts)
    at = sorted(rng.randint(0, len(sent)) for _ in range(rng.choice([0, 0, 0, 0, 1, 6])))
    pieces = [sent[start:end] for start, end in zip([0, *at], [*at, len(sent)], strict=True)]
    return Script(lambda: pieces, closes=closes, resets=resets, pause=rng.choice([0.0, 0.0, 0.002]))


def _no_http(rng: Random) -> RawResponse:
    """Bytes that are no HTTP, or none."""
    token = bodies.echo(rng).encode()
    choices = [b"", b"", b"\r\n", b"\x15\x03\x03\x00\x02\x02\x28", b"220 smtp.example.com ESMTP\r\n", b"x" * 200_000]
    choices += [b'{"_status": "success", "download_token": "abcdefghi"}', b"\0" * 1000, rng.randbytes(rng.randint(1, 400))]
    choices += [token + b"\r\n\r\n", b"HTTP/1.1 " + token + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + token + b"\r\n"]
    sent = rng.choice(choices)
    return _Draft(200, b"").done(Kind.TRUNCATED, Script(lambda: [sent], resets=rng.random() < 0.3))


def _hostile(rng: Random) -> RawResponse:
    """A response that aims at the reader's memory or time."""
    draft = _Draft(rng.choice([200, 200, 200, 302, 404, 500]), b"")
    if rng.random() < 0.3:
        return _stalling(rng, draft)
    if rng.random() < 0.2:
        framing, piece = rng.choice([(("Connection", "close"), b"x"), (("Transfer-Encoding", "chunked"), b"10000\r\n")])
        first, more = draft.head(framing), piece.ljust(65536 + len(piece), b"x") + b"\r\n"
        endless = Script(lambda: itertools.chain([first], itertools.repeat(more, 1000)))
        return replace(draft.done(Kind.MALFORMED, endless), hostile=True)
    filled = rng.choice(["%25", "&amp;", "\\u005c", "QUFB", "a b ", "{}", "1,", "é"]) * _MIB
    envelope = f'{{"_status": "error", "response": "{filled}'.encode()[: _MIB - 2] + b'"}'
    draft.body = rng.choice([envelope, envelope[44:], b'{"_status": "success"}'.ljust(4 * _MIB)])
    if rng.random() < 0.25:
        bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
        draft.body = b"".join(bomb.compress(b" " * _MIB) for _ in range(60)) + bomb.flush()
        draft.headers.append(("Content-Encoding", "gzip"))
    if rng.random() < 0.2:
        sent = draft.head(("Transfer-Encoding", "chunked")) + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"
    else:
        sent = b"".join(part for part, _ in _parts(rng, draft)[0])
    return replace(draft.done(Kind.VALID, Script(lambda: [sent])), hostile=True)


def _stalling(rng: Random, draft: _Draft) -> RawResponse:
    """A response that never ends: it is endless, it trickles, or nothing follows."""
    start, head = b"HTTP/1.1 200 OK\r\n", draft.head(("Content-Length", "3"))
    chunked = start + b"Transfer-Encoding: chunked\r\n\r\n"
    endless = [(start, b"X: " + b"y" * 60_000 + b"\r\n"), (start, b"X: y\r\n" * 1000), (start + b"X: ", b"y" * 65536)]
    endless += [(b"", b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" * 500), (chunked + b"0\r\n", b"X: y\r\n" * 1000)]
    endless += [(b"", b"\0" * 65536), (chunked, b"1" * 65536)]
    first, more = rng.choice(endless)
    silent = rng.choice([b"", b"HTTP/1.1 102 Processing\r\n\r\n", head + b"{}"])
    scripts = [
        *[Script(lambda: itertools.chain([first], itertools.repeat(more, 1000)))] * 3,
        Script(lambda: (head[at : at + 1] for at in range(len(head))), pause=0.03),
        Script(lambda: [silent], closes=False),
    ]
    return replace(draft.done(Kind.TRUNCATED, rng.choice(scripts), stalls=True), hostile=True)
