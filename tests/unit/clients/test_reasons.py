"""A failure is described by its kinds of exceptions: their texts hold URLs and tokens."""

from __future__ import annotations

from typing import Any

from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.protocol.messages import FailureKind


def described(error: BaseException) -> tuple[str, FailureKind]:
    failure = transport_failure(error, sent=False, limit=1, through_proxy=False)
    return failure.reason.removeprefix("no connection to the service: "), failure.kind


def test_a_cause_is_named_by_its_kind_and_never_by_its_text() -> None:
    error: Any = ValueError("https://h/?access_token=hunter2")
    assert described(error) == ("connection broken (ValueError)", FailureKind.UNREACHABLE)
    error.__cause__ = OSError(ConnectionRefusedError("hunter2"))
    assert described(error) == ("connection refused", FailureKind.UNREACHABLE)
