from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowException, AirflowFailException, AirflowSensorTimeout

KINDS = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, exceptions.CloudStoreError)]
DATA: dict[str, Any] = {
    "operation": "delete folder", "subject": "d1", "status": 418, "attempts": 3, "retry_after": 1.5,
    "message": "no", "advice": "Ask Ada.",
}  # fmt: skip


def seen(error: exceptions.CloudStoreError) -> tuple[Any, ...]:
    return type(error), str(error), error.args, vars(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_and_copying_unchanged(kind: type[exceptions.CloudStoreError]) -> None:
    error = kind("HTTP 418", **DATA)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert seen(pickle.loads(pickle.dumps(error, protocol))) == seen(error)
    assert seen(copy.copy(error)) == seen(copy.deepcopy(error)) == seen(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_permanent_error_is_one_that_airflow_does_not_retry(kind: type[exceptions.CloudStoreError]) -> None:
    assert kind.permanent is issubclass(kind, AirflowFailException) is issubclass(kind, exceptions.PermanentError)
    assert not (kind.permanent and kind.retried)


def test_airflows_users_catch_every_error_as_airflows_and_a_timeout_as_a_sensors() -> None:
    assert all(issubclass(kind, AirflowException) for kind in KINDS)
    assert issubclass(exceptions.FileWaitTimeoutError, AirflowSensorTimeout)


def test_a_users_own_class_inherits_what_its_parent_declares() -> None:
    class QuotaError(exceptions.RateLimitError):
        """Of a user."""

    error = QuotaError("over quota", **DATA)
    assert error.retried
    assert type(exceptions.CloudStoreError.from_dict(error.to_dict())) is exceptions.RateLimitError
    assert seen(copy.copy(error)) == seen(error)


def test_an_error_survives_the_event_of_a_trigger_with_the_services_words() -> None:
    error = exceptions.NotFoundError("HTTP 404", **DATA)
    assert seen(exceptions.CloudStoreError.from_dict(error.to_dict())) == seen(error)
    with pytest.raises(KeyError):
        exceptions.CloudStoreError.from_dict({**error.to_dict(), "kind": "NoSuchError"})


def test_an_error_says_that_nothing_was_sent_only_where_that_is_certain() -> None:
    unsent = {kind for kind in KINDS if "; nothing was sent." in str(kind("x"))}
    assert unsent == {kind for kind in KINDS if not kind.sent}
    assert unsent == {exceptions.InvalidInputError, exceptions.ServiceUnreachableError}
    assert str(exceptions.InvalidInputError("folder_id is empty")) == "folder_id is empty; nothing was sent."


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_may_have_had_an_effect_was_sent_and_a_wait_goes_on_where_a_call_does(
    kind: type[exceptions.CloudStoreError],
) -> None:
    assert kind.sent or not kind.may_have_effect
    assert (kind.wait == "goes on") is (kind.retried or kind is exceptions.NotFoundError)


def test_the_advice_is_of_the_error_or_its_class() -> None:
    assert str(exceptions.ChecksumError("x", advice="Ask Ada.")) == "x.\nAsk Ada."
    assert "Check expected_sha256" in str(exceptions.ChecksumError("x", operation="download"))


# What a terminal or a log interprets: line breaks of every kind, escapes of a terminal, and what reverses the order of text.
CODES = (0, 7, 8, 10, 13, 11, 12, 27, 28, 127, 133, 155, 0x2028, 0x2029, 0x200E, 0x202E, 0x2066)
HOSTILE = f"no{''.join(map(chr, CODES))}file"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_part_of_an_error_can_end_a_line_and_advice_begins_one(kind: type[exceptions.CloudStoreError]) -> None:
    error = kind(f"HTTP 404: {HOSTILE}", operation="download link", subject=HOSTILE, message=HOSTILE)
    what, *then = str(error).splitlines()
    assert then == ([kind.default_advice] if kind.default_advice else [])
    assert "HTTP 404: no" in what
    assert r"\x1b" in what
    assert r"\n" not in what
    assert all(part.isprintable() for part in (what, error.reason, error.subject, error.message))
    assert all(value.isprintable() for value in error.to_dict().values() if isinstance(value, str))
