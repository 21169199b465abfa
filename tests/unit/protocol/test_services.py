from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_provider_cloudstore.exceptions import ServiceError
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.services import SERVICES, Service
from airflow_provider_cloudstore.protocol.settings import EXTRAS
from tests.support import connected, response, result_of


def test_every_field_is_an_extra_of_the_same_name_that_wins_over_the_row() -> None:
    assert {one.name for one in dataclasses.fields(Service)} <= EXTRAS.keys()
    for name, row in SERVICES.items():
        assert (known := connected({"service": name})).service == row
        assert connected({"service": name, "api_path": "x/"}).service == dataclasses.replace(known.service, api_path="/x")


@pytest.mark.parametrize(
    ("place", "header", "query", "form"),
    [("document", {"POST"}, {"GET"}, set()), ("header", {"POST", "GET"}, set(), set()), ("parameter", set(), {"GET"}, {"POST"})],
)
def test_the_token_is_where_the_service_wants_it_and_nowhere_else(
    place: str, header: set[str], query: set[str], form: set[str]
) -> None:
    own = connected({"token_in": place, "parameters": {"account_id": "a 1"}}, password="t0ken")
    for operation in (DeleteFolder(own, "d1"), UploadFromUrl(own, "https://h/f"), CreateDownloadLink(own, "f1")):
        request = operation.request(own)
        sent = {"header": str(request.headers), "query": request.url, "form": (request.body or b"").decode()}
        found = {where for where, text in sent.items() if "t0ken" in text}
        wanted = {"header": header, "query": query, "form": form}
        assert found == {where for where, methods in wanted.items() if request.method in methods}
        assert "account_id=a%201" in sent["query" if request.method == "GET" else "form"]


@pytest.mark.parametrize(
    ("extra", "host"),
    [({}, "https://h/cloud"), ({}, "https://h/cloud/cloud/api/v2/"), ({"api_path": "/"}, "https://h/cloud/cloud/api/v2")],
)
def test_the_calls_are_below_the_api_path_once(extra: dict[str, Any], host: str) -> None:
    own = connected(extra, host)
    assert DeleteFolder(own, "d1").request(own).url == "https://h/cloud/cloud/api/v2/folder/delete"


def test_credentials_in_the_parameters_of_every_call_are_secret() -> None:
    own = connected({"parameters": {"api_key": "158642-key", "format": "json"}})
    assert "158642-key" in {secret.reveal() for secret in own.secrets}
    assert "158642-key" not in repr(own)


@pytest.mark.parametrize("body", [{"result": True, "message": "Url added"}, {"response": "Url added."}, {"data": {"id": 5}}, {}])
def test_a_yetishare_upload_is_queued_whatever_is_answered_that_is_no_error(body: Any) -> None:
    own = connected({"service": "yetishare"})
    assert result_of(UploadFromUrl(own, "https://h/f"), response(200, body), own).file_id == ""
    for refused in ({"_status": "error"}, {"status": "error"}, {"result": False, "message": "no"}):
        with pytest.raises(ServiceError):
            result_of(UploadFromUrl(own, "https://h/f"), response(200, refused), own)
