"""The three shapes that responses may have: the API document shows none."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pendulum
from aiohttp import web


class Shape(Enum):
    """The shape of the emulator's responses.

    ``envelope``: ``{"response": message, "data": {...}, "_status": "success", "_datetime": ...}``; ``plain``: only the data;
    ``text``: one bare line.
    """

    ENVELOPE = "envelope"
    PLAIN = "plain"
    TEXT = "text"


def success(shape: Shape, message: str, data: dict[str, Any], line: str) -> web.Response:
    """Create a successful response.

    :param message: a sentence for people (envelope).
    :param data: the fields (envelope and plain).
    :param line: the bare line (text).
    """
    if shape is Shape.TEXT:
        return web.Response(text=line)
    if shape is Shape.PLAIN:
        return web.json_response(data)
    return web.json_response({"response": message, "data": data, "_status": "success", "_datetime": _now()})


def failure(shape: Shape, status: int, message: str) -> web.Response:
    """Create an error response.

    :param message: a sentence for people.
    """
    if shape is Shape.TEXT:
        return web.Response(text=message, status=status)
    if shape is Shape.PLAIN:
        return web.json_response({"message": message}, status=status)
    return web.json_response({"status": "error", "response": message, "_datetime": _now()}, status=status)


def _now() -> str:
    return pendulum.now("UTC").format("YYYY-MM-DD HH:mm:ss")
