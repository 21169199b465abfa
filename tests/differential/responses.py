"""Raw HTTP responses at random, each with what is true of it: whether it is well-formed, and what its body is."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from tests.differential import bodies
from tests.differential.raw_server import Script
from tests.differential.secret_forms import ACCESS_TOKEN, FORMS

MIB = 1024 * 1024
_SHOWN = 1500


class Framing(Enum):
    """What a reader can know of a response."""

    WHOLE = "well-formed and whole"
    LOST = "well-formed as far as it goes, but it ends too early or never"
    ODD = "malformed"


@dataclass(frozen=True, slots=True)
class RawResponse:
    """One response.

    :param status: the status of the final response.
    :param headers: its headers, names in lower case.
    :param body: the body after transfer decoding.
    :param framing: whether a reader gets all of it.
    :param script: what goes over the wire.
    :param readings: other bodies that a lenient reader may take from a malformed response.
    :param leftover: whether bytes stay on the connection that belong to no response of ours.
    :param stalls: whether a reader has to wait for its time limit.
    :param hostile: whether it aims at memory or time.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    framing: Framing
    script: Script
    readings: tuple[bytes, ...] = field(repr=False, default=())
    leftover: bool = False
    stalls: bool = False
    hostile: bool = False

    def shown(self) -> str:
        """The bytes on the wire, the beginning of them where they are many."""
        sent = b"".join(itertools.islice(self.script.pieces(), 20_000))
        more = f" ... ({len(sent)} bytes or more)" if len(sent) > _SHOWN else ""
        end = "reset" if self.script.resets else "closed" if self.script.closes else "left open"
        return f"{sent[:_SHOWN]!r}{more}, then {end} [{self.framing.value}]"


@dataclass(slots=True)
class _Draft:
    """A response while it is put together."""

    status: int
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    version: str = "HTTP/1.1"
    reason: str = "OK"
    interim: bytes = b""

    def head(self, *framing: tuple[str, str]) -> bytes:
        lines = [
            f"{self.version} {self.status} {self.reason}",
            *(f"{name}: {value}" for name, value in (*self.headers, *framing)),
        ]
        return self.interim + "\r\n".join([*lines, "", ""]).encode("latin-1")

    def done(self, sent: bytes | Script, framing: Framing = Framing.WHOLE, *, closes: bool = False) -> RawResponse:
        script = sent if isinstance(sent, Script) else Script(lambda: [sent], closes=closes)
        headers = tuple((name.lower(), value.strip()) for name, value in self.headers)
        return RawResponse(self.status, headers, self.body, framing, script)


def generate(rng: Random) -> RawResponse:
    """A response at random."""
    roll = rng.random()
    if roll < 0.035:
        return _no_http(rng)
    if roll < 0.045:
        return _hostile(rng)
    draft = _draft(rng)
    if draft.status in (204, 304):
        draft.body = b""
        return draft.done(draft.head(), closes=rng.random() < 0.2)
    return rng.choices([_whole, _lost, _odd, _leftover], [80, 7, 11, 2])[0](rng, draft)


def _draft(rng: Random) -> _Draft:
    text = bodies.body(rng)
    draft = _Draft(_status(rng), b"", reason=_reason(rng))
    label = _content_type(rng, draft, text)
    draft.body = _content_coding(rng, draft, _encode(text, label))
    if rng.random() < (0.6 if draft.status in (429, 503) else 0.02):
        draft.headers.append(("Retry-After", rng.choice(_RETRY_AFTER)))
    if 300 <= draft.status < 400 and rng.random() < 0.9:
        draft.headers.append(("Location", rng.choice(_LOCATIONS)))
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        draft.headers.append(_other_header(rng))
    rng.shuffle(draft.headers)
    draft.interim = b"".join(_interim(rng) for _ in range(rng.choice([0] * 12 + [1, 1, 2, 5])))
    return draft


_STATUSES = {
    60: [200],
    7: [201, 202, 203, 204, 206, 208, 226, 299],
    8: [300, 301, 302, 303, 304, 307, 308, 399],
    12: [400, 401, 402, 403, 404, 404, 405, 406, 407, 408, 409, 410, 411, 413, 415, 418, 421, 422, 425, 451, 499],
    5: [429, 503],
    6: [500, 501, 502, 503, 504, 505, 507, 511, 520, 599],
    2: [600, 666, 999, 101],
}


def _status(rng: Random) -> int:
    return rng.choice(rng.choices(list(_STATUSES.values()), list(_STATUSES))[0])


def _reason(rng: Random) -> str:
    if rng.random() < 0.03:
        return bodies.echo(rng).encode().decode("latin-1")
    return rng.choice(["OK", "OK", "", "Not what it says", "\xe9t\xe9", "200 OK"])


_RETRY_AFTER = [
    *["0", "1", "1", "7", "120", "86400", "999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 2100 23:59:59 GMT"],
    *["soon", "-5", "1.5", "", "1e3", "inf", "nan", "9" * 4500, "\xb2", "Wed, 99 Foo 2015 07:28:00 GMT", "1, 2"],
]
_LOCATIONS = [
    *["/elsewhere", "http://[bad", "http://127.0.0.1:1/x", "//evil.example.com/", "\xff\xfe", "", "http://h:99999999/", "?"],
    *["http://a b/", "https://h/%zz", "x" * 7000, "http://\xe9/", "javascript:x", f"/?t={FORMS['percent'](ACCESS_TOKEN)}"],
]


def _other_header(rng: Random) -> tuple[str, str]:
    return rng.choice(
        [
            ("Set-Cookie", "session=abc; Path=/"),
            ("Set-Cookie", f"t={FORMS['percent'](ACCESS_TOKEN)}"),
            ("X-Echo", FORMS["percent"](ACCESS_TOKEN)),
            ("X-Echo", ACCESS_TOKEN.encode().decode("latin-1")),
            ("Server", "\xff\xfe\xe9"),
            ("WWW-Authenticate", 'Basic realm="x"'),
            ("Refresh", "0; url=/elsewhere"),
            ("Link", "</elsewhere>; rel=preload"),
            ("Alt-Svc", 'h3=":1"; ma=1'),
            ("Keep-Alive", "timeout=5, max=1000"),
            ("Connection", "keep-alive"),
            ("Date", "never"),
            ("Vary", "*"),
            ("X-Empty", ""),
            ("X-Long", "y" * 4000),
            ("Content-Language", "de"),
            ("X-Repeated", "1"),
            ("Strict-Transport-Security", "max-age=1"),
        ]
    )


def _interim(rng: Random) -> bytes:
    line = rng.choice(["100 Continue", "102 Processing", "103 Early Hints", "100", "199 What", "102 "])
    more = rng.choice(["", "", "Link: </x>; rel=preload\r\n", "X: y\r\nServer: z\r\n"])
    return f"HTTP/1.1 {line}\r\n{more}\r\n".encode()


_LABELS = [
    *["utf-8"] * 4,
    *["UTF-8", '"utf-8"', "utf8", "us-ascii", "ascii", "iso-8859-1", "ISO-8859-1", "latin-1", "latin1", "windows-1252", "cp1252"],
    *["utf-7", "utf-16", "utf-16le", "utf-32", "punycode", "idna", "base64", "zip", "hex", "rot13", "unicode_escape", "bz2"],
    *["raw_unicode_escape", "mbcs", "undefined", "shift_jis", "koi8-r", "x", "", "utf-8-sig", "\xe9", "a" * 1000, "ebcdic-cp-us"],
]
_CODECS = {"iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-7", "utf-32", "shift_jis", "cp1252", "latin1"}


def _content_type(rng: Random, draft: _Draft, text: str) -> str:
    """Add a Content-Type at random.

    :returns: the label of its charset, in lower case.
    """
    if rng.random() < 0.2:
        return ""
    looks_like_page = text.lstrip("\ufeff \n").startswith("<")
    usual = ["text/html"] * 6 + ["text/plain"] if looks_like_page else ["application/json"] * 8 + ["text/plain"] * 3
    kind = rng.choice([*usual, *usual, "text/html", "TEXT/HTML", "application/octet-stream", "", "x", "text/json", "image/png"])
    if rng.random() < 0.5:
        draft.headers.append(("Content-Type", kind))
        return ""
    label = rng.choice(_LABELS)
    name = rng.choice(["charset", "charset", "Charset", "CHARSET"])
    draft.headers.append(("Content-Type", f"{kind}{rng.choice([';', '; ', ' ; '])}{name}={label}"))
    return label.strip('"').lower()


def _encode(text: str, label: str) -> bytes:
    if label in _CODECS:
        try:
            return text.encode(label)
        except UnicodeEncodeError:
            pass
    return text.encode()


def _deflate(content: bytes, bits: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, bits)
    return packer.compress(content) + packer.flush()


def _content_coding(rng: Random, draft: _Draft, content: bytes) -> bytes:
    """Encode the body, or claim to, and add a Content-Encoding."""
    if rng.random() < 0.82:
        return content
    packed = {
        "gzip": gzip.compress(content, 6, mtime=0),
        "x-gzip": gzip.compress(content, 6, mtime=0),
        "GZIP": gzip.compress(content, 6, mtime=0),
        "deflate": _deflate(content, rng.choice([15, -15])),
        "identity": content,
        "br": content,
        "zstd": content,
        "compress": content,
        "unheard-of": content,
        "": content,
        "gzip, gzip": gzip.compress(gzip.compress(content, mtime=0), mtime=0),
        "identity, gzip": gzip.compress(content, mtime=0),
    }
    name = rng.choice(["gzip"] * 5 + ["deflate"] * 4 + list(packed))
    draft.headers.append(("Content-Encoding", name))
    sent = packed[name]
    if name.lower() in ("gzip", "deflate") and rng.random() < 0.35:
        half = len(sent) // 2
        sent = rng.choice(
            [
                sent[:half],
                sent[:-1],
                sent[:-8],
                content,
                b"",
                b"\x1f\x8b",
                sent[:half] + b"\x00\xff\x00" + sent[half:],
                sent + b"junk",
            ]
        )
    return sent


def _length(body: bytes) -> tuple[str, str]:
    return "Content-Length", str(len(body))


def _whole(rng: Random, draft: _Draft) -> RawResponse:
    body = draft.body
    if draft.status == 101:
        return _switching(rng, draft)
    roll = rng.random()
    if roll < 0.45:
        name, value = _length(body)
        spelled = rng.choice([(name, value)] * 5 + [(name.lower(), value), (name.upper(), f"  {value}  "), (name, f"00{value}")])
        return replace(
            draft.done(draft.head(spelled) + body, closes=rng.random() < 0.3), script=_cut(rng, draft.head(spelled) + body)
        )
    if roll < 0.8:
        coding = rng.choice(["chunked", "chunked", "Chunked", "CHUNKED"])
        head = draft.head(("Transfer-Encoding", coding))
        return draft.done(_cut(rng, head + b"".join(_chunks(rng, body)) + _last_chunk(rng)))
    if roll < 0.9:
        draft.version = "HTTP/1.0"
        if rng.random() < 0.3:
            return draft.done(draft.head(_length(body), ("Connection", "keep-alive")) + body)
        return draft.done(draft.head() + body, closes=True)
    return draft.done(draft.head(("Connection", "close")) + body, closes=True)


def _cut(rng: Random, sent: bytes) -> Script:
    """The same bytes, now and then in several pieces."""
    closes = rng.random() < 0.2
    if rng.random() < 0.8 or not sent:
        return Script(lambda: [sent], closes=closes)
    at = sorted(rng.randint(0, len(sent)) for _ in range(rng.randint(1, 6)))
    pieces = [sent[start:end] for start, end in zip([0, *at], [*at, len(sent)], strict=True)]
    return Script(lambda: pieces, closes=closes, pause=rng.choice([0.0, 0.0, 0.002]))


def _chunks(rng: Random, body: bytes) -> Iterator[bytes]:
    largest = rng.choice([1 if len(body) < 2000 else 500, 7 if len(body) < 9000 else 500, 1000, 70_000])
    at = 0
    while at < len(body):
        size = rng.randint(1, largest)
        piece = body[at : at + size]
        extension = rng.choice([b""] * 8 + [b";a=b", b";x"])
        number = f"{len(piece):{rng.choice(['x', 'X', 'x', '04x'])}}".encode()
        yield number + extension + b"\r\n" + piece + b"\r\n"
        at += size


def _last_chunk(rng: Random) -> bytes:
    return rng.choice([b"0\r\n\r\n"] * 8 + [b"000\r\n\r\n", b"0;x=y\r\n\r\n", b"0\r\nX-Trailer: a\r\nSet-Cookie: b=c\r\n\r\n"])


def _switching(rng: Random, draft: _Draft) -> RawResponse:
    draft.body = b""
    head = draft.head(("Upgrade", "h2c"), ("Connection", "Upgrade"))
    return draft.done(head + rng.choice([b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]), Framing.LOST, closes=True)


def _lost(rng: Random, draft: _Draft) -> RawResponse:
    """A response that ends before its end."""
    body = draft.body or b"{}"
    draft.body = body
    part = body[: rng.randint(0, len(body) - 1)]
    whole = draft.head(_length(body)) + body
    chunked = draft.head(("Transfer-Encoding", "chunked"))
    size = f"{len(body):x}\r\n".encode()
    sent = rng.choice(
        [
            draft.head(_length(body)) + part,
            draft.head(_length(body)) + part,
            draft.head(("Content-Length", str(len(body) + rng.choice([1, 100, 10**6])))) + body,
            chunked + size + part,
            chunked + size + body + b"\r\n",
            chunked + b"".join(_chunks(rng, body)),
            whole[: rng.randint(0, len(draft.interim) + 12)],
            draft.head()[:-3],
        ]
    )
    roll = rng.random()
    lost = draft.done(Script(lambda: [sent], closes=True, resets=roll < 0.15), Framing.LOST)
    if roll > 0.98:
        return replace(lost, script=replace(lost.script, closes=False), stalls=True)
    return lost


def _leftover(rng: Random, draft: _Draft) -> RawResponse:
    """A whole response, and after it bytes that belong to none of our requests."""
    late = b'{"download_token": "a-late-token", "_status": "error"}'
    extra = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(late), late)
    junk = rng.choice([extra, extra, b"\r\n", b"junk", b"\x00" * 300, extra * 3])
    first = draft.head(_length(draft.body)) + draft.body
    pieces = rng.choice([[first + junk], [first, junk]])
    script = Script(lambda: pieces, closes=False, pause=rng.choice([0.0, 0.003]))
    return replace(draft.done(script, Framing.ODD), leftover=True)


def _odd(rng: Random, draft: _Draft) -> RawResponse:
    """A response whose framing or head breaks the rules (RFC 9112, sections 2.2, 4, 5 and 6)."""
    body = draft.body
    kinds = [_odd_length, _odd_length, _odd_length, _odd_chunks, _odd_chunks, _odd_head, _odd_head, _odd_status_line]
    odd = rng.choice(kinds)(rng, draft)
    return replace(odd, body=body, readings=(*odd.readings, body))


def _odd_length(rng: Random, draft: _Draft) -> RawResponse:
    body, name = draft.body, "Content-Length"
    size = len(body)
    shorter = rng.randint(0, size)
    framing: list[list[tuple[str, str]]] = [
        [(name, str(shorter))],
        [(name, str(size)), (name, str(size))],
        [(name, str(size)), (name, str(shorter))],
        [(name, f"{size}, {size}")],
        [(name, f"{size}, {shorter}")],
        [(name, f"+{size}")],
        [(name, f"-{size}")],
        [(name, "-1")],
        [(name, "abc")],
        [(name, "")],
        [(name, f"{size}.0")],
        [(name, f"0x{size:x}")],
        [(name, f"{size} bytes")],
        [(name, "9" * 5000)],
        [(name, "\xb2")],
        [(name, f"{size:,}".replace(",", "_"))],
        [("Transfer-Encoding", "identity")],
        [("Transfer-Encoding", "gzip")],
        [("Transfer-Encoding", "xchunked")],
        [("Transfer-Encoding", "chunked"), (name, str(size))],
        [("Transfer-Encoding", "chunked, identity"), (name, str(size))],
        [(name, str(shorter)), ("Transfer-Encoding", "chunked")],
    ]
    chosen = rng.choice(framing)
    chunked = b"".join(_chunks(rng, body)) + b"0\r\n\r\n"
    as_chunks = any("chunked" in value for _, value in chosen) and rng.random() < 0.7
    sent = draft.head(*chosen) + (chunked if as_chunks else body)
    readings = (body[:shorter], chunked, chunked[:size], chunked[:shorter], b"") if as_chunks else (body[:shorter], b"")
    return replace(draft.done(sent, Framing.ODD, closes=True), readings=readings)


def _odd_chunks(rng: Random, draft: _Draft) -> RawResponse:
    body = draft.body or b"{}"
    size = f"{len(body):x}".encode()
    sent = rng.choice(
        [
            b"zz\r\n" + body + b"\r\n0\r\n\r\n",
            b"-" + size + b"\r\n" + body + b"\r\n0\r\n\r\n",
            b"+" + size + b"\r\n" + body + b"\r\n0\r\n\r\n",
            b"0x" + size + b"\r\n" + body + b"\r\n0\r\n\r\n",
            b" " + size + b" \r\n" + body + b"\r\n0\r\n\r\n",
            b"\r\n" + body + b"\r\n0\r\n\r\n",
            size + b"\n" + body + b"\n0\n\n",
            size + b"\r\n" + body + b"0\r\n\r\n",
            size + b"\r\n" + body + b"x\r\n0\r\n\r\n",
            b"f" * 40 + b"\r\n" + body,
            b"1" * 70_000,
            size + b";" + b"e" * 70_000 + b"\r\n" + body + b"\r\n0\r\n\r\n",
            size + b"\r\n" + body + b"\r\n0\r\nno colon\r\n\r\n",
            size + b"\r\n" + body + b"\r\n0\r\n" + b"X: y\r\n" * 20_000,
            b"1_0\r\n" + body,
            b"".join(_chunks(rng, body)) + b"0",
            b"".join(_chunks(rng, body)) + b"0\r\n",
        ]
    )
    return replace(draft.done(draft.head(("Transfer-Encoding", "chunked")) + sent, Framing.ODD, closes=True), readings=(b"",))


def _odd_head(rng: Random, draft: _Draft) -> RawResponse:
    line = rng.choice(
        [
            "no colon here",
            f"no colon but {FORMS['percent'](ACCESS_TOKEN)}",
            ": no name",
            "Space : before",
            " leading: space",
            "\tfolded: line",
            "Na me: x",
            "X-Nul: a\x00b",
            "X-Cr: a\rb",
            "X-Big: " + "z" * 70_000,
            "\r\n".join(f"X-{i}: y" for i in range(300)),
            "X-Fold: a\r\n b\r\n\tc",
            "\xff: x",
            "(x): y",
            "Content-Type: text/html\r\nContent-Type: application/json",
            "X",
            "\x00",
            "Content-Encoding: identity\r\nContent-Encoding: gzip",
        ]
    )
    name, _, value = line.partition(":")
    draft.headers.insert(rng.choice([0, len(draft.headers)]), (name, value) if value else (line, ""))
    head = draft.head(_length(draft.body))
    if ":" not in line:
        head = head.replace(line.encode("latin-1") + b": ", line.encode("latin-1"))
    return draft.done(head + draft.body, Framing.ODD, closes=True)


def _odd_status_line(rng: Random, draft: _Draft) -> RawResponse:
    right = f"HTTP/1.1 {draft.status} {draft.reason}"
    line = rng.choice(
        [
            f"HTTP/1.1  {draft.status} OK",
            f"http/1.1 {draft.status} OK",
            f"HTTP/2.0 {draft.status} OK",
            f"HTTP/3 {draft.status} OK",
            f"HTTP/0.9 {draft.status} OK",
            f"HTTP/1.1 {draft.status}0 OK",
            f"HTTP/1.1 +{draft.status} OK",
            f"HTTP/1.1 -{draft.status} OK",
            f"HTTP/1.1 {draft.status}.0 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 099 OK",
            "HTTP/1.1 000 OK",
            "HTTP/1.1 abc OK",
            "HTTP/1.1 \xb2\xb0\xb0 OK",
            "HTTP/1.1",
            "HTTP/1.1 ",
            "",
            f"ICY {draft.status} OK",
            f"\r\n{right}",
            f" {right}",
            f"\ufeff{right}".encode().decode("latin-1"),
            f"{right}\x00",
            f"HTTP/1.1 {draft.status} " + "r" * 70_000,
            f"HTTP/1.1\t{draft.status}\tOK",
        ]
    )
    head = draft.head(_length(draft.body)).replace(right.encode("latin-1"), line.encode("latin-1"), 1)
    if rng.random() < 0.15:
        head = draft.head(_length(draft.body)).replace(b"\r\n", rng.choice([b"\n", b"\r", b"\n\r"]))
    return draft.done(head + draft.body, Framing.ODD, closes=True)


def _no_http(rng: Random) -> RawResponse:
    """Bytes that are no HTTP, or none."""
    token = rng.choice(list(FORMS.values()))(ACCESS_TOKEN).encode()
    sent = rng.choice(
        [
            b"",
            b"",
            b"\r\n",
            b"\x15\x03\x03\x00\x02\x02\x28",
            b"220 smtp.example.com ESMTP\r\n",
            b"SSH-2.0-OpenSSH_9.0\r\n",
            b'{"_status": "success", "download_token": "abcdefghi"}',
            b"<html>400</html>",
            b"\x00" * 1000,
            token + b"\r\n\r\n",
            b"HTTP/1.1 " + token + b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + token + b"\r\n",
            bytes(rng.randrange(256) for _ in range(rng.randint(1, 400))),
            b"x" * 200_000,
            b"HTTP/1.1 103 Early Hints\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
        ]
    )
    draft = _Draft(200, b"")
    return draft.done(Script(lambda: [sent], closes=True, resets=rng.random() < 0.1), Framing.LOST)


def _endless(head: bytes, piece: bytes, count: int) -> Iterable[bytes]:
    yield head
    for _ in range(count):
        yield piece


def _hostile(rng: Random) -> RawResponse:
    """A response that aims at the reader's memory or time."""
    status = rng.choice([200, 200, 200, 302, 404, 500])
    draft = _Draft(status, b"", [("Content-Type", rng.choice(["application/json", "text/plain", "text/html"]))])
    return replace(rng.choice(_HOSTILE)(rng, draft), hostile=True)


def _large(rng: Random, draft: _Draft) -> RawResponse:
    draft.body = bodies.hostile(rng).encode()
    draft.headers = [("Content-Type", f"text/plain; charset={rng.choice(['utf-8', 'punycode', 'idna', 'utf-7', 'iso-8859-1'])}")]
    return draft.done(draft.head(_length(draft.body)) + draft.body)


def _too_large(rng: Random, draft: _Draft) -> RawResponse:
    draft.body = rng.choice([b" ", b"a", b"{", b'{"_status": "error"}']).ljust(
        MIB + rng.choice([1, 100, 3 * MIB]), rng.choice([b" ", b"a"])
    )
    return draft.done(draft.head(_length(draft.body)) + draft.body, closes=True)


def _endless_body(rng: Random, draft: _Draft) -> RawResponse:
    draft.body = b"x" * (2 * MIB)
    if rng.random() < 0.5:
        head, piece = draft.head(("Transfer-Encoding", "chunked")), b"10000\r\n" + b"x" * 65536 + b"\r\n"
    else:
        head, piece = draft.head(("Connection", "close")), b"x" * 65536
    return draft.done(Script(lambda: _endless(head, piece, 4000)))


def _bomb(rng: Random, draft: _Draft) -> RawResponse:
    name, bits = rng.choice([("gzip", 31), ("deflate", 15), ("deflate", -15)])
    packer = zlib.compressobj(9, zlib.DEFLATED, bits)
    zeros = rng.choice([b" ", b"0", b"\x00"]) * MIB
    draft.body = b"".join(packer.compress(zeros) for _ in range(60)) + packer.flush()
    draft.headers.append(("Content-Encoding", name))
    return draft.done(draft.head(_length(draft.body)) + draft.body)


def _small_chunks(rng: Random, draft: _Draft) -> RawResponse:
    draft.body = b"a" * 100_000
    return draft.done(draft.head(("Transfer-Encoding", "chunked")) + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n")


def _endless_head(rng: Random, draft: _Draft) -> RawResponse:
    start = f"HTTP/1.1 {draft.status} OK\r\n".encode()
    head, piece = rng.choice(
        [
            (start, b"X-Endless: " + b"y" * 60_000 + b"\r\n"),
            (start, b"X: y\r\n" * 1000),
            (start + b"X: ", b"y" * 65536),
            (b"HTTP/1.1 200 ", b"y" * 65536),
            (b"", b"\x00" * 65536),
            (b"", b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" * 500),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: y\r\n" * 1000),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1" * 65536),
        ]
    )
    return replace(draft.done(Script(lambda: _endless(head, piece, 1000)), Framing.LOST), stalls=True)


def _trickle(rng: Random, draft: _Draft) -> RawResponse:
    sent = draft.head(("Content-Length", "2")) + b"{}"
    script = Script(lambda: (sent[at : at + 1] for at in range(len(sent))), pause=0.03)
    return replace(draft.done(script, Framing.LOST), stalls=True)


def _silence(rng: Random, draft: _Draft) -> RawResponse:
    sent = rng.choice([b"", b"HTTP/1.1 102 Processing\r\n\r\n", draft.head(("Content-Length", "3")) + b"{}"])
    return replace(draft.done(sent, Framing.LOST), stalls=True)


_HOSTILE = (
    [_large] * 5 + [_too_large] * 3 + [_endless_body] * 2 + [_bomb] * 3 + [_small_chunks, _endless_head, _trickle, _silence]
)
