from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from airflow_provider_cloudstore.batch.manifest import spooled_manifest
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError


class Source:
    """A file whose reading runs a function once its blocks are used up."""

    def __init__(self, blocks: list[bytes], then: Callable[[], bytes]) -> None:
        self._blocks: Iterator[bytes] = iter(blocks)
        self._then = then

    def read(self, size: int) -> bytes:
        return next(self._blocks, None) or self._then()


def test_a_source_that_fails_is_named_without_the_librarys_error() -> None:
    def fail() -> bytes:
        raise RuntimeError("https://h/?sig=hunter2")

    with pytest.raises(BatchInterruptedError, match=r"the manifest u.csv cannot be read to its end \(RuntimeError\)") as refused:
        spooled_manifest(cast("BinaryIO", Source([b"url\n"], fail)), "u.csv", "url")
    assert (refused.value.cause, refused.value.operation) == ("store", "batch upload")
    assert refused.value.__context__ is None
    assert "hunter2" not in str(refused.value)


def test_a_folder_for_temporary_files_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(
        BatchInterruptedError, match=rf"u.csv cannot be copied to {tmp_path}/missing \(No such file or directory\)"
    ) as full:
        spooled_manifest(io.BytesIO(b"url\n"), "u.csv", "url")
    assert full.value.cause == "disk"
    assert full.value.__context__ is None


def run_child(code: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, **options)


def test_a_full_disk_is_named_with_its_folder(tmp_path: Path) -> None:
    child = run_child(
        """
import io, resource
from airflow_provider_cloudstore.batch.manifest import spooled_manifest
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    spooled_manifest(io.BytesIO(bytes(400_000)), "u.csv", "url")
except BatchInterruptedError as error:
    print(error.cause, error.__context__, error)
""",
        tmp_path,
    )
    told, _ = child.communicate(timeout=60)
    assert told.startswith(f"disk None batch upload: the manifest u.csv cannot be copied to {tmp_path} (File too large).\n")
    assert "TMPDIR" in told
    assert list(tmp_path.iterdir()) == []


def test_a_kill_while_the_manifest_is_copied_leaves_no_file(tmp_path: Path) -> None:
    child = run_child(
        """
import time
from airflow_provider_cloudstore.batch.manifest import spooled_manifest
class Endless:
    blocks = [b"http://h/1", b"http://h/2"]
    def read(self, size):
        if self.blocks:
            return self.blocks.pop() * 10_000
        print("copied", flush=True)
        time.sleep(600)
spooled_manifest(Endless(), "u.csv", "url")
""",
        tmp_path,
    )
    assert child.stdout
    assert child.stdout.readline() == "copied\n"
    held = [os.stat(link) for link in Path(f"/proc/{child.pid}/fd").iterdir() if str(tmp_path) in os.readlink(link)]
    assert [(status.st_size, status.st_mode & 0o777) for status in held] == [(200_000, 0o600)]
    assert list(tmp_path.iterdir()) == []
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
    child.stdout.close()
