"""Scripted faults: what the emulated service does wrong, for which requests, and how often.

On the command line and over HTTP they are JSON: ``{"kind": "drop_after", "operation": "upload", "times": 2}``.
"""

from __future__ import annotations

import asyncio
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
    NO_RESPONSE = "no_response"
    """The effect, and no response, until the client gives up."""
    DROP_BEFORE = "drop_before"
    """Close the connection without the effect."""
    DROP_AFTER = "drop_after"
    """Close the connection after the effect, without a response."""
    DROP_BODY = "drop_body"
    """The effect, and the first ``after`` bytes of the response body; then close the connection."""
    REDIRECT = "redirect"
    """Respond with ``status`` (default 302) and the ``Location`` in ``headers`` (default: the request's own URL)."""


_TYPES: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "operation": (str,),
    "times": (int,),
    "status": (int,),
    "headers": (dict,),
    "body": (str,),
    "seconds": (int, float),
    "after": (int,),
    "effect": (bool,),
}


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
    :param effect: whether the operation still has its effect (``status``).
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
            if type(value) not in _TYPES[name]:
                raise ValueError(f"'{name}' must be of the type {_TYPES[name][-1].__name__}")
        kinds = [kind.value for kind in Kind]
        for name, known in (("kind", kinds), ("operation", _NAMES)):
            if given.get(name, known[0]) not in known:
                raise ValueError(f"'{name}' must be one of {', '.join(known)}")
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
            case Kind.DROP_AFTER:
                await work()
                return _drop(request)
            case Kind.NO_RESPONSE:
                await work()
                await asyncio.Event().wait()  # aiohttp cancels it when the client closes the connection
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
        cut = web.StreamResponse(status=response.status, headers=response.headers)
        cut.content_length = len(body)
        await cut.prepare(request)
        await cut.write(body[: self.after])
        return _drop(request)


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


def _drop(request: web.Request) -> web.StreamResponse:
    if request.transport:
        request.transport.close()
    return web.Response()  # nobody reads it
