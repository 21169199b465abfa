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
    return _response(shape, 200, line, data, {"response": message, "data": data, "_status": "success"})


def failure(shape: Shape, status: int, message: str) -> web.Response:
    """Create an error response.

    :param message: a sentence for people.
    """
    return _response(shape, status, message, {"message": message}, {"status": "error", "response": message})


def _response(shape: Shape, status: int, line: str, plain: dict[str, Any], envelope: dict[str, Any]) -> web.Response:
    if shape is Shape.TEXT:
        return web.Response(text=line, status=status)
    now = pendulum.now("UTC").format("YYYY-MM-DD HH:mm:ss")
    return web.json_response(plain if shape is Shape.PLAIN else {**envelope, "_datetime": now}, status=status)
