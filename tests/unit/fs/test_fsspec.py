"""fsspec's own tests of filesystems, as far as they fit a flat store that can only be read.

``LEFT_OUT`` copies folders, patterns or recursively: the service has no operation that lists files. ``AbstractOpenTests`` has one
test, which writes before it reads: what it expects is checked here with a file that is there.
"""

from __future__ import annotations

from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests, AbstractOpenTests

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.fs.cloudstore import CloudStoreFileSystem

LEFT_OUT = (
    "test_get_directory_to_existing_directory",
    "test_get_directory_to_new_directory",
    "test_get_directory_recursive",
    "test_get_directory_without_files_with_same_name_prefix",
    "test_get_glob_to_existing_directory",
    "test_get_glob_to_new_directory",
    "test_get_glob_edge_cases",
)


class _Fixtures(AbstractFixtures):  # type: ignore[misc]  # fsspec has no annotations
    @pytest.fixture
    def fs(self, emulator: Emulator) -> CloudStoreFileSystem:
        for file_id in ("file1", "file2", "subfile1"):
            emulator.put_file(file_id.encode(), file_id)
        return CloudStoreFileSystem()

    @pytest.fixture
    def fs_path(self) -> str:
        return ""

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: parts[-1]  # no folders: a file's id is its whole path

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        return str(tmp_path)

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self) -> str:
        return ""

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, emulator: Emulator) -> str:
        for number in range(10):
            emulator.put_file(b"%d" % number, f"{md5(b'%d' % number).hexdigest()}.txt")
        return ""


class TestGet(_Fixtures, AbstractGetTests):  # type: ignore[misc]
    for _name in LEFT_OUT:
        locals()[_name] = None


class TestOpen(_Fixtures, AbstractOpenTests):  # type: ignore[misc]
    def test_open_exclusive(self, fs: CloudStoreFileSystem) -> None:
        with fs.open("file1", "rb") as file:
            assert file.read() == b"file1"
        for mode in ("wb", "xb", "ab"):
            with pytest.raises(OSError, match="can only be read"):
                fs.open("file1", mode)
