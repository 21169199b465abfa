"""The emulated service's state: folders, files on disk, the upload queue, tokens, and counters."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pendulum
from pendulum import DateTime

_CHUNK = 256 * 1024
_FETCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)


@dataclass(slots=True)
class StoredFile:
    """A file, which exists as soon as its upload is queued.

    :param state: ``queued``, ``stored`` or ``failed``.
    """

    file_id: str
    folder_id: str
    source: str
    state: str = "queued"
    size: int = 0
    sha256: str = ""
    error: str = ""


@dataclass(slots=True)
class Token:
    """A download token and how often it was used."""

    token: str
    file_id: str
    expires_at: DateTime
    downloads: int = 0


@dataclass(slots=True)
class Store:
    """The service's state. One event loop owns it.

    :param folder: the directory for the bytes.
    :param upload_folder: the id of the folder that uploads land in.
    :param token_ttl: seconds until a download token expires.
    :param fetch_delay: seconds that an upload waits in the queue before it is fetched.
    """

    folder: Path
    upload_folder: str
    token_ttl: float
    fetch_delay: float
    files: dict[str, StoredFile] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    sources: dict[str, bytes] = field(default_factory=lambda: {"report.csv": b"name,value\nfirst,1\nsecond,2\n"})
    """Files served without a token, as by any web server, for uploads to fetch."""
    requests: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    connections: Counter[str] = field(default_factory=Counter)
    _fetches: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None

    def __post_init__(self) -> None:
        self.folders.add(self.upload_folder)

    def queue_upload(self, url: str) -> StoredFile:
        """Queue a fetch; it runs after the response is sent."""
        stored = StoredFile(f"f{secrets.token_hex(6)}", self.upload_folder, url)
        self.folders.add(self.upload_folder)
        self.files[stored.file_id] = stored
        self.effects["upload"] += 1
        task = asyncio.get_running_loop().create_task(self._fetch(stored))
        self._fetches[stored.file_id] = task
        task.add_done_callback(lambda _: self._fetches.pop(stored.file_id, None))
        return stored

    def put_file(self, content: bytes, file_id: str, folder_id: str) -> StoredFile:
        """Store a file without an upload.

        :param folder_id: its folder, created when needed.
        """
        stored = StoredFile(file_id, folder_id, "put", "stored", len(content), hashlib.sha256(content).hexdigest())
        self.path_of(stored).write_bytes(content)
        self.folders.add(folder_id)
        self.files[file_id] = stored
        return stored

    async def _fetch(self, stored: StoredFile) -> None:
        await asyncio.sleep(self.fetch_delay)
        part = self.path_of(stored).with_suffix(".part")
        digest = hashlib.sha256()
        try:
            self._session = self._session or aiohttp.ClientSession(timeout=_FETCH_TIMEOUT)
            async with self._session.get(stored.source, raise_for_status=True) as response:
                with part.open("wb") as sink:
                    async for chunk in response.content.iter_chunked(_CHUNK):
                        sink.write(chunk)
                        digest.update(chunk)
                        stored.size += len(chunk)
            part.rename(self.path_of(stored))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            part.unlink(missing_ok=True)
            stored.state, stored.error = "failed", type(error).__name__
        else:
            stored.state, stored.sha256 = "stored", digest.hexdigest()

    def create_token(self, file_id: str) -> Token | None:
        """Create a token for a stored file, or return None if the file is not stored (yet)."""
        stored = self.files.get(file_id)
        if stored is None or stored.state != "stored":
            return None
        expires_at = pendulum.now("UTC").add(seconds=self.token_ttl)
        token = Token(secrets.token_urlsafe(32), file_id, expires_at)
        self.tokens[token.token] = token
        self.effects["link"] += 1
        return token

    def expire_tokens(self) -> None:
        """Expire all tokens."""
        for token in self.tokens.values():
            token.expires_at = pendulum.now("UTC")

    def valid_token(self, text: str) -> Token | None:
        """Return the token, or None if it is unknown or expired."""
        token = self.tokens.get(text)
        return token if token and pendulum.now("UTC") < token.expires_at else None

    async def delete_folder(self, folder_id: str) -> bool:
        """Delete a folder with its files, their tokens and its queued uploads.

        :returns: whether the folder existed.
        """
        if folder_id not in self.folders:
            return False
        self.folders.remove(folder_id)
        deleted = [stored for stored in self.files.values() if stored.folder_id == folder_id]
        for stored in deleted:
            await self._cancel(self._fetches.get(stored.file_id))
            self.path_of(stored).unlink(missing_ok=True)
            del self.files[stored.file_id]
        ids = {stored.file_id for stored in deleted}
        self.tokens = {text: token for text, token in self.tokens.items() if token.file_id not in ids}
        self.effects["delete"] += 1
        return True

    def path_of(self, stored: StoredFile) -> Path:
        """Return the path of a file's bytes."""
        return self.folder / hashlib.sha256(stored.file_id.encode()).hexdigest()  # an id may hold what a file name may not

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as JSON-serializable data."""
        return {
            "requests": dict(self.requests),
            "effects": dict(self.effects),
            "connections": dict(self.connections),
            "folders": sorted(self.folders),
            "files": [asdict(stored) for stored in self.files.values()],
            "tokens": [asdict(token) | {"expires_at": token.expires_at.isoformat()} for token in self.tokens.values()],
        }

    async def close(self) -> None:
        """Stop the queue and remove the files."""
        for task in list(self._fetches.values()):
            await self._cancel(task)
        if self._session:
            await self._session.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    async def _cancel(task: asyncio.Task[None] | None) -> None:
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
