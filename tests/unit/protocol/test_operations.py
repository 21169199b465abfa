from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.app import Service
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
from tests.support import CALLS, KINDS, SUBJECTS, method_of, settings, store_file
from tests.wire.failure_table import row_for

ALL = OPERATIONS


@pytest.mark.parametrize("operation", [DELETE_FOLDER, CREATE_DOWNLOAD_LINK], ids=lambda operation: operation.name)
def test_an_id_may_be_a_number_and_is_sent_without_the_blanks_around_it(operation: Operation) -> None:
    assert operation.validate(42, settings()) == "42"
    assert CREATE_DOWNLOAD_LINK.validate("0", settings()) == "0"  # which deletes nothing
    assert operation.validate(" a b ", settings()) == "a b"


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_a_request_prints_no_token(operation: Operation) -> None:
    assert "hunter2" not in repr(operation.request("x", settings(token="hunter2")))


def test_only_a_source_url_holds_secrets() -> None:
    url = "https://h/f?sig=abcdefgh"
    assert UPLOAD_FROM_URL.redacted(url) == "https://h/f?***"
    assert [secret.reveal() for secret in UPLOAD_FROM_URL.secrets(url)] == ["abcdefgh", "sig=abcdefgh"]
    assert DELETE_FOLDER.redacted("a?b") == "a?b"
    assert DELETE_FOLDER.secrets("a?b") == ()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("example.com/report.csv", "example.com/report.csv"),
        ("example.com:8080/a/b.csv", "example.com:8080/a/b.csv"),
        ("example.com/report.csv?sig=hunter2", "***"),
        ("user:hunter2@example.com/report.csv", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "***"),
        ("hunter2", "***"),
    ],
)
def test_a_source_without_its_scheme_is_shown_where_it_holds_nothing_secret(url: str, shown: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        UPLOAD_FROM_URL.validate(url, settings())
    assert refused.value.reason == f"url {shown} has no scheme with '://' after it, such as https://; nothing was sent"


def test_what_an_upload_task_returns_is_no_file_id_and_the_error_says_where_that_is() -> None:
    with pytest.raises(
        InvalidInputError, match=r'a string, not dict: for an upload task `upload`, pass upload.output\["file_id"\]'
    ):
        CREATE_DOWNLOAD_LINK.validate({"url": "https://h/f", "response": {}}, settings())


def test_every_operation_is_registered_once() -> None:
    defined = {name: value for name, value in vars(operations).items() if isinstance(value, Operation)}
    assert not [f"protocol/operations.py needs {name} in OPERATIONS" for name, one in defined.items() if one not in OPERATIONS]
    for names in zip(*((one.key, one.name, (one.method, one.path)) for one in OPERATIONS), strict=True):
        assert len(set(names)) == len(OPERATIONS)


def missing_places(operation: Operation) -> Iterator[str]:
    """Yield what an operation lacks, in the order of the recipe."""
    key, kind = operation.key, KINDS.get(operation.key)
    if kind is None:
        yield f"protocol/calls.py needs a subclass of Call whose operation is '{key}'"
    else:
        method = method_of(kind)
        if not hasattr(CloudStoreHook, method):
            yield f"hooks/cloudstore.py needs a method CloudStoreHook.{method}, as the subclass of Call is named"
        if not hasattr(CloudStoreAsyncHook, method):
            yield f"hooks/asynchronous.py needs a method CloudStoreAsyncHook.{method}, as the subclass of Call is named"
    if not hasattr(Service, f"_{key}"):
        yield f"emulator/app.py needs a method Service._{key}, which returns the response's data"
    if operation.field not in SUBJECTS:
        yield f"tests/support.py needs a value for the field '{operation.field}' in SUBJECTS"
    if key not in row_for("429").cells:
        yield f"docs/operate/retries.md needs a column '{operation.name}', or this name in the header of the column that fits"


def test_no_operation_lacks_a_place() -> None:
    if places := [place for operation in OPERATIONS for place in missing_places(operation)]:
        pytest.fail("\n".join(places), pytrace=False)


@pytest.mark.parametrize("operation", CALLS)
def test_both_hooks_return_the_same_plain_data(emulator: Emulator, operation: str) -> None:
    """Here and not with the hooks, because it is true of each operation."""
    kind, subject = CALLS[operation]
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
    assert emulator.state()["effects"] == {operation: 2}


def test_an_error_has_hints_for_names_that_exist_only() -> None:
    names = {*(operation.name for operation in OPERATIONS), "download", "connection test"}
    for kind in vars(exceptions).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, exceptions.CloudStoreError)
            and kind not in (exceptions.BatchInterruptedError, exceptions.BatchStoppedError)
        ):
            assert kind.hint_for.keys() <= names


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_the_token_is_where_the_operation_says_and_nowhere_else(operation: Operation) -> None:
    subject = "f1"
    for method in ("GET", "POST"):
        for in_query in (False, True):
            request = replace(operation, method=method, token_in_query=in_query).request(subject, settings(token="t0ken"))
            found = [
                "t0ken" in request.headers.get("Authorization", ""),
                "t0ken" in request.url,
                b"t0ken" in (request.body or b""),
            ]
            assert found == [not in_query, in_query, False]
            sent = (request.body or b"").decode() if method == "POST" else request.url.partition("?")[2]
            assert parse_qs(sent)[operation.field] == [subject]
