"""Scripted faults: what the emulated service does wrong, for which requests, and how often.

On the command line and over HTTP they are JSON: ``{"kind": "drop_after", "operation": "upload", "times": 2}``.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Self, assert_never

from aiohttp import web

from airflow_provider_cloudstore.emulator.ranges import RangedFile
from airflow_provider_cloudstore.protocol.operations import OPERATIONS

Work = Callable[[], Awaitable[web.StreamResponse]]

_NAMES = (*(operation.key for operation in OPERATIONS), "download", "*")


class Kind(Enum):
    """What goes wrong. "Before" and "after" refer to the operation's effect."""

    STATUS = "status"
    """Respond with ``status``, ``headers`` and ``body``; without the effect, unless ``effect`` is true."""
    DELAY = "delay"
    """Wait ``seconds``, then respond as usual."""
    DROP_BEFORE = "drop_before"
    """Close the connection without the effect."""
    DROP_AFTER = "drop_after"
    """Close the connection after the effect, without a response."""
    DROP_BODY = "drop_body"
    """The effect, and the first ``after`` bytes of the response body; then close the connection."""
    REDIRECT = "redirect"
    """Respond with ``status`` (default 302) and the ``Location`` in ``headers`` (default: the request's own URL)."""
    RAW = "raw"
    """Send the bytes in ``raw`` or ``base64`` instead of a response, then close the connection unless ``close`` is false."""


_KINDS = tuple(kind.value for kind in Kind)


def _is_number(value: Any, least: float, most: float = sys.float_info.max, kind: Any = int) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most


def _converts(convert: Callable[..., Any], *arguments: Any) -> bool:
    try:
        convert(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def _is_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _converts(str.encode, one) and one.isprintable() for pair in value.items() for one in pair
    )


_YES_OR_NO = (lambda value: isinstance(value, bool), "true or false")
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (lambda value: value in _KINDS, f"one of {', '.join(_KINDS)}"),
    "operation": (lambda value: value in _NAMES, f"one of {', '.join(_NAMES)}"),
    "times": (lambda value: _is_number(value, 0), "a whole number, 0 for all requests"),
    "status": (lambda value: _is_number(value, 100, 999), "a whole number from 100 to 999"),
    "headers": (_is_headers, "an object of strings without line breaks"),
    "body": (lambda value: _converts(str.encode, value), "a string"),
    "after": (lambda value: _is_number(value, 0), "a whole number of bytes"),
    "seconds": (lambda value: _is_number(value, 0, kind=(int, float)), "a number of seconds"),
    "effect": _YES_OR_NO,
    "raw": (lambda value: _converts(str.encode, value, "latin-1"), "a string whose characters are bytes, U+0000 to U+00FF"),
    "base64": (lambda value: _converts(base64.b64decode, value, None, True), "bytes in base64"),
    "close": _YES_OR_NO,
}
"""For each field of a fault: whether a value is valid, and what is expected."""


@dataclass(slots=True)
class Fault:
    """One scripted fault.

    :param kind: what goes wrong.
    :param operation: ``delete``, ``upload``, ``link``, ``download`` or ``*`` for all of them.
    :param times: how many requests it affects; 0 for all.
    :param status: the HTTP status (``status``).
    :param headers: additional response headers.
    :param body: the response body.
    :param seconds: how long to wait (``delay``).
    :param after: how many bytes of the body are sent (``drop_body``).
    :param effect: whether the operation still has its effect (``status``, ``raw``).
    :param raw: all bytes of the response, status line included, one character per byte (``raw``).
    :param base64: the same in base64, instead of ``raw``.
    :param close: whether the connection is closed after those bytes (``raw``).
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
        """Validate a fault that came as JSON.

        :param given: an object with the fields above.
        :raises ValueError: with the reason why it is invalid.
        """
        names = {one.name for one in fields(cls)}
        if not isinstance(given, Mapping) or not given.keys() <= names or "kind" not in given:
            raise ValueError(f"a fault must be an object with a 'kind' and any of {', '.join(sorted(names - {'kind'}))}")
        for name, value in given.items():
            is_valid, expected = _EXPECTED[name]
            if not is_valid(value):
                raise ValueError(f"'{name}' must be {expected}")
        if given["kind"] != Kind.RAW.value and given.keys() & {"raw", "base64", "close"}:
            raise ValueError("'raw', 'base64' and 'close' are only for the kind 'raw'")
        if given["kind"] == Kind.RAW.value and ("raw" in given) == ("base64" in given):
            raise ValueError("the kind 'raw' needs the bytes to send, in either 'raw' or 'base64'")
        return cls(**{**given, "kind": Kind(given["kind"])})

    async def apply(self, request: web.Request, work: Work) -> web.StreamResponse:
        """Respond to a request with this fault.

        :param work: performs the operation and returns the usual response.
        """
        match self.kind:
            case Kind.DELAY:
                await asyncio.sleep(self.seconds)
                return await work()
            case Kind.STATUS | Kind.REDIRECT:
                if self.effect:
                    await work()
                return self._other_status(request)
            case Kind.DROP_BEFORE:
                return _drop(request)
            case Kind.RAW:
                await (work() if self.effect else request.read())  # closing with unread data would reset the connection
                raw = (self.raw or "").encode("latin-1") if self.base64 is None else base64.b64decode(self.base64)
                return await _write(request, raw, close=self.close)
            case Kind.DROP_AFTER:
                await work()
                return _drop(request)
            case Kind.DROP_BODY:
                return await self._cut(request, await work())
            case _:
                assert_never(self.kind)

    def _other_status(self, request: web.Request) -> web.StreamResponse:
        if self.kind is Kind.STATUS:
            return web.Response(status=self.status, headers=self.headers, text=self.body)
        status = self.status if 300 <= self.status < 400 else 302
        return web.Response(status=status, headers={"Location": str(request.url), **self.headers})

    async def _cut(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        if isinstance(response, RangedFile):
            response.cut_after = self.after
            return response
        body = response.body if isinstance(response, web.Response) and isinstance(response.body, bytes) else b""
        return await _write(request, _head(response, len(body)) + body[: self.after])


@dataclass(slots=True)
class Faults:
    """The script: the first fault that matches a request is applied to it."""

    script: list[Fault] = field(default_factory=list)

    def take(self, operation: str) -> Fault | None:
        """Return the fault for the next request, if there is one, and count it as used."""
        for fault in self.script:
            if fault.operation in (operation, "*"):
                if fault.times:
                    fault.times -= 1
                    if not fault.times:
                        self.script.remove(fault)
                return fault
        return None


def _head(response: web.StreamResponse, length: int) -> bytes:
    headers = {**response.headers, "Connection": "close", "Content-Length": str(length)}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {response.status} {response.reason}", *lines, "", ""]).encode()


async def _write(request: web.Request, raw: bytes, *, close: bool = True) -> web.StreamResponse:
    """Write raw bytes and close the connection; the client may close it first."""
    if request.transport and not request.transport.is_closing():
        request.transport.write(raw)
        await request.writer.drain()
    return _drop(request) if close else _Written()


class _Written(web.StreamResponse):
    """Tells aiohttp's server that the response has been written and the connection stays open for the next request."""

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
    return web.Response()  # nobody reads it
