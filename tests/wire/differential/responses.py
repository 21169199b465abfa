"""What is played: raw HTTP responses at random, each with what is true of it, to calls of the API or to one download.

They are the same ones for the same seed and number.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Self

from tests.wire.differential.planted import ACCESS_TOKEN, FORMS

_SHOWN = 600


class Kind(Enum):
    """What a reader can know of a response."""

    VALID = "valid and whole"
    TRUNCATED = "it ends too early, or never"
    MALFORMED = "malformed: it may only do no harm"


class Says(Enum):
    """What a body says with HTTP 2xx."""

    DONE = "the operation was done"
    AN_ERROR = "the service reports an error"
    NOTHING = "it is not a response of the service"


@dataclass(frozen=True, slots=True)
class Script:
    """What goes over the wire for one request.

    :param pieces: the bytes, in the order and the pieces in which they are sent; it may be endless.
    :param closes: whether the connection ends after them.
    :param resets: whether it ends with a reset.
    :param pause: seconds between two pieces.
    """

    pieces: Callable[[], Iterable[bytes]] = field(repr=False)
    closes: bool = True
    resets: bool = False
    pause: float = 0.0


@dataclass(slots=True)
class RawResponse:
    """One response.

    :param headers: its headers, names in lower case.
    :param says: what the body says with HTTP 2xx; None if it is empty.
    :param token: the download token in the body.
    :ivar leftover: whether bytes stay on the connection that belong to no response of ours.
    :ivar stalls: whether a reader may have to wait for its time limit.
    """

    status: int = 200
    body: bytes = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    says: Says | None = None
    token: str | None = None
    reason: str = "OK"
    kind: Kind = Kind.VALID
    script: Script = Script(tuple)
    leftover: bool = False
    stalls: bool = False

    @property
    def says_where_it_ends(self) -> bool:
        """Whether its head tells how its body is delimited; else the body ends with the connection."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def head(self, **framing: str) -> bytes:
        """Its head, with one more header."""
        self.headers |= {name.replace("_", "-"): value for name, value in framing.items()}
        lines = [f"HTTP/1.1 {self.status} {self.reason}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def sent_as(self, kind: Kind, script: Script) -> Self:
        """The same response, with what goes over the wire."""
        self.kind, self.script = kind, script
        return self

    def shown(self) -> str:
        """The bytes on the wire, the beginning of them where they are many."""
        sent = b"".join(itertools.islice(self.script.pieces(), 20_000))
        more = f" ... ({len(sent)} bytes or more)" if len(sent) > _SHOWN else ""
        end = "reset" if self.script.resets else "closed" if self.script.closes else "left open"
        return f"{sent[:_SHOWN]!r}{more}, then {end} [{self.kind.value}]"


@dataclass(frozen=True, slots=True)
class Case:
    """What the service responds to the first request of each call, to the second, ...; the last response is repeated."""

    number: int
    responses: tuple[RawResponse, ...]

    @classmethod
    def generate(cls, seed: str, number: int) -> Self:
        """The case of that number.

        :param seed: of all cases.
        """
        rng = Random(f"{seed}:{number}")
        return cls(number, tuple(generate(rng) for _ in range(rng.choice([1, 1, 1, 1, 2]))))

    @property
    def stalls(self) -> bool:
        """Whether a client may have to wait for its time limit."""
        return any(one.stalls for one in self.responses)

    def response(self, attempt: int, start: int | None = None) -> RawResponse:
        """The response to a request.

        :param attempt: which request of the call, from 0.
        """
        return self.responses[min(attempt, len(self.responses) - 1)]


@dataclass(frozen=True, slots=True)
class DownloadCase:
    """One file, and for each request a response at random that frames what was requested of it.

    :param way: ``plain`` for the whole file, ``checked`` for the same with its SHA-256, ``part`` for a range.
    :param etag: the file's entity tag, with which a download resumes; empty for none.
    :param stalls: whether a response may make the client wait for its time limit.
    :ivar responses: the responses so far.
    """

    number: int
    seed: str
    content: bytes = field(repr=False)
    way: str
    etag: str
    stalls: bool
    responses: list[RawResponse] = field(default_factory=list, repr=False)

    @classmethod
    def generate(cls, seed: str, number: int) -> Self:
        """The case of that number.

        :param seed: of all cases.
        """
        rng = Random(f"{seed}:{number}:download")
        content = rng.randbytes(rng.choice([1, 5, 30, 500, 500, 3000, 100_000]))
        way, etag = rng.choice(["plain", "plain", "checked", "part"]), rng.choice(["", '"v1"'])
        return cls(number, seed, content, way, etag, rng.random() < 0.05)

    def response(self, attempt: int, start: int | None = None) -> RawResponse:
        """The response to a request.

        :param attempt: which request of the download, from 0.
        :param start: the first byte of its range; None for the whole file.
        """
        rng = Random(f"{self.seed}:{self.number}:download:{attempt}")
        while True:
            response = generate_for_download(rng, self.content, start, self.etag)
            if self.stalls or not response.stalls:
                self.responses.append(response)
                return response


def generate(rng: Random) -> RawResponse:
    """A response to an API call, at random."""
    roll = rng.random()
    if roll < 0.03:
        return _no_http(rng)
    if roll < 0.04:
        return rng.choice([_stalling, _endless])(rng)
    draft = _with_body(rng)
    draft.status = rng.choice(rng.choices(list(_STATUSES.values()), list(_STATUSES))[0])
    if 300 <= draft.status < 400:
        draft.headers["location"] = rng.choice(_LOCATIONS)
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
        return _stalling(rng)
    if rng.random() < 0.15:
        start = None  # the host ignores ranges
    draft = RawResponse(200, content, {"etag": etag} if etag else {})
    if start is not None:
        draft.status, draft.body = 206, content[start:]
        draft.headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    if start == len(content):
        draft.status, draft.headers = 416, {"content-range": f"bytes */{len(content)}"}
    if roll < 0.08:
        draft.status = rng.choice([500, 503, 404, 302, 416, 204])
    if 0.08 <= roll < 0.1:
        draft.headers["content-encoding"] = "gzip"
    if 0.1 <= roll < 0.15:  # until the connection closes, and too early
        part = draft.head(connection="close") + draft.body[:-1]
        return draft.sent_as(Kind.TRUNCATED, Script(lambda: [part]))
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
_RETRY_AFTER = ["0", "1", "999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 2100 23:59:59 GMT", "soon"]
_LOCATIONS = ["/elsewhere", "http://[bad", "//evil.example.com/", "\xff\xfe", "http://h:99999999/"]
_OTHER_HEADERS = [
    ("set-cookie", "session=abc; Path=/"),
    ("x-echo", ACCESS_TOKEN),
    ("www-authenticate", 'Basic realm="x"'),
    ("connection", "close"),
    ("connection", "keep-alive"),
    ("upgrade", "h2c"),
    ("content-type", "multipart/mixed; boundary=x"),
    ("link", "</elsewhere>; rel=preload"),
]
_LATE = b'HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{"download_token":"a-late-token"}'


def _echo(rng: Random) -> str:
    """A secret in one of its forms."""
    return rng.choice(FORMS[rng.choice(list(FORMS))])


def _with_body(rng: Random) -> RawResponse:
    """A response whose body the failure table has a row for, not yet framed."""
    says, token = rng.choices(list(Says), [4, 2, 1])[0], None
    if says is Says.DONE:
        told = {"status": "success", "file_id": "f9"}
        if rng.random() < 0.8:
            token = told["download_token"] = f"a-token-of-{rng.randbytes(9).hex()}"
        text = json.dumps(told)
    elif says is Says.AN_ERROR:
        text = json.dumps({"_status": "error", "response": rng.choice(["Größe überschritten", f"refused: {_echo(rng)} end"])})
    else:
        text = rng.choice(["<html>Please log in</html>", f"<html>{_echo(rng)}", "{broken", f"[1, {_echo(rng)}"])
    return RawResponse(200, text.encode(), says=says, token=token)


def plain() -> RawResponse:
    """A success after which the connection stays open."""
    draft = RawResponse(200, b'{"download_token": "the-next-token"}', says=Says.DONE, token="the-next-token")
    sent = draft.head(content_length=str(len(draft.body))) + draft.body
    return draft.sent_as(Kind.VALID, Script(lambda: [sent], closes=False))


def _framed(rng: Random, draft: RawResponse) -> RawResponse:
    """A response with the draft's body: valid, truncated, malformed, or with bytes after it."""
    draft.reason = _echo(rng) if rng.random() < 0.03 else rng.choice(["OK", "", "Not what it says"])
    if rng.random() < (0.6 if draft.status in (429, 503) else 0.02):
        draft.headers["retry-after"] = rng.choice(_RETRY_AFTER)
    draft.headers |= dict(rng.choices(_OTHER_HEADERS, k=rng.choice([0, 0, 0, 1, 2])))
    if draft.status in (204, 304, 101):
        draft.says = draft.token = None
        kind = Kind.TRUNCATED if draft.status == 101 else Kind.VALID
        return draft.sent_as(kind, _script(rng, [(draft.head(), False)], closes=draft.status == 101 or rng.random() < 0.2))
    parts, closes = _parts(rng, draft)
    if closes or rng.random() < 0.7:
        resets = closes and rng.random() < 0.2  # a reset is no end of a body
        kind = Kind.TRUNCATED if resets else Kind.VALID
        return draft.sent_as(kind, _script(rng, parts, closes=closes or rng.random() < 0.2, resets=resets))
    if rng.random() < 0.4:
        sent = b"".join(part for part, _ in parts)
        cut = sent[: -rng.choice([rng.randint(1, len(sent)), rng.randint(1, 5)])]
        return draft.sent_as(Kind.TRUNCATED, _script(rng, [(cut, False)], resets=rng.random() < 0.2))
    if rng.random() < 0.2:
        late = rng.choice([_LATE, b"\r\n", b"junk"])
        draft.leftover = True
        return draft.sent_as(Kind.MALFORMED, _script(rng, [*parts, (late, False)], closes=False))
    return draft.sent_as(Kind.MALFORMED, _script(rng, _broken(rng, parts)))


_Parts = list[tuple[bytes, bool]]  # the bytes of a response; of each part whether it is of the body


def _parts(rng: Random, draft: RawResponse) -> tuple[_Parts, bool]:
    """The bytes of a valid response, and whether its body ends with the connection."""
    roll, body = rng.random(), draft.body
    if roll < 0.45:
        return [(draft.head(content_length=str(len(body))), False), (body, True)], False
    if roll < 0.85:
        return [(draft.head(transfer_encoding="chunked"), False), *_chunks(rng, body), (b"0\r\n\r\n", False)], False
    return [(draft.head(connection="close"), False), (body, True)], True


def _chunks(rng: Random, body: bytes) -> Iterator[tuple[bytes, bool]]:
    largest = rng.choice([1 if len(body) < 2000 else 500, 1000, 70_000])
    at = 0
    while at < len(body):
        piece = body[at : at + rng.randint(1, largest)]
        yield b"%x\r\n" % len(piece), False
        yield piece, True
        yield b"\r\n", False
        at += len(piece)


_INSERTED = [b"\0", b"\r", b"\n", b" ", b":", b"-", b"x", b";", b"9" * 40, b"\r\n x", b"z" * 70_000]
_INSERTED += [b"x\r\nno colon, %b" % form.encode() for form in FORMS[ACCESS_TOKEN]]


def _broken(rng: Random, parts: _Parts) -> _Parts:
    """The same bytes with something inserted outside the body; none of it makes the body shorter."""
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
    token = _echo(rng).encode()
    sent = rng.choice([b"", b"\r\n", b"\x15\x03\x03\x00\x02\x02\x28", b"x" * 200_000, b"HTTP/1.1 " + token + b"\r\n\r\n", token])
    return RawResponse().sent_as(Kind.TRUNCATED, Script(lambda: [sent], resets=rng.random() < 0.3))


def _endless(rng: Random) -> RawResponse:
    """A body without an end."""
    response = RawResponse()
    connection = response.head(connection="close"), b"x" * 65536
    chunks = RawResponse().head(transfer_encoding="chunked"), b"10000\r\n" + b"x" * 65536 + b"\r\n"
    first, more = rng.choice([connection, chunks])
    return response.sent_as(Kind.MALFORMED, Script(lambda: itertools.chain([first], itertools.repeat(more, 1000))))


def _stalling(rng: Random) -> RawResponse:
    """A response that never ends: it is endless, it trickles, or nothing follows."""
    response, start = RawResponse(stalls=True), b"HTTP/1.1 200 OK\r\n"
    head = response.head(content_length="3")
    first, more = rng.choice([(start, b"X: y\r\n" * 1000), (start + b"X: ", b"y" * 65536), (b"", b"\0" * 65536)])
    silent = rng.choice([b"", head + b"{}"])
    scripts = [
        Script(lambda: itertools.chain([first], itertools.repeat(more, 1000))),
        Script(lambda: (head[at : at + 1] for at in range(len(head))), pause=0.03),
        Script(lambda: [silent], closes=False),
    ]
    return response.sent_as(Kind.TRUNCATED, rng.choice(scripts))
