from __future__ import annotations

import itertools
from urllib.parse import urlsplit, urlunsplit

import pytest
from hypothesis import given
from hypothesis import settings as cases
from hypothesis import strategies as st

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.file_uris import dataset_of_url, file_uri, normalize

BASES = [
    "https://files.example.com",
    "https://files.example.com/eu",
    "https://files.example.com/eu/x",
    "https://files.example.com/eu%2Fx",
    "https://files.example.com:8443",
    "http://files.example.com",
    "http://[::1]:8080/eu",
]
IDS = ["f1", "F1", "x/f1", "eu/f1", "eu%2Ff1", "a b", "é", "?token=x", "#x", "a:b@c", "..", "/", "f1/"]


def normal(uri: str) -> str:
    return urlunsplit(normalize(urlsplit(uri)))


def test_a_file_has_a_readable_uri_however_it_is_written() -> None:
    assert file_uri("https://files.example.com", "f1") == "cloudstore://files.example.com/f1"
    assert file_uri("https://Files.Example.com:443/eu", "a/b") == "cloudstore://files.example.com/eu/a%2Fb"
    assert file_uri("https://h/eu/", 7) == file_uri("https://h/eu", "7") == "cloudstore://h/eu/7"
    assert file_uri("http://files.example.com", "f1") == "cloudstore://files.example.com:80/f1"
    assert normal("CLOUDSTORE://FILES.example.com:443/a%2fb") == "cloudstore://files.example.com/a%2Fb"


def test_no_two_files_of_two_services_or_base_paths_share_a_uri_or_a_dataset() -> None:
    uris = [file_uri(base, file_id) for base, file_id in itertools.product(BASES, IDS)]
    assert len(set(uris)) == len(uris)
    assert len({dataset_of_url(uri) for uri in uris}) == len(uris)


@cases(deadline=None)
@given(st.sampled_from(BASES), st.text(min_size=1))
def test_a_uri_is_its_own_normal_form_and_holds_its_file_as_one_segment(base: str, file_id: str) -> None:
    try:
        uri = file_uri(base, file_id)
    except InvalidInputError:  # no file id
        return
    assert normal(uri) == uri
    assert uri.isascii()
    assert uri.count("/") == file_uri(base, "f1").count("/")


@pytest.mark.parametrize(
    "written",
    [
        "cloudstore:///f1",
        "cloudstore://my_conn@/f1",
        "cloudstore://user:hunt/er2@files.example.com/f1",
        "cloudstore://files.example.com:hunter2/f1",
    ],
)
def test_a_uri_that_names_no_service_for_certain_is_refused_and_not_repeated(written: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        normal(written)
    assert "hunt" not in str(refused.value)
    assert "my_conn" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("cloudstore://h:8443/eu/f1", ("cloudstore://h:8443", "eu/f1")),
        ("https://user:hunter2@h/p/q?sig=hunter2#hunter2", ("https://h", "p/q")),
        ("s3://my_conn@bucket/key.csv", ("s3://bucket", "key.csv")),
        ("/data/urls.csv", ("file", "/data/urls.csv")),
        ("file:///data/urls.csv", ("file", "/data/urls.csv")),
        ("https://h", ("https://h", "/")),
    ],
)
def test_a_dataset_has_the_name_that_openlineage_gives_it_and_no_credentials(url: str, expected: tuple[str, str]) -> None:
    assert dataset_of_url(url) == expected
