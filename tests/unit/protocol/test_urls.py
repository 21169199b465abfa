from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from airflow_provider_cloudstore.exceptions import InvalidInputError, one_line
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import MASK, redact_url
from tests.support import settings

NAMED = "https://***@host/x"
LONG = "a" * 64 + ".example"


@pytest.mark.parametrize(
    ("url", "says", "shown"),
    [
        ("https://user:hunter/2pass@host/x", "an '@' that may end user info", NAMED),
        ("https://user:8443/@host/x", "an '@' that may end user info", NAMED),
        ("https://user:8443/hunter@2x.png?a=hunter", "an '@' that may end user info", "https://***@2x.png?***"),
        ("https://user:p@hunter/2@host/x", "an '@' that may end user info", NAMED),
        ("https://user:p@h.example/hunter/2@host/x", "an '@' that may end user info", NAMED),
        ("https://hunter@h.example/2@host/x", "an '@' that may end user info", NAMED),
        ("https://user:hunter@2@host/x", "an '@' that may end user info", NAMED),
        ("https://user:hunter#2@host/x", "has a port that is not a number", MASK),
        ("https://user:hunter/2#@host/x", "has a port that is not a number", MASK),
        ("https://user:hunter2\\@host/x", "a backslash", NAMED),
        ("https://user:hunter 2@host/x", "a space", NAMED),
        ("user:hunter2@host/x", "no scheme", MASK),
        *[(f"https://user:hunter2@host:{port}/x", "not a number from 1", f"https://***@host:{port}/x") for port in ("", "0")],
        ("https://files.example.com:65536/x?sig=hunter", "not a number from 1", "https://files.example.com:65536/x?***"),
        ("https://files.example.com/a\\b (1).txt", "a backslash", "https://files.example.com/a\\b (1).txt"),
        ("https://files.example.com/a\\b(1).txt", "a backslash", "https://files.example.com/a\\b(1).txt"),
        ("/files/report.csv", "no scheme", "/files/report.csv"),
        ("cdn.example.com/jquery@3/x.js", "no scheme", "cdn.example.com/jquery@3/x.js"),
        ("https://user:hunter2@a:b:1/x", "more than one ':'", MASK),
        ("https://user:hunter2@[bad/x", "no valid host", MASK),
        ("https://user:hunter2@a%2eb/x", "no valid host", MASK),
        *[(f"https://user:hunter2@{host}/x", "no valid host", f"https://***@{host}/x") for host in ("a..b", LONG)],
        ("https://u:hunter2@h/a b?sig=hunter2", "a space", "https://***@h/a b?***"),
        ("https://h/a\u200bb", "an invisible character", "https://h/a\u200bb"),
        ("s3://bucket/key?sig=hunter2", "the scheme 's3'", "s3://bucket/key?***"),
    ],
)
def test_a_source_is_refused_with_what_is_wrong_and_named_without_what_may_be_secret(url: str, says: str, shown: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as refused:
        UploadFromUrl(settings(), url)
    assert not refused.value.sent
    assert "hunter" not in str(refused.value)
    assert f"url {one_line(shown)} " in str(refused.value)
    assert redact_url(url) == redact_url(shown) == shown


@pytest.mark.parametrize(
    "url",
    ["https://h/@scope/package", "https://h/icon-bg@4x.png", "https://cdn.example.com/npm/jquery@3.7.1/dist/a@b.js",
     "http://127.0.0.1:8080/a@b", "http://localhost:8080/a@b", "https://[::1]:8443/a@b", "https://[::1]/a@b",
     "https://npm.example.com:8443/@scope/package@1.0/x.tgz?sig=a@b", "https://h:8443/f?mail=a@b", "https://h/f?mail=a@b",
     "https://u:p@h:8443/f?sig=a%40b", "https://[::1]/f?mail=a@b", "https://h./f",
     "https://bücher.example/f", "https://10.0.0.1:65535", "https://a_b/f"],
)  # fmt: skip
def test_a_source_that_everybody_reads_alike_is_sent_as_it_is(url: str) -> None:
    assert UploadFromUrl(settings(), url).subject == url
    assert urlsplit(url).path in redact_url(url)
