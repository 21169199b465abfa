"""Bodies at random: plain ones, of which the failure table says what they mean, and odd ones, which may only do no harm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from random import Random

from tests.differential.secret_forms import ACCESS_TOKEN, FORMS, LINK_TOKEN, PROXY_PASSWORD, SOURCE_PASSWORD, SOURCE_SIGNATURE


class Says(Enum):
    """What a plain body says with HTTP 2xx."""

    DONE = "the operation was done"
    AN_ERROR = "the service reports an error"
    NOTHING = "it is not a response of the service"


@dataclass(frozen=True, slots=True)
class Body:
    """The text of a body.

    :param says: what it says, if it is a plain one.
    :param token: the download token in it, if it is a plain one.
    """

    text: str
    says: Says | None = None
    token: str | None = None


_SENTENCES = ["Done", "Could not find the file", "Größe überschritten", "<b>no</b>", "50% off"]
_NAMES = ["a", "é", "", "__class__", "\\ud800", "file_id", "token", "download_url", "data", "status", "expires_in", "message"]
_VALUES = ["NaN", "1e400", "1" * 4500, '"\\u0000"', '"\\ud800"', "[]", "null", '"error"', "[" * 900 + "]" * 900]


def body(rng: Random) -> Body:
    """A body.

    :param rng: the source of every choice.
    """
    kinds = {_success: 4, _error: 2, _not_its_own: 1, _odd: 4}
    return rng.choices(list(kinds), list(kinds.values()))[0](rng)


def echo(rng: Random) -> str:
    """A secret in one of its forms."""
    secret = rng.choice([ACCESS_TOKEN] * 3 + [LINK_TOKEN, SOURCE_PASSWORD, SOURCE_SIGNATURE, PROXY_PASSWORD])
    return FORMS[rng.choice(list(FORMS))](secret)


def _token(rng: Random) -> str:
    return "".join(rng.choices("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789-_", k=rng.randint(9, 40)))


def _success(rng: Random) -> Body:
    token = _token(rng) if rng.random() < 0.8 else None
    told = {"download_token": token} if token else {"file_id": "f9"}
    whole = {"status": rng.choice(["success", "ok"]), "message": rng.choice(_SENTENCES)}
    both = rng.choice([{**whole, **told}, {**whole, "data": told}])
    return Body(json.dumps(both, indent=rng.choice([None, 2])), Says.DONE, token)


def _error(rng: Random) -> Body:
    message = rng.choice([rng.choice(_SENTENCES), f"refused: {echo(rng)} end"])
    return Body(json.dumps({"_status": "error", "response": message}, ensure_ascii=rng.random() < 0.5), Says.AN_ERROR)


def _not_its_own(rng: Random) -> Body:
    inner = rng.choice(["Please log in", echo(rng), _token(rng)])
    return Body(rng.choice([f"<!DOCTYPE html><html>{inner}</html>", f"<html>{inner}", "{broken", f"[1, {inner}"]), Says.NOTHING)


def _odd(rng: Random) -> Body:
    """Anything: an object with odd values, broken JSON, a line of text."""
    values = [*_VALUES, json.dumps(echo(rng)), json.dumps(f"https://h/d?token={echo(rng)}"), json.dumps(_token(rng))]
    pairs = [f'"{rng.choice(_NAMES)}": {rng.choice(values)}' for _ in range(rng.choice([1, 2, 4]))]
    whole = "{" + ", ".join([*pairs, f"{json.dumps(echo(rng))}: 1"] if rng.random() < 0.1 else pairs) + "}"
    broken = rng.choice([whole[: len(whole) // 2], f"{whole}x", "{" * 100_000, f"{{{echo(rng)}"])
    line = rng.choice([_token(rng), f" {_token(rng)}\r\n", ACCESS_TOKEN, f"denied: {echo(rng)}", "", "OK", "true", "\0"])
    return Body(rng.choice([whole, whole, f'\ufeff {{"data": {whole}}}', broken, line]))
