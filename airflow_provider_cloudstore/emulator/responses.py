"""The three shapes in which such services answer; which one a real service uses, its document does not show."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pendulum
from aiohttp import web


class Shape(Enum):
    """How the emulator answers.

    ``envelope``: ``{"response": words, "data": {...}, "_status": "success", "_datetime": ...}``; ``plain``: the data alone;
    ``text``: one bare line.
    """

    ENVELOPE = "envelope"
    PLAIN = "plain"
    TEXT = "text"


def success(shape: Shape, message: str, data: dict[str, Any], line: str) -> web.Response:
    """A successful answer.

    :param shape: how to answer.
    :param words: a sentence for people (envelope).
    :param data: the fields (envelope and plain).
    :param line: the bare line (text).
    """
    if shape is Shape.TEXT:
        return web.Response(text=line)
    if shape is Shape.PLAIN:
        return web.json_response(data)
    return web.json_response({"response": message, "data": data, "_status": "success", "_datetime": _now()})


def failure(shape: Shape, status: int, message: str) -> web.Response:
    """An error's answer.

    :param shape: how to answer.
    :param status: the HTTP status.
    :param words: a sentence for people.
    """
    if shape is Shape.TEXT:
        return web.Response(text=message, status=status)
    if shape is Shape.PLAIN:
        return web.json_response({"message": message}, status=status)
    return web.json_response({"status": "error", "response": message, "_datetime": _now()}, status=status)


def _now() -> str:
    return pendulum.now("UTC").format("YYYY-MM-DD HH:mm:ss")
