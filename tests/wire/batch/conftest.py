"""A batch against the emulator: the fixtures of the fast tests."""

from __future__ import annotations

from tests.unit.batch.conftest import _short_pauses, arrived, emulator, folder, job, run, urls

__all__ = ["_short_pauses", "arrived", "emulator", "folder", "job", "run", "urls"]
