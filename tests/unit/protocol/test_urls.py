from __future__ import annotations

import pytest

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import MASK, redact_url
from tests.support import settings


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://user:hunter/2pass@host/x", "an '@' that may end user info"),
        ("https://user:8443/@host/x", "an '@' that may end user info"),
        ("https://user:p@hunter/2@host/x", "an '@' that may end user info"),
        ("https://user:hunter@2@host/x", "an '@' that may end user info"),
        ("https://user:hunter#2@host/x", "has a port that is not a number"),
        ("https://user:hunter2\\@host/x", "a backslash"),
        ("https://user:hunter 2@host/x", "a space"),
        ("user:hunter2@host/x", "no scheme"),
        *[(f"https://user:hunter2@host:{port}/x", "not a number from 1 to 65535") for port in ("", "0", "65536")],
        ("https://user:hunter2@a:b:1/x", "more than one ':'"),
        ("https://user:hunter2@[bad/x", "no valid host"),
        *[(f"https://user:hunter2@{host}/x", "no valid host") for host in ("a..b", "a" * 64 + ".example", "a%2eb")],
    ],
)
def test_an_ambiguous_source_is_refused_with_what_is_wrong_and_not_shown(url: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as refused:
        UploadFromUrl(settings(), url)
    assert not refused.value.sent
    assert "hunter" not in str(refused.value)
    assert redact_url(url) == MASK


@pytest.mark.parametrize(
    ("url", "says", "shown"),
    [
        ("https://u:hunter2@h/a b?sig=hunter2", "a space", "https://***@h/a b?***"),
        ("https://h/a\u200bb", "an invisible character", "https://h/a"),
        ("s3://bucket/key?sig=hunter2", "the scheme 's3'", "s3://bucket/key?***"),
    ],
)
def test_a_source_that_everybody_reads_alike_is_shown_without_its_secrets(url: str, says: str, shown: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as refused:
        UploadFromUrl(settings(), url)
    assert shown in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["https://h/@scope/package", "https://h:8443/f?mail=a@b", "https://h/f?mail=a@b",
     "https://u:p@h:8443/f?sig=a%40b", "https://[::1]/f?mail=a@b", "https://h./f",
     "https://bücher.example/f", "https://10.0.0.1:65535", "https://a_b/f"],
)  # fmt: skip
def test_a_source_that_everybody_reads_alike_is_sent_as_it_is(url: str) -> None:
    assert UploadFromUrl(settings(), url).subject == url
