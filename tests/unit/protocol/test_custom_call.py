from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import InvalidInputError, OutcomeUnknownError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol.custom_call import CustomCall
from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from tests.support import TOKEN, response, result_of, settings, store_file


def call(method: Any = "POST", path: Any = "/file/rename", parameters: Any = None, **more: Any) -> CustomCall:
    return CustomCall(settings(), method, path, {} if parameters is None else parameters, **more)


def test_both_hooks_send_any_other_call_and_return_its_body(emulator: Emulator) -> None:
    store_file(emulator)
    renaming = "POST", "/file/rename", {"file_id": "f1", "name": "a & b.csv"}

    async def of_the_other() -> Any:
        async with CloudStoreAsyncHook() as hook:
            await hook.request(*renaming)
            return await hook.request("get", "folder/list", {"folder_id": "staging"})

    CloudStoreHook().request(*renaming)
    listed = CloudStoreHook().request("GET", "/folder/list", {"folder_id": "staging"})
    assert listed["data"] == {"files": [{"file_id": "f1", "name": "a & b.csv"}]}
    assert asyncio.run(of_the_other())["data"] == listed["data"]
    assert emulator.state()["effects"] == {"other": 4}


def test_a_post_has_the_token_in_its_header_and_a_get_in_its_query() -> None:
    post = call(parameters={"a[]": "x y"}).request(settings())
    get = call("GET", parameters={"page": 2}).request(settings())
    assert (post.headers["Authorization"], post.url) == (f"Bearer {TOKEN}", "https://files.example.com/cloud/api/v2/file/rename")
    assert post.body == b"a%5B%5D=x%20y"
    assert get.url.endswith(f"/cloud/api/v2/file/rename?access_token={TOKEN}&page=2")
    assert "Authorization" not in get.headers


@pytest.mark.parametrize("method", ["GET", "POST", "post"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("spelled", [str, str.upper, str.title, lambda path: path[1:]])
def test_a_path_with_guards_of_its_own_is_refused_with_the_method_to_use(method: str, operation: Any, spelled: Any) -> None:
    path = spelled(operation.path)
    with pytest.raises(InvalidInputError, match=operation.hook_method):
        call(method, path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a/", "//folder/delete", "/folder//delete", "/folder/./delete", "/a/../folder/delete", "/folder%2Fdelete"),
        *("/a?b=c", "/a#b", "/a b", "/folder/delete\n", "https://h/a", "/é", None, 1),
    ],
)
def test_a_path_that_is_not_plain_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInputError, match="path must be segments"):
        call(path=path)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("DELETE", {}),
        (None, {}),
        ("POST", {"access_token": "x"}),
        ("POST", {"Access_Token": "x"}),
        ("POST", {"": "x"}),
        ("POST", {1: "x"}),
        ("POST", {"\ud800": "x"}),
        ("POST", "a=b"),
        *(("POST", {"file_id": value}) for value in (None, True, 1.5, b"x", ["f1"], {"file_id": "f1"}, "\ud800")),
    ],
)
def test_what_cannot_be_sent_as_it_is_written_is_refused(method: Any, parameters: Any) -> None:
    with pytest.raises(InvalidInputError):
        call(method, parameters=parameters)


def test_a_lost_post_says_that_it_may_be_declared_idempotent(emulator: Emulator) -> None:
    emulator.fault("drop_after", operation="other")
    store_file(emulator)
    with pytest.raises(OutcomeUnknownError, match="POST /file/rename 'f1'") as caught:
        CloudStoreHook().request("POST", "/file/rename", {"file_id": "f1", "name": "b"})
    assert "idempotent=True" in caught.value.advice
    assert "upload" not in str(caught.value)


def test_a_listing_is_returned_whole_though_an_xcom_would_not_hold_it() -> None:
    listing = {"data": {"files": [{"id": str(number), "filename": f"report-{number}.csv"} for number in range(10_000)]}}
    assert result_of(call("GET", "/folder/listing"), response(200, listing)) == listing


def test_credentials_are_neither_in_messages_nor_in_the_result() -> None:
    sent = {"password": "hunter2+", "source": "https://u:pw-1234@h/f?sig=abcd1234"}
    made = call(parameters=sent)
    body = {"echo": f"{TOKEN} hunter2+ {sent['source']}", "download_token": "t0ken-0001", "name": "report"}
    result = result_of(made, response(200, body))
    assert result == {"echo": "*** *** https://***@h/f?***", "download_token": "***", "name": "report"}
    assert made.redacted(made.secrets) == "***"
    assert call(parameters={"source": sent["source"]}).redacted(()) == "https://***@h/f?***"
    assert call().redacted(()) == ""
