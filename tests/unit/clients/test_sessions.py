"""What urllib3 logs of our requests is dropped, because it holds tokens; what it logs of others' requests is not."""

from __future__ import annotations

import logging

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook


def test_only_what_urllib3_logs_of_our_requests_is_dropped(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    emulator.put_file(b"hello", "f123")
    with caplog.at_level(logging.DEBUG), CloudStoreHook() as hook:
        hook.create_download_link("f123")
        assert "urllib3" not in caplog.text
        requests.get(f"{emulator.url}/of/others?page=2", timeout=30)
    assert "/of/others?page=2" in caplog.text
