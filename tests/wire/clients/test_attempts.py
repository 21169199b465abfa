"""What both clients do between attempts: what they remember, and which token they send."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import Serve, Way, response

LOST = b""
REFUSED = response("401 No")


def test_a_lost_deletion_is_remembered_over_other_failures(call_way: Way, serve: Serve) -> None:
    server = serve(LOST, response("429 Slow", "Retry-After: 0"), response("404 No", body='{"message": "gone"}'))
    with call_way(settings(server.url)) as send:
        assert send() == "{'message': 'gone'}"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (LOST, "connection closed without a response"),
        (REFUSED, "HTTP 401"),
        (response("400 No", body="new-token"), r"HTTP 400: \*\*\*"),
    ],
    ids=["lost", "refused", "rejected"],
)
def test_a_refused_token_is_replaced_by_the_one_that_the_connection_holds_now_for_one_more_attempt(
    call_way: Way, serve: Serve, second: bytes, says: str, logged: pytest.LogCaptureFixture
) -> None:
    server = serve(REFUSED, second)
    own = settings(server.url, max_attempts=1)
    with call_way(own, lambda: replace(own, access_token=Secret("new-token"))) as send:
        error = send()
    assert isinstance(error, exceptions.CloudStoreError)
    assert re.search(says, str(error))
    assert [re.findall(rb"Bearer (.*)\r", request) for request in server.requests] == [[TOKEN.encode()], [b"new-token"]]
    assert "token" not in logged.text
