"""Scripted faults: what the emulated service does wrong, on which requests, and how often.

Written as JSON, on the command line and to the state endpoint: ``{"kind": "drop_after", "operation": "upload", "times": 2}``.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Self

from aiohttp import web

from airflow_provider_cloudstore.emulator.ranges import RangedFile
from airflow_provider_cloudstore.emulator.responses import Shape, failure
from airflow_provider_cloudstore.protocol.operations import OPERATIONS

Work = Callable[[], Awaitable[web.StreamResponse]]

_NAMES = (*(operation.key for operation in OPERATIONS), "download", "*")
_OVERSIZED = 4 * 1024 * 1024
_ENDLESS_PIECE = b"x" * (64 * 1024)
_MAX_ENDLESS = 64 * 1024 * 1024  # endless for every client that should give up, but not for this machine's patience


class Kind(Enum):
    """What goes wrong. "Before" and "after" are about the operation's effect."""

    STATUS = "status"
    """Answer with ``status``, ``headers`` and ``body``; without the effect, unless ``effect`` says so."""
    DELAY = "delay"
    """Wait ``seconds``, then go on as usual."""
    DROP_BEFORE = "drop_before"
    """Close the connection without the effect."""
    DROP_AFTER = "drop_after"
    """Close the connection after the effect, without an answer."""
    DROP_BODY = "drop_body"
    """The effect, and ``after`` bytes of its answer's body; then the connection ends."""
    REDIRECT = "redirect"
    """Answer with ``status`` (default 302) and the ``Location`` in ``headers`` (default: the request's own URL)."""
    HALF = "half"
    """The effect, and half of its answer's body."""
    ENDLESS = "endless"
    """The effect, and an answer whose body does not end."""
    OVERSIZED = "oversized"
    """The effect, and an answer with a body of 4 MiB."""
    TRICKLE = "trickle"
    """The effect, and its answer one byte every ``seconds``, headers included."""
    WRONG_TYPE = "wrong_type"
    """The effect, and its answer with the ``Content-Type`` in ``headers`` (default ``text/html``)."""
    ERROR_ENVELOPE = "error_envelope"
    """HTTP 200 with an error envelope whose words are ``body``; without the effect."""
    RAW = "raw"
    """The bytes in ``raw`` or ``base64`` in place of an answer, then the end of the connection unless ``close`` is false."""


_KINDS = tuple(kind.value for kind in Kind)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any, encoding: str = "utf-8") -> bool:
    try:
        str.encode(value, encoding)
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        return False
    return True


def _is_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_text(one) and one.isprintable() for pair in value.items() for one in pair)


_YES_OR_NO = (lambda value: isinstance(value, bool), "true or false")
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (lambda value: value in _KINDS, f"one of {', '.join(_KINDS)}"),
    "operation": (lambda value: value in _NAMES, f"one of {', '.join(_NAMES)}"),
    "times": (lambda value: _is_whole(value) and value >= 0, "a whole number, 0 for all requests"),
    "status": (lambda value: _is_whole(value) and 100 <= value <= 999, "a whole number from 100 to 999"),
    "headers": (_is_headers, "an object of texts without line breaks"),
    "body": (_is_text, "a text"),
    "after": (lambda value: _is_whole(value) and value >= 0, "a whole number of bytes"),
    "seconds": (
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf,
        "a number of seconds",
    ),
    "effect": _YES_OR_NO,
    "raw": (lambda value: _is_text(value, "latin-1"), "a text whose characters are bytes, U+0000 to U+00FF"),
    "base64": (_is_base64, "bytes in base64"),
    "close": _YES_OR_NO,
}
"""For each field of a fault: whether a value will do, and what is expected."""


@dataclass(slots=True)
class Fault:
    """One scripted fault.

    :param kind: what goes wrong.
    :param operation: ``delete``, ``upload``, ``link``, ``download`` or ``*`` for all of them.
    :param times: how many requests it spoils; 0 for all that come.
    :param status: the HTTP status (``status``).
    :param headers: more headers of the answer.
    :param body: the answer's body, or its words.
    :param seconds: how long to wait (``delay``, ``trickle``).
    :param after: how many bytes of the body are sent (``drop_body``).
    :param effect: whether the operation has its effect all the same (``status``, ``raw``).
    :param raw: all bytes of the answer, status line included, one character a byte (``raw``).
    :param base64: the same in base64, in place of ``raw``.
    :param close: whether the connection ends after those bytes (``raw``).
    """

    kind: Kind
    operation: str = "*"
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    seconds: float = 1.0
    after: int = 0
    effect: bool = False
    raw: str | None = None
    base64: str | None = None
    close: bool = True

    @classmethod
    def parse(cls, given: Any) -> Self:
        """A fault from JSON.

        :param given: an object with the fields above.
        :raises ValueError: saying what is wrong with it.
        """
        names = {one.name for one in fields(cls)}
        if not isinstance(given, Mapping) or not given.keys() <= names or "kind" not in given:
            raise ValueError(f"a fault is an object with a 'kind' and any of {', '.join(sorted(names - {'kind'}))}")
        for name, value in given.items():
            right, expected = _EXPECTED[name]
            if not right(value):
                raise ValueError(f"'{name}' is {expected}")
        if given["kind"] != Kind.RAW.value and given.keys() & {"raw", "base64", "close"}:
            raise ValueError("'raw', 'base64' and 'close' belong to the kind 'raw'")
        if given["kind"] == Kind.RAW.value and ("raw" in given) == ("base64" in given):
            raise ValueError("the kind 'raw' needs the bytes of the answer, in 'raw' or in 'base64'")
        return cls(**{**given, "kind": Kind(given["kind"])})

    @property
    def answer(self) -> bytes:
        """The bytes of a ``raw`` fault."""
        return (self.raw or "").encode("latin-1") if self.base64 is None else base64.b64decode(self.base64)

    async def apply(self, request: web.Request, shape: Shape, work: Work) -> web.StreamResponse:
        """Answer ``request`` wrongly.

        :param request: the request.
        :param shape: how the service answers.
        :param work: does the operation and returns its answer.
        """
        match self.kind:
            case Kind.DELAY:
                await asyncio.sleep(self.seconds)
                return await work()
            case Kind.STATUS | Kind.REDIRECT:
                if self.effect:
                    await work()
                return self._other_status(request)
            case Kind.ERROR_ENVELOPE:
                return failure(Shape.ENVELOPE, 200, self.body)
            case Kind.DROP_BEFORE:
                return _drop(request)
            case Kind.RAW:
                await (work() if self.effect else request.read())  # unread, it would turn the end of the connection into a reset
                return await _write(request, self.answer, close=self.close)
            case _:
                return await self._apply_to_response(request, await work())

    def _other_status(self, request: web.Request) -> web.StreamResponse:
        if self.kind is Kind.STATUS:
            return web.Response(status=self.status, headers=self.headers, text=self.body)
        status = self.status if 300 <= self.status < 400 else 302
        return web.Response(status=status, headers={"Location": str(request.url), **self.headers})

    async def _cut(self, request: web.Request, answer: web.StreamResponse, body: bytes) -> web.StreamResponse:
        if isinstance(answer, RangedFile):
            answer.cut_after = (answer.content_length or 0) // 2 if self.kind is Kind.HALF else self.after
            return answer
        return await _write(request, _head(answer, len(body)), body[: len(body) // 2 if self.kind is Kind.HALF else self.after])

    async def _apply_to_response(self, request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        body = answer.body if isinstance(answer, web.Response) and isinstance(answer.body, bytes) else b""
        match self.kind:
            case Kind.HALF | Kind.DROP_BODY:
                return await self._cut(request, answer, body)
            case Kind.TRICKLE:
                whole = _head(answer, len(body)) + body
                return await _write(request, *(whole[at : at + 1] for at in range(len(whole))), pause=self.seconds)
            case Kind.OVERSIZED:
                return await _write(request, _head(answer, _OVERSIZED), b" " * _OVERSIZED)
            case Kind.ENDLESS:
                pieces = (_ENDLESS_PIECE for _ in range(_MAX_ENDLESS // len(_ENDLESS_PIECE)))
                return await _write(request, _head(answer, None), *pieces)
            case Kind.WRONG_TYPE:
                answer.headers.update({"Content-Type": "text/html", **self.headers})
                return answer
            case _:
                return _drop(request)


@dataclass(slots=True)
class Faults:
    """The script: the first fault that fits a request spoils it."""

    script: list[Fault] = field(default_factory=list)

    def take(self, operation: str) -> Fault | None:
        """The fault for the next request, if there is one.

        :param operation: what the request asks for.
        """
        for fault in self.script:
            if fault.operation in (operation, "*"):
                if fault.times:
                    fault.times -= 1
                    if not fault.times:
                        self.script.remove(fault)
                return fault
        return None


def _head(answer: web.StreamResponse, length: int | None) -> bytes:
    sized = [] if length is None else [f"Content-Length: {length}"]
    lines = [
        f"HTTP/1.1 {answer.status} {answer.reason}",
        f"Content-Type: {answer.content_type}",
        *sized,
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


async def _write(request: web.Request, *pieces: bytes, pause: float = 0.0, close: bool = True) -> web.StreamResponse:
    """Write raw bytes and end the connection; the client may be gone before."""
    for piece in pieces:
        if request.transport is None or request.transport.is_closing():
            break
        request.transport.write(piece)
        await request.writer.drain()
        if pause:
            await asyncio.sleep(pause)
    return _drop(request) if close else _Written()


class _Written(web.StreamResponse):
    """Tells aiohttp's server that the answer is written, and that the next request may come on the same connection."""

    @property
    def keep_alive(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


def _drop(request: web.Request) -> web.StreamResponse:
    if request.transport:
        request.transport.close()
    return web.Response()  # nobody is there to read it
