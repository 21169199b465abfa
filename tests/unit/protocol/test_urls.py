from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import MASK, redact_url
from tests.support import settings

AT_SIGN, HOST_OR_PORT = "an '@' after what may be user info", "no valid host, or a port"


@pytest.mark.parametrize(
    ("url", "says", "shown"),
    [
        *[
            (f"https://{credentials}@host/x", AT_SIGN, MASK)
            for credentials in ("user:8443/", "user:p@hunter/2", "hunter@h.example/2")
        ],
        ("https://user:hunter/2pass@host/x", HOST_OR_PORT, MASK),
        ("https://user:hunter#2@host/x", HOST_OR_PORT, MASK),
        ("https://user:hunter2@a:b:1/x", HOST_OR_PORT, MASK),
        ("https://user:hunter2@[bad/x", HOST_OR_PORT, MASK),
        ("https://user:hunter2@a%2eb/x", HOST_OR_PORT, MASK),
        ("https://user%3Ahunter2%40host/x", HOST_OR_PORT, MASK),
        ("https://user:hunter2@a..b/x", HOST_OR_PORT, MASK),
        (f"https://{'a' * 64}.example/x", HOST_OR_PORT, MASK),
        ("https://files.example.com:0/x", HOST_OR_PORT, MASK),
        ("https://user:hunter2\\@host/x", "a backslash", MASK),
        ("https://u:hunter2@h/a b?sig=hunter2", "a space", MASK),
        ("https://h/a\u200bb", "an invisible character", MASK),
        ("/files/report.csv", "no scheme", MASK),
        ("s3://bucket/key?sig=hunter2", "the scheme 's3'", "s3://bucket/key?***"),
    ],
)
def test_a_source_is_refused_with_what_is_wrong_and_named_without_what_may_be_secret(url: str, says: str, shown: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as refused:
        UploadFromUrl(settings(), url)
    assert not refused.value.sent
    assert "hunter" not in str(refused.value)
    assert f"url {shown} " in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["https://h/icon-bg@4x.png", "https://cdn.example.com/npm/jquery@3.7.1/dist/a@b.js", "http://127.0.0.1:8080/a@b",
     "http://localhost:8080/a@b", "https://[::1]:8443/a@b", "https://npm.example.com:8443/@scope/package@1.0/x.tgz?sig=a@b",
     "https://h:8443/f?mail=a@b", "https://u:p@h:8443/f?sig=a%40b", "https://h./f", "https://bücher.example/f", "https://a_b/f"],
)  # fmt: skip
def test_a_source_that_everybody_reads_alike_is_sent_as_it_is(url: str) -> None:
    assert UploadFromUrl(settings(), url).subject == url
    assert urlsplit(url).path in redact_url(url)
