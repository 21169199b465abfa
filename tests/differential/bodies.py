"""A grammar of bodies: envelopes of every shape, JSON that is none, web pages, bare lines, and what echoes a secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from tests.differential.secret_forms import ACCESS_TOKEN, FORMS, PROXY_PASSWORD, SOURCE_PASSWORD, SOURCE_SIGNATURE

_SPACES = ["", "", "", " ", "\n", "\t", "\r\n  "]
_ODD_VALUES = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "18446744073709551616",
    "-9223372036854775809",
    "9223372036854775807",
    "1" * 4500,
    "-" + "9" * 4301,
    "1" + "0" * 400,
    "1e-400",
    "0.1e1",
    '"\\u0000"',
    '"a\\u0000b"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\ud83d\\ude00"',
    '"\\uffff"',
    '"\\u2028"',
    '"é €"',
    '""',
    "{}",
    "[]",
    "-0",
    "null",
    "true",
]
_MEANINGFUL_KEYS = [
    "__id__",
    "__classname__",
    "__version__",
    "__data__",
    "__type",
    "__var",
    "__class__",
    "__source",
    "__xcom__",
    "_id",
]
_MEANINGFUL_VALUES = [
    '"airflow.sdk.definitions.connection.Connection"',
    '"airflow.models.connection.Connection"',
    '"builtins.tuple"',
    '"dict"',
    '"datetime"',
    '{"conn_id": "x", "conn_type": "http"}',
    "1",
    "[1, 2]",
]
_ERRORS = ['"error"', '"ERROR"', '"Error"', '" error "', '"\\terror\\n"', '"\\u0065rror"']
_NO_ERRORS = ['"success"', '"ok"', '"errors"', '"no error"', '["error"]', '{"error": 1}', "null", "false", "0", "1", '""']
_SENTENCES = ["Done", "The upload is queued", "Could not find the file", "Größe überschritten", "a\\nb", "<b>no</b>", "50% off"]
_TOKEN_ALPHABET = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789-_.~"


def body(rng: Random) -> str:
    """The text of a body.

    :param rng: the source of every choice.
    """
    kinds = {envelope: 60, _broken_json: 8, _page: 6, _line: 10, _other: 6, _scalar: 3, _deep: 2, _array: 3, _meaning: 4}
    return rng.choices(list(kinds), list(kinds.values()))[0](rng)


def token(rng: Random) -> str:
    """A download token that is nobody's secret."""
    return "".join(rng.choices(_TOKEN_ALPHABET, k=rng.randint(9, 40)))


def echo(rng: Random) -> str:
    """A secret in one of its forms."""
    secret = rng.choice([ACCESS_TOKEN] * 3 + [SOURCE_PASSWORD, SOURCE_SIGNATURE, PROXY_PASSWORD])
    return FORMS[rng.choice(list(FORMS))](secret)


def _messages(rng: Random) -> str:
    """A JSON string: a sentence, or one that repeats a secret."""
    if rng.random() < 0.35:
        said = echo(rng)
        # Both: the text as it is, and with escapes that JSON itself undoes.
        text = json.dumps(f"refused: {said} end", ensure_ascii=rng.random() < 0.5)
        return text.replace("/", "\\/") if rng.random() < 0.3 else text
    return f'"{rng.choice(_SENTENCES)}"'


def _value(rng: Random, depth: int = 0) -> str:
    roll = rng.random()
    if roll < 0.35 or depth > 4:
        return rng.choice(_ODD_VALUES)
    if roll < 0.5:
        return _messages(rng)
    if roll < 0.65:
        return "[" + ", ".join(_value(rng, depth + 1) for _ in range(rng.randint(0, 3))) + "]"
    if roll < 0.8:
        return _object(rng, [(_key(rng), _value(rng, depth + 1)) for _ in range(rng.randint(0, 3))])
    return str(rng.randint(-1000, 1000))


def _key(rng: Random) -> str:
    if rng.random() < 0.35:
        return rng.choice(_MEANINGFUL_KEYS)
    if rng.random() < 0.05:
        return json.dumps(echo(rng))[1:-1]
    return rng.choice(["a", "b", "count", "é", "", "nested.key", "\\u0000", "\\ud800", "file_id", "files"])


def _object(rng: Random, pairs: list[tuple[str, str]]) -> str:
    def space() -> str:
        return rng.choice(_SPACES)

    inner = ",".join(f'{space()}"{key}"{space()}:{space()}{value}{space()}' for key, value in pairs)
    return "{" + (inner or space()) + "}"


def _token_value(rng: Random) -> str:
    roll = rng.random()
    if roll < 0.2:
        return json.dumps(FORMS[rng.choice(list(FORMS))](ACCESS_TOKEN))
    if roll < 0.23:
        return json.dumps("x" + ACCESS_TOKEN)
    if roll < 0.3:
        return rng.choice(["null", '""', "[]", "{}", "true", "12345678901234567890", "7", '" "', '"a\\u0000b"', '"a\\ud800b"'])
    return f'"{token(rng)}"'


def _url_value(rng: Random) -> str:
    value = token(rng) if rng.random() < 0.75 else FORMS[rng.choice(["percent", "percent twice", "percent all"])](ACCESS_TOKEN)
    name = rng.choice(["download_token", "token", "download_token", "other"])
    base = rng.choice(
        [
            "https://cdn.example.com/d",
            "http://127.0.0.1/download",
            "/download",
            "ftp://h/x",
            "javascript:alert(1)",
            "https://h\\u0000/x",
            "https://h/\\n",
            f"https://h/{FORMS['percent'](ACCESS_TOKEN)}",
            "http://[bad",
        ]
        if rng.random() < 0.4
        else ["https://cdn.example.com/d"]
    )
    more = rng.choice(["", "&a=b", f"&access_token={FORMS['percent'](ACCESS_TOKEN)}"] if rng.random() < 0.3 else [""])
    return f'"{base}?{name}={value}{more}"'


def _link_parts(rng: Random) -> list[tuple[str, str]]:
    parts = []
    if rng.random() < 0.6:
        parts.append((rng.choice(["download_token", "token"]), _token_value(rng)))
    if rng.random() < 0.4:
        parts.append((rng.choice(["download_url", "url"]), _url_value(rng)))
    if rng.random() < 0.3:
        expiry = ["3600", '"2030-01-01 00:00:00"', "null", "NaN", "1e400", "1" * 4500, '"never"', "-5", "true", '"\\ud800"', "[]"]
        parts.append((rng.choice(["expires_at", "expires", "expires_in"]), rng.choice(expiry)))
    return parts


def envelope(rng: Random) -> str:
    """A JSON object as such services send it, with anything odd in it."""
    pairs: list[tuple[str, str]] = []
    if rng.random() < 0.7:
        pairs.append((rng.choice(["_status", "status"]), rng.choice(_ERRORS if rng.random() < 0.4 else _NO_ERRORS)))
    if rng.random() < 0.1:
        pairs.append((rng.choice(["_status", "status"]), rng.choice(_ERRORS + _NO_ERRORS)))
    if rng.random() < 0.6:
        pairs.append((rng.choice(["response", "message"]), _messages(rng) if rng.random() < 0.8 else _value(rng)))
    if rng.random() < 0.3:
        pairs += _link_parts(rng)
    if rng.random() < 0.6:
        inner = [*_link_parts(rng), *([("file_id", '"f9"')] if rng.random() < 0.4 else [])]
        pairs.append(("data", _object(rng, inner) if rng.random() < 0.9 else _value(rng)))
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        pairs.append((_key(rng), _value(rng)))
    if rng.random() < 0.7:
        rng.shuffle(pairs)
    text = rng.choice(_SPACES) + _object(rng, pairs) + rng.choice(_SPACES)
    return f"\ufeff{text}" if rng.random() < 0.05 else text


def _broken_json(rng: Random) -> str:
    whole = envelope(rng).strip()
    choices: list[Callable[[], str]] = [
        lambda: whole[: rng.randint(1, max(1, len(whole) - 1))],
        lambda: whole + rng.choice(["}", "]", "x", whole, ";", "\x00"]),
        lambda: whole[:1] + "," + whole[1:],
        lambda: whole.replace('"', "'") + "'",
        lambda: "{broken",
        lambda: "[broken",
        lambda: "{" + token(rng),
        lambda: "  \n{ok: 1}",
        lambda: "[1, 2",
        lambda: "{" * rng.choice([2, 500, 100_000]),
        lambda: f"{{{echo(rng)}",
    ]
    return rng.choice(choices)()


def _page(rng: Random) -> str:
    inner = rng.choice(["Maintenance", "Please log in", echo(rng), token(rng), '{"_status": "success"}'])
    start = rng.choice(["<!DOCTYPE html><html>", "<html>", "<HTML lang=en>", "\n  <!doctype HTML>\n<html>", "\ufeff<html>"])
    return f"{start}<body><h1>{inner}</h1></body></html>"


def _line(rng: Random) -> str:
    choices: list[Callable[[], str]] = [
        lambda: token(rng),
        lambda: token(rng) + "\n",
        lambda: f"  {token(rng)}\r\n",
        lambda: FORMS[rng.choice(list(FORMS))](ACCESS_TOKEN),
        lambda: f"{ACCESS_TOKEN}\n",
        lambda: f"{token(rng)}\n{token(rng)}",
        lambda: f"denied: {echo(rng)}",
        lambda: f"{token(rng)}\x00",
        lambda: f"\ufeff{token(rng)}",
        lambda: "a token é €",
    ]
    return rng.choice(choices)()


def _other(rng: Random) -> str:
    return rng.choice(
        ["", "", " \n", "OK", "<h1>no</h1>", "<?xml version='1.0'?><a/>", "status=error", "\x00\x01\x02", ")]}',\n{}"]
    )


def _scalar(rng: Random) -> str:
    return rng.choice(["true", "null", "0", '"error"', '"done"', "NaN", "1" * 4500, f'"{token(rng)}"'])


def _deep(rng: Random) -> str:
    levels = rng.choice([50, 150, 900, 5000, 100_000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    inside = opening * levels + ("1" if opening != "[" else "") + closing * levels
    status = rng.choice(['"_status": "error", ', '"status": "success", ', ""])
    return inside if rng.random() < 0.2 else f'{{{status}"x": {inside}}}'


def _array(rng: Random) -> str:
    return rng.choice(["[]", '[{"status": "error"}]', f'[{{"token": "{token(rng)}"}}]', f"[{_value(rng)}]", '["a", 1, NaN]'])


def _meaning(rng: Random) -> str:
    """An object that Airflow's serializers would take for one of theirs."""
    pairs = [(rng.choice(_MEANINGFUL_KEYS), rng.choice(_MEANINGFUL_VALUES)) for _ in range(rng.randint(1, 3))]
    whole = _object(rng, pairs + _link_parts(rng))
    return whole if rng.random() < 0.5 else _object(rng, [("_status", '"success"'), ("data", whole)])


def hostile(rng: Random) -> str:
    """A body near the limit of one MiB, or one that is expensive for a naive reader."""
    near = 1024 * 1024 + rng.choice([-100, -1, 0])
    long = rng.choice(["%25", "&amp;", "\\\\\\\\", "%", "&", "\\u005c", "QUFB", "41", "a b ", "=", "&#38;", "{}", "é"])
    filled = long * (near // (len(long.encode()) * rng.choice([1, 1, 3])) - 40)
    choices: list[Callable[[], str]] = [
        lambda: f'{{"_status": "error", "response": "{filled}"}}'[:near],
        lambda: '{"_status": "success", "a": 1}'.ljust(near),
        lambda: '{"_status": "error", "a": 1}'.rjust(near),
        lambda: filled,
        lambda: "[" + "1," * (near // 2 - 5) + "1]",
        lambda: "{" + ",".join(f'"k{i}":{i}' for i in range(60_000)) + "}",
        lambda: "a" * near,
    ]
    return rng.choice(choices)()
