from __future__ import annotations

import base64
import html
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cloudstore.protocol.encodings import hides_secret
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.support import examples

TOKEN = "s3cr/et+tok=en&é"


def hexdump(content: bytes, line: str, group: int) -> list[str]:
    """The lines of ``xxd`` and of ``hexdump -C``."""
    return [
        line.format(at, part.hex(" ", group), "".join(chr(byte) if 32 < byte < 127 else "." for byte in part))
        for at, part in ((at, content[at : at + 16]) for at in range(0, len(content), 16))
    ]


ENCODINGS: dict[str, Callable[[str], str]] = {
    "clear": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, every byte": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "form": quote_plus,
    "HTML": html.escape,
    "HTML, decimal": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "HTML, hexadecimal": lambda text: "".join(f"&#x{ord(char):X};" for char in text),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON, slashes": lambda text: text.replace("/", "\\/"),
    "JSON, every character": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "PHP": lambda text: "".join(f"\\x{byte:02X}" for byte in text.encode("latin-1")),
    "PHP, UTF-8": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "percent, u": lambda text: "".join(f"%u{ord(char):04X}" for char in text),
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "Python": lambda text: "".join(f"\\U{ord(char):08x}" for char in text),
    "PHP, octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode("latin-1")),
    "PHP, braces": lambda text: "".join(f"\\u{{{ord(char):x}}}" for char in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, URL-safe": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64, behind something": lambda text: base64.b64encode(b"Bearer " + text.encode() + b" and more").decode(),
    "base64, in lines": lambda text: "\r\n".join(base64.encodebytes(text.encode() * 8).decode().splitlines()),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32, behind something": lambda text: (
        base64.b32encode(b"Bearer " + text.encode() + b" and more").decode().lower().rstrip("=")
    ),
    "base32, extended": lambda text: base64.b32hexencode(text.encode()).decode(),
    "base85": lambda text: base64.b85encode(text.encode()).decode(),
    "base85, behind something": lambda text: base64.b85encode(b"Bearer " + text.encode() + b" and more").decode(),
    "ASCII85": lambda text: base64.a85encode(text.encode()).decode(),
    "ASCII85, behind something": lambda text: base64.a85encode(b"Bearer: " + text.encode() + b"!", adobe=True).decode(),
    "UTF-16, read byte by byte": lambda text: text.encode("utf-16-le").decode("latin-1"),
    "invisible": "\u200b".join,
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal, colons": lambda text: text.encode().hex(":"),
    "hexadecimal, hyphens": lambda text: text.encode().hex("-"),
    "hexadecimal, blanks": lambda text: text.encode().hex(" "),
    "full width": lambda text: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text),
    "hexadecimal, prefixed": lambda text: " ".join(f"0x{byte:02x}" for byte in text.encode()),
    "hexadecimal, prefixed, commas": lambda text: ", ".join(f"0X{byte:02X}" for byte in text.encode()),
    "hexadecimal, commas": lambda text: text.encode().hex(","),
    "hexdump": lambda text: "\n".join(hexdump(text.encode(), "{:08x}: {}  {}", 2)),
    "hexdump, canonical": lambda text: "\n".join(hexdump(text.encode(), "{:08x}  {}  |{}|", 1)),
    "hexadecimal, upper case": lambda text: text.encode().hex().upper(),
}
AROUND = ["{}", "The token {} was refused.", "x={}&y=1", '{{"echo": "{}"}}', "0{}"]


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_a_secret_is_found_in_every_encoding_that_texts_travel_in(encode: Callable[[str], str]) -> None:
    for around in AROUND:
        assert hides_secret(around.format(encode(TOKEN)), [Secret("another-one"), Secret(TOKEN)]), around


def nested(names: list[str], around: str) -> str:
    text = SECRET
    for name in names:
        text = ENCODINGS[name](text)
    return around.format(text)


SECRET = "s3cr/et+tok=en&x"  # ASCII, which every encoding but the two left out keeps
NESTED = sorted(ENCODINGS.keys() - {"invisible", "full width", "hexdump", "hexdump, canonical"})  # a dump is read as it stands
DELIMITED = [name for name in NESTED if "85" not in name]  # what stands beside these is none of their digits


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.lists(st.sampled_from(DELIMITED), min_size=1, max_size=3), st.sampled_from(AROUND))
def test_a_secret_is_found_through_three_encodings(names: list[str], around: str) -> None:
    assert hides_secret(text := nested(names, around), [Secret(SECRET)]), text


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.lists(st.sampled_from(NESTED), min_size=1, max_size=2), st.sampled_from(AROUND[:2]))
def test_a_secret_is_found_through_two_encodings_of_all(names: list[str], around: str) -> None:
    assert hides_secret(text := nested(names, around), [Secret(SECRET)]), text


@pytest.mark.parametrize("token", ["abc%41defgh", "a&amp;bcdefgh", "abc\\u0041defgh", "c2VjcmV0LXNlY3JldA"])
def test_a_secret_that_looks_encoded_itself_is_found(token: str) -> None:
    assert hides_secret(f"the token {token} is bad", [Secret(token)])
    assert hides_secret(base64.b64encode(token.encode()).decode(), [Secret(token)])


LONG = "eyJhbGciOiJIUzI1NiJ9.QmFzZVRlc3RUb2tlbkZvckJyZWFraW5n.c2lnbmF0dXJlLW9mLXRoZS10b2tlbi0wMTIzNDU2Nzg5"


@pytest.mark.parametrize("token", ["AcC3ssT0ken-sEcretXYZ0987654321abc", LONG], ids=["short", "long"])
@pytest.mark.parametrize("width", [7, 20, 76])
@pytest.mark.parametrize(
    "encode", [str.encode, base64.b64encode, base64.b32encode, base64.b85encode, base64.a85encode, lambda raw: raw.hex().encode()]
)
def test_a_secret_is_found_in_a_text_that_is_wrapped(token: str, width: int, encode: Any) -> None:
    behind = b"" if encode is str.encode else b"GET /cloud HTTP/1.1\r\nAuthorization: Bearer "
    raw = token if encode is str.encode else behind + token.encode()
    plain = encode(raw).decode()
    for gap in ("\n", "\r\n", " ", "\\n", "\\r\\n", "\\\\n", "\\t", "%0A", "&#10;", "\\u000a"):
        # What escapes a line break also escapes a backslash.
        text = plain.replace("\\", "\\\\") if gap.startswith("\\") else plain
        wrapped = gap.join(text[at : at + width] for at in range(0, len(text), width))
        assert hides_secret(f'{{"echo": "{wrapped}"}}', [Secret(token)]), gap


def test_a_text_without_a_secret_hides_none() -> None:
    text = '{"response":"The upload is queued","data":{"file_id":"f0123456789ab","url":"https://h/f?a=%2F&b=YWJjZGVmZ2hpamts"}}'
    assert not hides_secret(text, [Secret(TOKEN)])
    assert not hides_secret(text, [])


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS.keys())
@pytest.mark.parametrize("secret", ["s3cr3t-8", "tok_3fA9xQ27bLm0Zc81", "geheimnisvoll-für-alle"])
def test_a_secret_is_found_wherever_in_an_encoded_text_it_stands(encode: Callable[[str], str], secret: str) -> None:
    for before in ("", "a", "ab", "abc", "abcd", "words and "):
        assert hides_secret(encode(f"{before}{secret}, and more"), [Secret(secret)]), before


@pytest.mark.parametrize("secret", ["s3cr3t-8", "tok_3fA9xQ27bLm0Zc81"])
def test_ordinary_words_hide_nothing(secret: str) -> None:
    for text in ("File not found", "2026-11-21 08:00:00 UTC: 17 files of folder 'exports/2026/11' are queued (3 of 4)"):
        assert not hides_secret(text, [Secret(secret)])


def test_a_short_secret_is_not_looked_for() -> None:
    assert not hides_secret("c2hvcnQ= short", [Secret("short")])


@pytest.mark.parametrize(
    "piece",
    [
        "%25",
        "&amp;",
        "\\\\",
        "QUFB",
        "4141",
        "a",
        "MFRGG",
        "9jqo^",
        "x|y~z",
        "%26amp;",
        "\\u005c",
        "0x41, ",
        "00000000: 41",
        "\\n",
    ],
)
def test_looking_takes_little_time_whatever_the_text(piece: str) -> None:
    text = (piece * 36_000)[:36_000]
    began = time.process_time()
    hides_secret(text, [Secret(TOKEN)])
    assert time.process_time() - began < 1
