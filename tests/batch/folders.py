"""Folders for receipts: in memory, and on a store with folders that is not local."""

from __future__ import annotations

from fsspec.implementations.local import LocalFileSystem


class Kept:
    """A folder in memory."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def names(self) -> list[str]:
        return list(self.files)


class SftpLike:
    """A path on a store with folders that is not local."""

    protocol = "sftp"

    def __init__(self, path: str) -> None:
        self.path = path
        self.fs = LocalFileSystem()

    def __truediv__(self, name: str) -> SftpLike:
        return SftpLike(f"{self.path}/{name}")

    def __str__(self) -> str:
        return f"sftp://host{self.path}"

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        assert parents
        self.fs.makedirs(self.path, exist_ok=exist_ok)

    def unlink(self) -> None:
        self.fs.rm_file(self.path)
