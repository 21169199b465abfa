from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.paths import Condition, Paths

DATA = {
    "a": {"b": "t"},
    "list": [{}, {"x": "u"}],
    "fileId": 7,
    "@odata.url": "o",
    "a/b": {"~": "p"},
    "nothing": None,
    "0": "z",
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a.b", ["t"]),
        ("A . B", ["t"]),
        ("list.1.x", ["u"]),
        ("0", ["z"]),
        ("file_id", [7]),
        ("/@odata.url", ["o"]),
        ("/a~1b/~0", ["p"]),
        ("list.2.x|a.b|file-id", ["t", 7]),
        *[(nowhere, []) for nowhere in ("a.c", "a.b.c", "list.x", "list.9", "nothing", "list.1.x.0")],
    ],
)
def test_a_path_leads_to_values_by_keys_without_case_positions_pointers_and_alternatives(path: str, values: list[Any]) -> None:
    assert list(Paths.parse(path).values_in(DATA)) == values


def test_a_key_that_is_there_exactly_wins_over_one_that_is_alike() -> None:
    assert list(Paths.parse("_status").values_in({"status": 1, "_status": 2})) == [2]


@pytest.mark.parametrize("path", ["", "a..b", "a[0]", "$.a", "/", "a|", "a b", 5])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ValueError, match="joined by dots"):
        Paths.parse(path)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        *[
            (text, True)
            for text in ("status=OK", "code=0", "done=true", "data.none=null", "words=a = b", "data.id", "!data.empty")
        ],
        *[(text, False) for text in ("status=error", "data.none", "data.empty", "data.gone", "!data.id")],
        ("done = false | code = 0", True),
        ("status=ok&!data.empty", True),
        ("status=ok&data.empty", False),
        ("status=error&code=0|data.id", True),
    ],
)
def test_a_condition_says_what_is_there_what_is_not_and_what_has_a_value(condition: str, holds: bool) -> None:
    inner: dict[str, Any] = {"id": "x", "none": None, "empty": [], "gone": False}
    data = {"status": "ok", "code": 0, "done": True, "words": "a = b", "data": inner}
    assert Condition.parse(condition).holds(data) is holds


@pytest.mark.parametrize(
    "condition",
    ["", "status=", "=1", "!!error", "a==1", "a!=1", "a='OK'", "a>0", "a..b=1", "status=1|", "!a=1", "&", "!", 5],
)
def test_what_is_no_condition_is_refused(condition: Any) -> None:
    with pytest.raises(ValueError, match="path=value, path or !path"):
        Condition.parse(condition)
