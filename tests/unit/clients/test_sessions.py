"""What urllib3 logs of our requests, which holds tokens, is dropped; what it logs of others' requests stays as it is."""

from __future__ import annotations

import logging

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook


@pytest.fixture
def hook(emulator: Emulator) -> CloudStoreHook:
    emulator.put_file(b"hello", "f123")
    return CloudStoreHook()


def test_what_urllib3_logs_of_our_requests_is_dropped_whatever_the_adapter(
    hook: CloudStoreHook, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), hook:
        hook.create_download_link("f123")
        hook.get_conn().mount("http://", requests.adapters.HTTPAdapter())
        hook.create_download_link("f123")
    assert not [record for record in caplog.records if record.name.startswith("urllib3")]


def test_what_urllib3_logs_of_other_requests_is_whole(
    hook: CloudStoreHook, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), hook:
        hook.create_download_link("f123")
        requests.get(f"{emulator.url}/of/others?page=2", timeout=30)
    assert "/of/others?page=2" in caplog.text
