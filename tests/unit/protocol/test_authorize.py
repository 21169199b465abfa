from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.authorize import Authorize
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import connected, response, result_of

KEY_1, KEY_2 = "1" * 64, "2" * 64
GIVEN = {"data": {"access_token": "t" * 128, "account_id": 158642}, "_status": "success"}
REFUSED = {
    "_status": "error",
    "response": "Could not authenticate user. The key pair may be invalid or your account may be locked.",
}


def site(login: str | None = KEY_1) -> Settings:
    return connected({"service": "yetishare"}, password=KEY_2, login=login)


def test_the_token_is_asked_for_with_the_connections_login_and_password() -> None:
    own = site()
    request = Authorize(own).request(own)
    assert (request.method, request.url) == ("POST", "https://h/api/v2/authorize")
    assert request.body == f"key1={KEY_1}&key2={KEY_2}".encode()
    assert not {"Authorization", "authorization"} & {*request.headers}
    assert result_of(Authorize(own), response(200, GIVEN), own) == own.with_token(Secret("t" * 128), "158642")


def test_a_connection_without_a_login_has_the_token_itself() -> None:
    own = site(login=None)
    assert (own.keys, own.access_token) == ((), Secret(KEY_2))


def test_the_token_and_the_account_go_with_every_call_and_the_credentials_are_secret() -> None:
    own = site().with_token(Secret("t0ken"), "158642")
    assert CreateDownloadLink(own, "f1").request(own).url == (
        "https://h/api/v2/file/download?access_token=t0ken&account_id=158642&file_id=f1"
    )
    assert {secret.reveal() for secret in own.secrets} == {"t0ken", KEY_1, KEY_2}
    assert not [word for word in ("t0ken", "158642", KEY_1, KEY_2) if word in repr(own)]
    repeated = response(200, {"_status": "error", "response": "no t0ken-1", "data": {"access_token": "t0ken-1"}})
    assert "service reports an error: no ***" in str(Attempt(Authorize(site()), site()).interpret(repeated))


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        *((answer, True) for answer in (response(200, REFUSED), response(401))),
        *((answer, False) for answer in (response(500), response(404), response(302), response(200, b"<html>maintenance"))),
        *((answer, False) for answer in (response(200), response(403), response(405))),
    ],
)
def test_only_what_is_about_the_keys_is_a_refusal_of_them(answer: Any, is_refusal: bool) -> None:
    own = site()
    assert isinstance(Attempt(Authorize(own), own).interpret(answer), exceptions.ConfigurationError) is is_refusal


def test_the_error_of_a_token_that_another_task_has_ended_says_what_helps() -> None:
    own = site().with_token(Secret("t0ken"), "1")
    error: Any = Attempt(CreateDownloadLink(own, "f1"), own).interpret(response(401))
    assert "another task that asked for a token may have ended it" in error.advice
