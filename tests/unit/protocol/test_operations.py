from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol import operations
from airflow_provider_cloudstore.protocol.operations import (
    CREATE_DOWNLOAD_LINK,
    DELETE_FOLDER,
    OPERATIONS,
    UPLOAD_FROM_URL,
    Operation,
)
from tests.support import CALLS, method_of, settings, store_file
from tests.wire.failure_table import row_for

each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def test_a_file_id_may_be_a_number_and_is_sent_without_the_blanks_around_it() -> None:
    assert CREATE_DOWNLOAD_LINK.validate(0, settings()) == "0"
    assert CREATE_DOWNLOAD_LINK.validate(" a b ", settings()) == "a b"


@each
def test_a_request_prints_no_token(operation: Operation) -> None:
    assert "hunter2" not in repr(operation.request("x", settings(token="hunter2")))


def test_only_a_source_url_holds_secrets() -> None:
    url = "https://h/f?sig=abcdefgh"
    assert UPLOAD_FROM_URL.redacted(url) == "https://h/f?***"
    assert [secret.reveal() for secret in UPLOAD_FROM_URL.secrets(url)] == ["abcdefgh", "sig=abcdefgh"]
    assert DELETE_FOLDER.redacted("a?b") == "a?b"
    assert DELETE_FOLDER.secrets("a?b") == ()


def test_what_an_upload_task_returns_is_no_file_id_and_the_error_says_where_that_is() -> None:
    with pytest.raises(InvalidInputError, match=r'a string, not dict; nothing was sent\.\n.* upload.output\["file_id"\]'):
        CREATE_DOWNLOAD_LINK.validate({"url": "https://h/f", "response": {}}, settings())


def test_every_operation_is_registered() -> None:
    assert {one for one in vars(operations).values() if isinstance(one, Operation)} == set(OPERATIONS)


@each
def test_both_hooks_return_the_same_plain_data(emulator: Emulator, operation: Operation) -> None:
    """Here and not with the hooks, because it is true of each operation; what a new one lacks is the error."""
    key = operation.key
    assert key in CALLS, "a subclass of Call in protocol/calls.py, or a value for the field in SUBJECTS of tests/support.py"
    assert key in row_for("429").cells, "a column in docs/operate/retries.md, or this name in the header of one"
    kind, subject = CALLS[key]
    method = method_of(kind)

    async def of_the_other() -> Any:
        async with CloudStoreAsyncHook() as hook:
            return await getattr(hook, method)(subject)

    store_file(emulator)
    first = getattr(CloudStoreHook(), method)(subject)
    store_file(emulator)
    second = asyncio.run(of_the_other())
    assert type(first) is type(second)
    assert first.to_dict().keys() == second.to_dict().keys()
    assert json.loads(json.dumps(first.to_dict())) == first.to_dict()
    assert emulator.state()["effects"] == {key: 2}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("in_query", [False, True])
def test_the_token_is_where_the_operation_says_and_nowhere_else(method: str, in_query: bool) -> None:
    operation = replace(DELETE_FOLDER, method=method, token_in_query=in_query)
    request = operation.request("f1", settings(token="t0ken"))
    body = (request.body or b"").decode()
    found = ["t0ken" in request.headers.get("Authorization", ""), "t0ken" in request.url, "t0ken" in body]
    assert found == [not in_query, in_query, False]
    sent = body if method == "POST" else request.url.partition("?")[2]
    assert parse_qs(sent)["folder_id"] == ["f1"]
