from __future__ import annotations

import pytest

from airflow_provider_cloudstore.hooks import masking
from airflow_provider_cloudstore.protocol.secrets import Secret


def test_what_holds_a_masked_token_is_not_registered_once_more_unless_it_may_be_too_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masked: list[str] = []
    monkeypatch.setattr(masking, "mask_secret", masked.append)
    masking.mask([Secret("a-token-of-24-characters"), Secret("https://h/d?t=a-token-of-24-characters")])
    assert masked == ["a-token-of-24-characters"]
    masked.clear()
    masking.mask([Secret("short"), Secret("a-short-one")])
    assert masked == ["short", "a-short-one"]
