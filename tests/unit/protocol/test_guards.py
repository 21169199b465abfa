from __future__ import annotations

import html
import posixpath
import unicodedata
from decimal import Decimal
from enum import IntEnum
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import settings as cases
from hypothesis import strategies as st

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.custom_call import CustomCall
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, CreateDownloadLink, DeleteFolder, Operation, UploadFromUrl
from tests.support import VALUES, examples, settings

ROOTS = [
    "0", "00", "0.0", "0x0", "0_0", "0e5", "0x0p3", "/0/", "\u0660", "\uff10", "\u96f6", "\u24ea",
    "00000000-0000-0000-0000-000000000000", "urn:folder:0",
    "/", ".", "..", "a/..", "~",
    "\uff0e\uff0e",
]  # fmt: skip
# What would have to be decoded, or cannot be seen, whatever it means.
UNCLEAR = [
    "%66inance", "a\\b", "R&amp;D;",
    "a\u200bb", "a\u00adb", "\u3164", "\u115fa", "a\u034f", "a\ufe0f",
    "a\u2800b", "\uff21", "a\u00a0b", "\ufb01le", "a\u2044b", "a?b", "a#b", "a;b", "a*", '"a"',
    "a\u202eb", "\U0001f600",
]  # fmt: skip
ORDINARY = [
    "10", "0a", "folder-0", "a/b", "..a", "2024", "2025_01", "1e5", "v1.0", "0x1", "ordner-ä", "\u6587\u4ef6\u5939", "a&b",
    "R&D", "NA", "none-a", "dict", "Reports (2024)", "O'Neil", "Q1, Q2 + Q3!", "user@example.com", "urn:folder:7", "~home", "a b",
    "नमस्ते", "مجلد \u0667",
    "550e8400-e29b-41d4-a716-446655440000",
    *(f"2024.{month:02}" for month in range(1, 13)), "2.0", "3.14", "202501.0", "-1.5", "inf", "1e22",
]  # fmt: skip
NOTHING = ["", "None", "null", "Undefined", "False", "nil", "nan", "NaT", "<NA>", "[]", "{}"]


def given_first(operation: type[Operation[Any]], value: Any) -> Operation[Any]:
    return operation(settings(), value, *map(VALUES.get, list(operation.own_parameters)[1:]))


@pytest.mark.parametrize(
    "folder_id",
    [
        *ROOTS, Decimal("-0"), UUID(int=0), *UNCLEAR,
        "a ", "\u3000a", "a\x1f", "a/", "/a", "a//b", "a/ b", "a /b", "reports.", "a./b", "a/None",
        '"None"', "('None',)",
        *(f"a/{root}/b" for root in ROOTS),
    ],
)  # fmt: skip
def test_what_is_not_plainly_the_id_of_one_folder_is_never_deleted(folder_id: Any) -> None:
    with pytest.raises(InvalidInputError, match="nothing was sent"):
        DeleteFolder(settings(protected_folder_ids=frozenset()), folder_id)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("value", [*NOTHING, None, "  ", "\t\n"])
def test_nor_is_what_a_template_renders_from_nothing(operation: type[Operation[Any]], value: str | None) -> None:
    with pytest.raises(
        InvalidInputError,
        match=f"^{operation.name}: {next(iter(operation.own_parameters))} is .* a template renders when its source is missing",
    ):
        given_first(operation, value)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        *[(value, type(value).__name__) for value in (True, 1.5, 2.0, b"f1", ["https://u:hunter2@h/x"])],
        pytest.param(10**5000, "int", id="too long"),
        *[(Decimal(text), "Decimal") for text in ("42.0", "1E+3", "NaN")],
        *[(value, "not rendered") for value in ("{{ x }}", "https://h/{{ x\n}}?a=1", "https://h/{%- x -%}")],
        *[(f"a{control}b", "line break or control") for control in "\n\x7f\u2028\u202e\ud800"],
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_sent_is_refused(operation: type[Operation[Any]], value: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as refused:
        given_first(operation, value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    "value", [{"file_id": "f1", "url": "https://h/x"}, "{'url': 'https://h/x', 'file_id': 'f1'}", ["f1"]], ids=str
)
def test_what_holds_more_than_an_id_is_refused_with_what_to_pass_instead(operation: type[Operation[Any]], value: Any) -> None:
    field = next(iter(operation.own_parameters))
    with pytest.raises(InvalidInputError, match=f"{field} ") as refused:
        given_first(operation, value)
    assert "key='upload')['file_id']" in refused.value.advice
    assert f"expand({field}=...)" in refused.value.advice


@pytest.mark.parametrize("query", ["{%22a%22:{%22b%22:5%25}}", "}}{{", "{%{{", '{"a":{"b":1}}'])
def test_braces_in_a_source_url_that_close_no_template_are_sent(query: str) -> None:
    url = f"https://h/f?filter={query}"
    assert UploadFromUrl(settings(), url).subject == url


class Number:
    """As ``numpy.int64``: no ``int``, but what Python can use as one."""

    def __index__(self) -> int:
        return 42


class Folder(IntEnum):
    STAGING = 42


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (Decimal("-42"), "-42"), (Decimal(10) ** 20, "1" + "0" * 20), (Number(), "42"),
        (Folder.STAGING, "42"), (10**30, "1" + "0" * 30), (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ],
)  # fmt: skip
def test_an_id_of_a_database_is_sent_as_its_text(value: Any, sent: str) -> None:
    assert DeleteFolder(settings(), value).subject == CreateDownloadLink(settings(), value).subject == sent
    call = CustomCall(settings(), "POST", "/file/rename", {"file_id": value})
    assert call.arguments == {"file_id": sent}


@cases(max_examples=examples(100), deadline=None)
@given(st.text(max_size=12) | st.text("0.:/ ax~-()%\\\u0660\u96f6\u200b_e+", max_size=8))
def test_an_id_that_passes_is_sent_as_it_is_and_is_the_same_however_it_is_decoded(folder_id: str) -> None:
    try:
        sent = DeleteFolder(settings(protected_folder_ids=frozenset()), folder_id).subject
    except InvalidInputError:
        return
    decoded = unicodedata.normalize("NFKC", html.unescape(unquote(sent)))
    assert folder_id == sent == decoded
    assert posixpath.normpath(sent).strip("/") == sent.strip("/")
    assert all(any(char.isalnum() and char != "0" for char in segment) for segment in sent.strip("/").split("/"))


@pytest.mark.parametrize("folder_id", ["straße", "Straße", "STRASSE"])
def test_a_protected_folder_is_not_deleted_in_any_case(folder_id: str) -> None:
    own = settings(protected_folder_ids=frozenset({"Straße"}))
    with pytest.raises(InvalidInputError, match="is protected: extra"):
        DeleteFolder(own, folder_id)
    assert DeleteFolder(own, "straßen").subject == "straßen"


@pytest.mark.parametrize("folder_id", ORDINARY)
def test_an_ordinary_id_is_sent_as_it_is(folder_id: str) -> None:
    assert DeleteFolder(settings(), folder_id).subject == folder_id
