from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import eventually, store_file

API = "/cloud/api/v2"
HEADERS = {"Authorization": "Bearer TOKEN"}


def queue(emulator: Emulator, url: str, **more: str) -> Any:
    """Upload from a URL, and return the response's data."""
    headers = {"Authorization": f"Bearer {emulator.access_token}"}
    response = requests.post(f"{emulator.url}{API}/file/url_upload_add", {"url": url, **more}, headers=headers, timeout=5)
    assert response.status_code == 200
    return response.json()["data"]


def make_link(emulator: Emulator, file_id: str) -> Any:
    """Return the address of a file, or None if there is no file to link to (yet)."""
    query = {"access_token": emulator.access_token, "file_id": file_id}
    response = requests.get(f"{emulator.url}{API}/file/download", params=query, timeout=5)
    assert response.status_code in {200, 404}
    return response.json().get("data", {}).get("download_url")


@pytest.mark.parametrize("host", ["https://example.com", "{own}/_emulator/sources"])
@pytest.mark.parametrize(("name", "content"), [("sales.csv", b"name\nsales.csv\n"), ("mine.csv", b"mine")])
def test_a_source_that_is_not_served_is_made_up(emulator: Emulator, host: str, name: str, content: bytes) -> None:
    emulator.serve(b"mine", "mine.csv")
    file_id = queue(emulator, f"{host.replace('{own}', emulator.url)}/{name}?sig=1")["file_id"]
    assert requests.get(eventually(lambda: make_link(emulator, file_id)), timeout=5).content == content


def test_an_upload_waits_in_the_queue_for_the_delay_and_a_token_expires_after_its_ttl() -> None:
    with Emulator(fetch_delay=0.3, token_ttl=0.3) as emulator:
        began = time.monotonic()
        file_id = queue(emulator, emulator.serve(b"x"))["file_id"]
        link = eventually(lambda: make_link(emulator, file_id))
        assert time.monotonic() - began >= 0.3
        eventually(lambda: requests.get(link, timeout=5).status_code == 403)
        assert time.monotonic() - began >= 0.6


def test_deleting_a_folder_takes_files_tokens_and_queued_uploads_with_it_and_no_other_folder() -> None:
    with Emulator(access_token="TOKEN", fetch_delay=60) as emulator:
        store_file(emulator)
        link = make_link(emulator, "f1")
        other = emulator.make_folder("other")
        assert queue(emulator, "http://127.0.0.1:9/slow")["folder_id"] == "staging"
        queued = queue(emulator, "http://127.0.0.1:9/slow", folder_id=other)
        for status in (200, 404):
            deleted = requests.post(f"{emulator.url}{API}/folder/delete", {"folder_id": "staging"}, headers=HEADERS, timeout=5)
            assert deleted.status_code == status
        state = emulator.state()
        assert [(stored["file_id"], stored["folder_id"]) for stored in state["files"]] == [(queued["file_id"], other)]
        assert (state["folders"], state["tokens"]) == ([other], [])
        assert requests.get(link, timeout=5).status_code == 403
