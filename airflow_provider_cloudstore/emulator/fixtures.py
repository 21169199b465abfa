"""The pytest fixture ``cloudstore_emulator``: users import it into a ``conftest.py`` of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator

__all__ = ["Emulator", "cloudstore_emulator"]


@pytest.fixture
def cloudstore_emulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Run the emulator, with the connection ``cloudstore_default`` pointing to it; an indirect parameter names the service."""
    with Emulator(service=getattr(request, "param", "api-v2")) as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        yield emulator
