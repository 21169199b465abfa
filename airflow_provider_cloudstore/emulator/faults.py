"""Scripted faults: what the emulated service does wrong, for which requests, and how often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aiohttp import web

from airflow_provider_cloudstore.protocol import operations

OPERATIONS = (*(operation.key for operation in operations.OPERATIONS), "authorize", "other", "download", "*")


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

    :param operation: one of :data:`OPERATIONS`: ``other`` is any other call, and ``*`` is all of them.
    :param times: how many requests it affects; 0 for all.
    :param body: the text of the response, or data for JSON.
    """

    kind: Kind
    operation: str = "*"
    times: int = 1
    status: int = 500
    headers: dict[str, Any] = field(default_factory=dict)
    body: Any = ""
    seconds: float = 1.0
    after: int = 1
    effect: bool = False

    def __post_init__(self) -> None:
        self.body = self.body if isinstance(self.body, str) else json.dumps(self.body)
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, not {self.operation!r}")

    async def apply(self, request: web.Request, work: Callable[[], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        """Respond to a request, for which ``work`` performs the operation and returns the usual response."""
        if self.kind is Kind.DELAY:
            await asyncio.sleep(self.seconds)
            return await work()
        usual = await work() if self.effect or self.kind not in (Kind.STATUS, Kind.DROP_BEFORE) else web.Response()
        if self.kind is Kind.STATUS:
            headers = {name: str(value) for name, value in self.headers.items()}
            return web.Response(status=self.status, headers=headers, text=self.body)
        if self.kind is Kind.NO_RESPONSE:
            await asyncio.Event().wait()  # aiohttp cancels it when the client closes the connection
        if self.kind is Kind.DROP_BODY:
            assert isinstance(usual, web.Response)
            assert isinstance(usual.body, bytes)
            await usual.prepare(request)
            await usual.write(usual.body[: self.after])
        if request.transport:
            request.transport.close()
        return usual  # nobody reads it
