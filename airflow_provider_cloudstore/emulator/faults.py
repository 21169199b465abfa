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

_OPERATIONS = (*(operation.key for operation in OPERATIONS), "authorize", "other", "download", "*")


class Kind(Enum):
    """What goes wrong: ``docs/reference/emulator.md`` has what a client sees. "Before" and "after" refer to the effect."""

    STATUS = "status"
    DELAY = "delay"
    NO_RESPONSE = "no_response"
    DROP_BEFORE = "drop_before"
    DROP_AFTER = "drop_after"
    DROP_BODY = "drop_body"


@dataclass(slots=True)
class Fault:
    """One scripted fault.

    :param operation: the key of an operation, ``authorize``, ``other`` (any other call), ``download``, or ``*`` for all.
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
