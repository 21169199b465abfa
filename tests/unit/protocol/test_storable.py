from __future__ import annotations

import importlib
import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.storable import storable
from tests.support import examples

SERIALIZER_KEYS = ["__id__", "__classname__", "__version__", "__data__", "__type", "__var", "__source", "__class", "__init", "__"]


def through_airflow(value: Any) -> list[Any]:
    """``value`` as each way of the installed Airflow gives it back: the XCom's serializer, a deferral, and the supervisor."""
    from airflow.serialization.serialized_objects import BaseSerialization

    try:
        serde = importlib.import_module("airflow.sdk.serde")
    except ModuleNotFoundError:  # before 3.2
        serde = importlib.import_module("airflow.serialization.serde")
    xcom = serde.deserialize(json.loads(json.dumps(serde.serialize(value), allow_nan=False)))
    event = BaseSerialization.deserialize(json.loads(json.dumps(BaseSerialization.serialize({"event": value}), allow_nan=False)))
    with suppress(ImportError):  # Airflow 2 has no supervisor to talk to
        msgspec = importlib.import_module("msgspec")
        return [xcom, event["event"], msgspec.msgpack.decode(msgspec.msgpack.encode(value))]
    return [xcom, event["event"]]


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**400), 10**400), st.floats(), st.text(st.characters(), max_size=20),
    st.sampled_from([2**63, 2**63 - 1, -(2**63), 1e22, 1e300, 2.0**53, math.nan, math.inf, "\x00", "\ud800", "a\x00\udfff"]),
)  # fmt: skip
keys = st.one_of(st.sampled_from(SERIALIZER_KEYS), st.text(st.characters(), max_size=8))
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=6)), max_leaves=30
)


@settings(max_examples=examples(50), deadline=None, database=None)
@given(values)
def test_what_is_stored_comes_back_from_every_serializer_of_airflow_as_it_was(value: Any) -> None:
    stored = storable(value)
    for returned in through_airflow(stored):
        assert returned == stored
        assert type(returned) is type(stored)
    json.dumps(stored, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert "\\u0000" not in json.dumps(stored)
    assert storable(stored) == stored


def test_numbers_that_do_not_fit_are_text() -> None:
    assert storable([2**63, -(2**63) - 1, math.nan, -math.inf]) == [str(2**63), str(-(2**63) - 1), "NaN", "-Infinity"]
    assert storable(2.0**53 + 2) == "9007199254740994.0"  # PostgreSQL would return an integer
    fits = [2**63 - 1, -(2**63), 2.0**53, -(2.0**53), 1000.5, True]
    assert storable(fits) == fits


def test_a_secret_is_replaced_in_texts_keys_and_numbers_wherever_they_are() -> None:
    secrets = (Secret("a+b/c"), Secret("12345678"))
    stored = storable({"a": ["see a%2Bb%2Fc", {"a+b/c": 12345678}], "n": 123456789, "x": 5}, lambda text: redact(text, secrets))
    assert stored == {"a": ["see ***", {"***": "***"}], "n": "***9", "x": 5}


@pytest.mark.parametrize(
    "name",
    [
        "token", "tokens", "downloadToken", "next_page_token", "passphrase", "user_pass", "pin", "X-Amz-Signature",
        "client_secret", "SSH Private Key", "apiKey", "api.key", "AWSAccessKeyId", "session_id", "PHPSESSID", "Set-Cookie",
        "Authorization", "x-auth", "password2",
    ],
)  # fmt: skip
def test_what_has_the_name_of_a_credential_is_masked(name: str) -> None:
    assert storable([{"data": {name: "abc", "file_id": "f1"}}]) == [{"data": {name: "***", "file_id": "f1"}}]
    assert storable({name: ["abc", 2**63, {"value": "abc", "used": 5}]}) == {
        name: ["***", "***", {"value": "***", "used": "***"}]
    }
    for secret in (482913, 0.5):
        assert storable({name: secret}) == {name: "***"}
    for said in (None, True, 0, 1, "false", "Production"):
        assert storable({name: said}) == {name: said}


def test_other_fields_are_kept() -> None:
    names = ["token_type", "tokenize_count", "design", "author", "key", "monkey", "public_key", "bypass", "spin", "oauth"]
    assert storable(dict.fromkeys(names, "abc")) == dict.fromkeys(names, "abc")


def test_what_is_too_large_is_left_out_and_says_so() -> None:
    for large in ["x" * 10**6, "\u20ac" * 10_000, {str(number): number for number in range(10**4)}]:
        assert storable({"file_id": "f1", "data": large}) == "(omitted: the response is too large to store)"
