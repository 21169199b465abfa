"""What urllib3 logs of our requests holds no token, and what it logs of others' requests stays as it is."""

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


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("urllib3"))


def test_no_token_is_logged_through_an_adapter_of_ones_own(hook: CloudStoreHook, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), hook:
        hook.get_conn().mount("http://", requests.adapters.HTTPAdapter())
        hook.create_download_link("f123")
    assert "Starting new HTTP connection" in logged(caplog)
    assert hook.settings.access_token.reveal() not in logged(caplog)


def test_what_urllib3_logs_of_other_requests_is_whole(
    hook: CloudStoreHook, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), hook:
        hook.create_download_link("f123")
        caplog.clear()
        requests.get(f"{emulator.url}/of/others?page=2", timeout=30)
        try:
            raise ValueError("of others")
        except ValueError:
            logging.getLogger("urllib3.connectionpool").warning("failed: %s", "/a/path?x=1", exc_info=True)
    assert "/of/others?page=2" in logged(caplog)
    assert "failed: /a/path?x=1" in logged(caplog)
    assert caplog.records[-1].exc_info is not None
