from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import settings as cases
from hypothesis import strategies as st

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.identifiers import is_nothing
from airflow_provider_cloudstore.protocol.operations import DELETE_FOLDER
from tests.support import examples, settings

ROOTS = [
    "0",
    "00",
    "0.0",
    "0x0",
    "0_0",
    "0e5",
    "0x0p3",
    "/0/",
    "/",
    ".",
    "..",
    "./..",
    "\\",
    "a/..",
    "a/../",
    "0%00abc",
    "a/..;/",
    "a/..;x=1",
    "/?x",
    "/#x",
    "a/..?x",
    "./a/..",
    "a\\..",
    "\u0660",
    "\uff10",
    "\u96f6",
    "\u24ea",
    "\uff0e\uff0e",
    "~",
    "*",
    "00000000-0000-0000-0000-000000000000",
    "%c0%ae",
    "&#47;",
    "\\u002f",
    "&#x2e;&#x2e;",
    "a&sol;..",
    "a&amp;sol;..",
    "\\u002e\\u002e",
    "a%5Cu002f..",
    "&ZeroWidthSpace;",
    "&bsol;",
    "a\\/..",
]
ORDINARY = [
    "10",
    "0a",
    "folder-0",
    "a/b",
    "..a",
    "2024",
    "1.0",
    "0x1",
    "0/a",
    "ordner-ä",
    "\u6587\u4ef6\u5939",
    "a%2Fb",
    "../a",
    "a&b",
    "R&amp;D",
    "a\\b",
    "a\\u0041",
    "NA",
    "none-a",
    "dict",
]
NOTHING = [
    "",
    " ",
    "None",
    "null",
    "Undefined",
    "False",
    "nan",
    "NaT",
    "<NA>",
    "[]",
    "{}",
    "('None',)",
    "['']",
    '""',
    '"None"',
    "None/None",
    "None\u200b",
    "\uff2e\uff4f\uff4e\uff45",
    "%254eone",
]
HIDING = st.sampled_from(["", " ", "\u200b", "\u2060", "\ufeff", "\u3164", "\u00ad", "\ufe0f", "\u034f", "\u2800"])


@st.composite
def disguised(draw: st.DrawFn, spellings: list[str]) -> str:
    """A spelling with invisible characters between its own, encoded as often as it may be, wholly or in part."""
    text = "".join(draw(HIDING) + char for char in draw(st.sampled_from(spellings))) + draw(HIDING)
    for _ in range(draw(st.integers(0, 4))):
        whole = draw(st.booleans())
        text = "".join(f"%{byte:02x}" for byte in text.encode()) if whole else quote(text, safe="")
        text = text.translate({ord("%"): "\uff05"}) if draw(st.booleans()) else text  # full width
    return text


@pytest.mark.parametrize("folder_id", ROOTS)
def test_a_spelling_of_the_root_is_never_deleted(folder_id: str) -> None:
    with pytest.raises(InvalidInputError, match="may mean the root"):
        DELETE_FOLDER.validate(folder_id, settings(protected_folder_ids=frozenset()))


@cases(max_examples=examples(150), deadline=None)
@given(disguised(ROOTS))
def test_no_disguise_gets_the_root_past_the_guard(folder_id: str) -> None:
    with pytest.raises(InvalidInputError):
        DELETE_FOLDER.validate(folder_id, settings(protected_folder_ids=frozenset()))


@cases(max_examples=examples(150), deadline=None)
@given(disguised(["finance", "a/finance/.."]) | disguised(["finance"]).map(lambda text: f"/{text}/."))
def test_no_disguise_gets_a_protected_folder_past_the_guard(folder_id: str) -> None:
    own = settings(protected_folder_ids=frozenset({"finance", "a"}))
    with pytest.raises(InvalidInputError, match=r"is protected|has more than"):
        DELETE_FOLDER.validate(folder_id, own)


@pytest.mark.parametrize("spelling", [" finance ", "/finance/", "%66inance", "finance"])
def test_how_the_connection_spells_a_protected_folder_does_not_matter_either(spelling: str) -> None:
    with pytest.raises(InvalidInputError, match="is protected"):
        DELETE_FOLDER.validate("finance", settings(protected_folder_ids=frozenset({spelling})))
    assert DELETE_FOLDER.validate("finances", settings(protected_folder_ids=frozenset({spelling}))) == "finances"


@pytest.mark.parametrize("folder_id", ORDINARY)
def test_an_ordinary_id_is_sent_as_it_is(folder_id: str) -> None:
    assert DELETE_FOLDER.validate(folder_id, settings()) == folder_id


@cases(deadline=None)
@given(st.from_regex(r"[a-zA-Z][\w-]{0,20}(/[a-zA-Z][\w-]{0,20})?", fullmatch=True))
def test_any_id_that_begins_with_a_letter_is_sent_as_it_is(folder_id: str) -> None:
    if not is_nothing(folder_id):
        assert DELETE_FOLDER.validate(folder_id, settings()) == folder_id


@cases(deadline=None)
@given(st.integers(1, 10**30))
def test_any_number_but_zero_is_an_id(number: int) -> None:
    assert DELETE_FOLDER.validate(number, settings()) == DELETE_FOLDER.validate(str(number), settings()) == str(number)


@pytest.mark.parametrize("text", NOTHING)
def test_what_a_template_renders_from_nothing_is_recognised(text: str) -> None:
    assert is_nothing(text)


@pytest.mark.parametrize("text", [*ORDINARY, "0", "/", "s3://bucket/None", "/data/None.csv", "x" * 100_000])
def test_what_says_something_is_not_nothing(text: str) -> None:
    assert not is_nothing(text)


def test_an_id_that_takes_too_long_to_read_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"more than 4,096 characters"):
        DELETE_FOLDER.validate("%" + "25" * 100_000 + "30", settings())
    with pytest.raises(InvalidInputError, match="may mean the root"):
        DELETE_FOLDER.validate("%" + "25" * 2_000 + "30", settings())
    with pytest.raises(InvalidInputError, match="must be a string"):
        DELETE_FOLDER.validate(10**5000, settings())
