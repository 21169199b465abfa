from __future__ import annotations

import importlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms, redact, redact_parameters
from airflow_provider_cloudstore.protocol.storable import storable
from tests.support import examples

SERIALIZER_KEYS = ["__id__", "__classname__", "__version__", "__data__", "__type", "__var", "__source", "__class", "__init", "__"]


def through_airflow(value: Any) -> list[Any]:
    """``value`` as each way of the installed Airflow gives it back: the XCom's serializer, and that of a deferral."""
    from airflow.serialization.serialized_objects import BaseSerialization

    try:
        serde = importlib.import_module("airflow.sdk.serde")
    except ModuleNotFoundError:  # before 3.2
        serde = importlib.import_module("airflow.serialization.serde")
    xcom = serde.deserialize(json.loads(json.dumps(serde.serialize(value), allow_nan=False)))
    deferral = BaseSerialization.deserialize(
        json.loads(json.dumps(BaseSerialization.serialize({"event": value}), allow_nan=False))
    )
    returned = [xcom, deferral["event"]]
    try:
        import msgspec
    except ImportError:  # Airflow 2 has no supervisor to talk to
        return returned
    return [*returned, msgspec.msgpack.decode(msgspec.msgpack.encode(value))]


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


SECRETS = (Secret("a+b/c=d%e"), Secret("12345678"), Secret("1.5"), Secret("p\u00e4ss"), Secret('quo"ted'), Secret("+-+"))
FILE_ID = "kept?token=12345678"
PLANTED = [form for secret in SECRETS for form in printed_forms(secret)]
PLANTED += [FILE_ID, "https://user:pw@host/", "/f?sig=abc&x=1", "https://host/path", "TOKEN", "***", "9" * 16, "1e+16", "a=b"]
NUMBERS = [12345678, 1.5, 123456789, 10**15, 10**16, 2**53, 2.0**53 + 2, 1e-9, 1e15, 1e16, 1e300, math.nan, -math.inf, 2**63]
texts = st.builds("".join, st.lists(st.one_of(st.sampled_from(PLANTED), st.text(max_size=5)), max_size=3))
names = st.one_of(keys, texts, st.sampled_from(["token", "Api_Key", "token_type", "SIG", "passwd", "_status", "file_id"]))
plain = st.one_of(st.none(), st.booleans(), st.integers(-1000, 1000), st.text("abc /.-_:", max_size=9), st.floats(0, 9))
responses = st.recursive(
    st.one_of(plain, plain, plain, texts, st.sampled_from(NUMBERS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text("abc_"), names), inner, max_size=3)),
    max_leaves=8,
)


def without_secrets(text: str) -> str:
    return text if text == FILE_ID else redact_parameters(redact(text, SECRETS))


@settings(max_examples=examples(500), deadline=None, database=None)
@given(responses)
def test_a_value_is_stored_alike_whether_or_not_something_beside_it_has_to_change(value: Any) -> None:
    for beside in ("\x00", "a+b/c=d%e", 2**63):  # each of them has everything looked at field by field
        both: Any = storable([value, beside], without_secrets)
        assert both[1] != beside
        assert json.dumps(storable(value, without_secrets)) == json.dumps(both[0])


def test_a_key_that_serializers_give_a_meaning_to_is_stored_under_another_name() -> None:
    assert storable({"a": {"__type": 1, "_b": 2}}) == {"a": {"key__type": 1, "_b": 2}}


def test_numbers_that_do_not_fit_are_text() -> None:
    assert storable([2**63, -(2**63) - 1, math.nan, -math.inf]) == [str(2**63), str(-(2**63) - 1), "NaN", "-Infinity"]
    assert storable(2.0**53 + 2) == "9007199254740994.0"  # PostgreSQL would return an integer
    fits = [2**63 - 1, -(2**63), 2.0**53, -(2.0**53), 1000.5, True]
    assert storable(fits) == fits


@pytest.mark.parametrize(
    "name",
    ["token", "download_token", "downloadToken", "password", "X-Amz-Signature", "client_secret", "apiKey", "access-key", "sig"],
)
def test_a_field_whose_name_says_that_it_holds_a_credential_is_masked(name: str) -> None:
    values = ["abc", 5, {"value": "abc"}, ["abc"]]
    assert storable([{"data": {name: value, "file_id": "f1"}} for value in values]) == [
        {"data": {name: "***", "file_id": "f1"}} for _ in values
    ]
    for said in (None, True, "false", "Production"):
        assert storable({name: said}) == {name: said}


@pytest.mark.parametrize("name", ["token_type", "file_id", "expires", "design", "author", "key"])
def test_other_fields_are_kept(name: str) -> None:
    assert storable({name: "abc"}) == {name: "abc"}


def test_what_is_too_large_is_left_out_and_says_so() -> None:
    for large in ["x" * 10**6, "\u20ac" * 10_000, {str(number): number for number in range(10**4)}]:
        assert storable({"file_id": "f1", "data": large}) == "(omitted: the response is too large to store)"


def test_thirty_two_levels_are_stored_and_no_more() -> None:
    def nested(levels: int) -> Any:
        return [nested(levels - 1)] if levels else 1

    assert storable(nested(32)) == nested(32)
    assert storable(nested(33)) != nested(33)
