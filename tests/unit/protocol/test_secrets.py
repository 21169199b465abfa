from __future__ import annotations

import json
import re
from urllib.parse import quote, quote_plus, urlsplit

import pytest
import requests
from yarl import URL

from airflow_provider_cloudstore.protocol.secrets import Secret, redact, redact_url, repeats_secret, secrets_in
from tests.wire.failure_table import rows

AWKWARD = 'a+b/c=d%e&f g#é"\\'


def test_a_secret_shows_itself_nowhere_but_where_it_is_revealed() -> None:
    secret = Secret(AWKWARD)
    for shown in (str(secret), repr(secret), f"{[secret]}"):
        assert AWKWARD not in shown
        assert "***" in shown
    assert secret.reveal() == AWKWARD


@pytest.mark.parametrize(
    "printed",
    [
        AWKWARD,
        json.dumps(AWKWARD)[1:-1],
        json.dumps(AWKWARD, ensure_ascii=False)[1:-1],
        json.dumps(AWKWARD)[1:-1].replace("/", "\\/"),
        quote(AWKWARD),
        quote(AWKWARD, safe=""),
        quote_plus(AWKWARD),
        re.sub("%..", lambda found: found[0].lower(), quote(AWKWARD, safe="")),
        str(requests.Request("GET", "http://h/", params={"t": AWKWARD}).prepare().url).partition("t=")[2],
        str(URL("http://h/").with_query(t=AWKWARD)).partition("t=")[2],
    ],
)
def test_every_form_that_a_library_prints_is_redacted(printed: str) -> None:
    assert redact(f"before {printed} after", [Secret(AWKWARD)]) == "before *** after"


def test_a_secret_that_begins_like_a_shorter_one_keeps_no_tail() -> None:
    assert redact("token-abc-and-more", [Secret("token-abc"), Secret("token-abc-and-more")]) == "***"


def test_a_secret_has_at_least_three_characters() -> None:
    assert redact("ab, abc", [Secret(""), Secret("ab"), Secret("abc")]) == "ab, ***"


def test_a_value_that_repeats_a_secret_is_recognized_and_a_short_secret_as_a_whole_only() -> None:
    for printed in (AWKWARD, f"https://h/f?token={quote(AWKWARD, safe='')}&x=1", "short", "an 8-digits one"):
        assert repeats_secret(printed, (Secret(AWKWARD), Secret("short"), Secret("8-digits")))
    assert not repeats_secret("a short one", (Secret("short"), Secret("another-one")))
    assert not repeats_secret("https://h/f?token=of-the-link", (Secret("another-one"),))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/path/file.csv", "https://host/path/file.csv"),
        ("https://host:8443/path?sig=abc&x=1", "https://host:8443/path?***"),
        ("ftp://user:pass@host/file#frag", "ftp://***@host/file#***"),
    ],
)
def test_a_url_is_shown_without_what_gives_access(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    assert redact_url(redact_url(url)) == shown


@pytest.mark.parametrize(
    ("url", "masked", "kept"),
    [
        *([re.findall(r"`(.*?)`", cell) for cell in row] for row in rows("| source URL | masked piece |")),
        (["https://ghp_0123456789:x-oauth-basic@src/f"], ["ghp_0123456789"], ["x-oauth-basic"]),
        (["https://admin:s3cr3t-pw@src/f#x=1"], ["admin:s3cr3t-pw", "x=1"], ["admin"]),
    ],
)
def test_of_a_source_url_its_credentials_are_masked_and_the_rest_stays(
    url: list[str], masked: list[str], kept: list[str]
) -> None:
    secrets = secrets_in({"url": url[0]})
    assert [redact(f"({text})", secrets) for text in masked] == ["(***)"] * len(masked)
    assert [redact(f"({text})", secrets) for text in kept] == [f"({text})" for text in kept]
    assert urlsplit(url[0]).query == "" or redact(urlsplit(url[0]).query, secrets) == "***"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://h/f?use_token=false&x=1", "false"),
        ("https://h/f?K%65y=Staging&x=1", "Staging"),
        ("https://h/f#none", "none"),
        ("ftp://anonymous@h/f", "anonymous"),
        ("https://h/2026/a%20b.csv?x=1&token=a%20b.csv", "a b.csv"),
    ],
)
def test_a_word_that_everybody_writes_and_a_files_name_are_no_secret(url: str, kept: str) -> None:
    assert redact(f"{kept}, {redact_url(url)}", secrets_in({"url": url})) == f"{kept}, {redact_url(url)}"


def test_of_the_urls_in_a_text_the_credentials_are_masked_and_the_words_stay() -> None:
    text = "see https://u:pw@h/f?use_token=false&sig=0a1b&token=True and https://h/f?key=f1&secret=none;api_key=x&sessionId=9"
    shown = "see https://***@h/f?use_token=false&sig=***&token=True and https://h/f?key=f1&secret=none;api_key=***&sessionId=***"
    assert redact(text, []) == shown


def test_what_gives_access_in_a_url_is_found_encoded_and_decoded() -> None:
    found = {
        secret.reveal() for secret in secrets_in({"url": "https://us%2Ber:pa:s%20s@host/p?to%6ben=12%2B45+78;id=200&name#frag"})
    }
    assert found > {"us%2Ber:pa:s%20s", "us+er:pa:s s", "pa:s%20s", "pa:s s", "12%2B45+78", "12+45+78", "12+45 78", "frag"}
    assert "200" not in found
    assert secrets_in({"url": "https://[bad?sig=1"}) == (Secret("https://[bad?sig=1"),)  # cannot be read
