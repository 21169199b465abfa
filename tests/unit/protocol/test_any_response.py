"""Whatever a service answers, the parser returns a result or raises a ``CloudStoreError``, and prints no secret.

``make test`` tries 50 pairs of responses for each operation, ``make test-random`` 2,000.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, quote_plus

import pendulum
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import MAX_BODY_BYTES, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, Operation, UploadFromUrl
from tests import support
from tests.support import CALLS

NOW = pendulum.datetime(2026, 1, 1)
TOKEN = "hunter+2/token=%&é"
SIGNATURE = "hunter+3/sig=%&é"
SOURCE = f"https://user:hunter4pass@host/f?sig={quote(SIGNATURE, safe='')}"
PLANTED = [TOKEN, quote(TOKEN), quote(TOKEN, safe=""), quote_plus(SIGNATURE), SIGNATURE, "hunter4pass", SOURCE]
MOMENT = st.one_of(
    st.integers(), st.floats(), st.text(max_size=30), st.datetimes().map(str), st.sampled_from(["now", "P1D", 1e308, 10**30])
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(min_value=10**300, max_value=10**310), st.floats(), st.text(max_size=40),
    st.sampled_from([*PLANTED, "error", "ERROR", "success", f"https://h/f?download_token={quote(TOKEN)}", "a\ud800", "nul\x00"]),
)  # fmt: skip
NAMES = ["data", "status", "_status", "response", "message", "token", "download_token", "url", "download_url", *PLANTED]
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=10))
expiries = st.dictionaries(st.sampled_from(["expires", "expires_at", "expires_in"]), MOMENT)
objects = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=6)), max_leaves=20
)
answers = st.builds(lambda one, two: {**one, **two}, st.dictionaries(names, objects, max_size=6), expiries)
json_bodies = st.builds(
    lambda value, is_ascii: json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace"), answers | objects, st.booleans()
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    body = draw(json_bodies)
    cut, junk = draw(st.integers(0, len(body))), draw(st.binary(max_size=8))
    return body[:cut] + junk + body[draw(st.integers(cut, len(body))) :]


deep = st.integers(1, 30_000).map(lambda depth: b'[{"a":' * (depth // 6))
numbers = st.sampled_from([4_301, 65_000]).map(lambda digits: b'{"token": ' + b"9" * digits + b"}")
words = st.builds(
    lambda before, secret, after: f"{before}{secret}{after}".encode("utf-8", "replace"),
    st.text(max_size=30),
    st.sampled_from([*PLANTED, json.dumps(TOKEN)[1:-1]]),
    st.text(max_size=30),
)
bodies = st.one_of(json_bodies, json_bodies, broken(), words, deep, numbers, st.binary(max_size=2_000), st.just(b""))
header_values = st.one_of(
    st.text(max_size=60), st.just("text/html"), st.datetimes().map("{:%a, %d %b %Y %H:%M:%S} GMT".format), st.floats().map(str)
)
headers = st.dictionaries(st.sampled_from(["content-type", "retry-after", "location", "x"]), header_values)
responses = st.builds(
    lambda status, named, body, large: Response(status, named, body + bytes(large), NOW.timestamp(), NOW.timestamp()),
    st.one_of(st.integers(100, 599), st.sampled_from([200, 200, 200, 401, 404, 429, 503]), st.integers()),
    headers,
    bodies,
    st.sampled_from([0] * 9 + [MAX_BODY_BYTES + 1]),
)
failures = st.builds(TransportFailure, st.booleans(), st.text(max_size=50))
outcomes = st.one_of(responses, responses, responses, failures)


def shown(operation: Operation[Any], outcome: Response | TransportFailure, in_doubt: bool) -> str:
    """All that is printed or stored of what came of an answer; a link's token is stored because that is what it is for."""
    result = Attempt(operation, support.settings(token=TOKEN), in_doubt=in_doubt).interpret(outcome)
    if isinstance(result, CloudStoreError):
        error = result
        return f"{error} {error!r} {error.args} {error.reason} {error.subject} {error.__cause__}"
    stored = json.dumps(result.to_dict(), allow_nan=False)
    stored.encode("utf-8")
    if isinstance(operation, CreateDownloadLink):
        return repr(result)
    return f"{result!r} {stored}".replace(getattr(result, "file_id", "") or "\0", "")  # an id is shown, whatever it is


@pytest.mark.parametrize("operation", CALLS)
def test_any_response_is_a_result_or_an_error_of_ours_and_shows_no_secret(operation: str) -> None:
    kind, *arguments = CALLS[operation]
    planted: tuple[str, ...] = (TOKEN,)
    if kind is UploadFromUrl:  # the only one that knows what is secret in the source URL
        arguments, planted = [SOURCE], (TOKEN, "hunter4pass", SIGNATURE)

    @settings(max_examples=support.examples(50), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(first=outcomes, second=outcomes)
    def check(first: Response | TransportFailure, second: Response | TransportFailure) -> None:
        asked = kind(support.settings(token=TOKEN), *arguments)
        for in_doubt, outcome in enumerate((first, second)):
            text = shown(asked, outcome, bool(in_doubt))
            for secret in planted:
                for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]):
                    assert form not in text
            if isinstance(outcome, Response):
                pause = outcome.retry_after
                assert pause is None or pause >= 0

    check()
