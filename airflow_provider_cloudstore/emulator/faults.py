"""Scripted faults: what the emulated service does wrong, for which requests, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.protocol.operations import OPERATIONS

Work = Callable[[], Awaitable[web.StreamResponse]]

_OPERATIONS = (*(operation.key for operation in OPERATIONS), "other", "download", "*")


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


@dataclass(slots=True)
class Fault:
    """One scripted fault; :class:`Kind` says which field belongs to which kind.

    :param operation: the key of an operation, ``other`` (any other call), ``download``, or ``*`` for all of them.
    :param times: how many requests it affects; 0 for all.
    """

    kind: Kind
    operation: str = "*"
    times: int = 1
    status: int = 500
    headers: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    seconds: float = 1.0
    after: int = 1
    effect: bool = False

    def __post_init__(self) -> None:
        if self.operation not in _OPERATIONS:
            raise ValueError(f"operation must be one of {', '.join(_OPERATIONS)}, not {self.operation!r}")

    async def apply(self, request: web.Request, work: Work) -> web.StreamResponse:
        """Respond to a request, for which ``work`` performs the operation and returns the usual response."""
        match self.kind:
            case Kind.STATUS:
                if self.effect:
                    await work()
                headers = {name: str(value) for name, value in self.headers.items()}
                return web.Response(status=self.status, headers=headers, text=self.body)
            case Kind.DELAY:
                await asyncio.sleep(self.seconds)
                return await work()
            case Kind.NO_RESPONSE:
                await work()
                await asyncio.Event().wait()  # aiohttp cancels it when the client closes the connection
                return _drop(request)
            case Kind.DROP_BEFORE:
                return _drop(request)
            case Kind.DROP_AFTER:
                await work()
                return _drop(request)
            case Kind.DROP_BODY:
                response = await work()
                assert isinstance(response, web.Response)
                assert isinstance(response.body, bytes)
                await response.prepare(request)
                await response.write(response.body[: self.after])
                _drop(request)
                return response


def _drop(request: web.Request) -> web.StreamResponse:
    if request.transport:
        request.transport.close()
    return web.Response()  # nobody reads it
