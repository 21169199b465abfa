from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol.operations import (
    OPERATIONS,
    CreateDownloadLink,
    DeleteFolder,
    Operation,
    UploadFromUrl,
)
from tests.support import CALLS, response, result_of, settings, store_file

each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def test_a_file_id_may_be_a_number_and_is_sent_without_the_blanks_around_it() -> None:
    assert CreateDownloadLink(settings(), 0).subject == "0"
    assert CreateDownloadLink(settings(), " a b ").subject == "a b"


@each
def test_a_request_prints_no_token(operation: type[Operation[Any]]) -> None:
    kind, *arguments = CALLS[operation.key]
    assert "hunter2" not in repr(kind(settings(), *arguments).request(settings(token="hunter2")))


def test_no_parameter_of_every_call_stands_beside_the_id_that_was_written() -> None:
    own = settings(parameters={"Folder_Id": "0", "account_id": "1"})
    assert DeleteFolder(own, "d1").request(own).body == b"account_id=1&folder_id=d1"


def test_only_a_source_url_holds_secrets() -> None:
    url = "https://h/f?sig=abcdefgh"
    upload, link = UploadFromUrl(settings(), url), CreateDownloadLink(settings(), "a?b")
    assert (upload.redacted(()), link.redacted(())) == ("https://h/f?***", "a?b")
    assert [secret.reveal() for secret in upload.secrets] == ["abcdefgh", "sig=abcdefgh"]
    assert link.secrets == ()


@pytest.mark.parametrize(
    ("body", "template", "url"),
    [
        ({"token": "a/b+c"}, "https://dl.example.com/{token}/file", "https://dl.example.com/a%2Fb%2Bc/file"),
        ({"token": "t", "url": "https://h/u"}, "https://dl.example.com/{token}", "https://h/u"),
        ({"token": "t", "data": {"download_url": "https://h/f?token=t"}}, "", "https://h/f?token=t"),
        ({"token": "t", "url": ""}, "", None),
        (b"https://h/u", "https://dl.example.com/{token}", "https://h/u"),
        ({"token": "t", "url": "/f"}, "https://dl.example.com/{token}", "https://files.example.com/f"),
    ],
)
def test_a_link_has_the_url_of_the_response_or_else_of_the_connection(body: Any, template: str, url: str | None) -> None:
    own = settings(download_url=template)
    link = result_of(CreateDownloadLink(own, "f1"), response(200, body), own)
    assert (link.url_with_token, link.to_dict()["url_with_token"]) == (url, url)


def test_every_operation_is_registered() -> None:
    assert {one for one in Operation.__subclasses__() if one.__module__ == Operation.__module__} == set(OPERATIONS)


@each
def test_both_hooks_return_the_same_plain_data(emulator: Emulator, operation: type[Operation[Any]]) -> None:
    """Here and not with the hooks, because it is true of each operation; what a new one lacks is the error."""
    key = operation.key
    assert key in CALLS, "a value for each parameter in VALUES of tests/support.py"
    kind, *arguments = CALLS[key]
    method = kind.hook_method

    async def of_the_other() -> Any:
        async with CloudStoreAsyncHook() as hook:
            return await getattr(hook, method)(*arguments)

    store_file(emulator)
    first = getattr(CloudStoreHook(), method)(*arguments)
    store_file(emulator)
    second = asyncio.run(of_the_other())
    assert type(first) is type(second)
    assert first.to_dict().keys() == second.to_dict().keys()
    assert json.loads(json.dumps(first.to_dict())) == first.to_dict()
    assert emulator.state()["effects"] == {key: 2}
