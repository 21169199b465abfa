"""The emulated service's state: folders, files, the upload queue, tokens, and counters."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pendulum
from pendulum import DateTime

UPLOAD_FOLDER = "staging"
"""The id of the folder that uploads land in."""
EXAMPLE = "example.com"
"""A host that nobody serves files from (RFC 2606 section 3): the emulator makes up what is uploaded from it."""


@dataclass(slots=True)
class StoredFile:
    """A file, which exists as soon as its upload is queued.

    :param state: ``queued``, ``stored`` or ``failed``.
    """

    file_id: str
    folder_id: str
    source: str
    name: str
    state: str = "queued"
    content: bytes = b""
    modified: DateTime = field(default_factory=lambda: pendulum.now("UTC"))


@dataclass(slots=True)
class Token:
    """A download token and how often it was used."""

    token: str
    file_id: str
    expires_at: DateTime
    downloads: int = 0


@dataclass(slots=True)
class Store:
    """The service's state. One event loop owns it."""

    token_ttl: float
    fetch_delay: float
    files: dict[str, StoredFile] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {UPLOAD_FOLDER})
    sources: dict[str, bytes] = field(default_factory=dict)
    """Files served without a token, as by any web server, for uploads to fetch; one of any other name is made up."""
    requests: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    _fetches: set[asyncio.Task[None]] = field(default_factory=set)

    def queue_upload(self, url: str) -> StoredFile:
        """Queue a fetch; it runs after the response is sent."""
        name = url.partition("?")[0].rpartition("/")[2]
        stored = StoredFile(f"f{secrets.token_hex(6)}", UPLOAD_FOLDER, url, name)
        self.folders.add(UPLOAD_FOLDER)
        self.files[stored.file_id] = stored
        task = asyncio.get_running_loop().create_task(self._fetch(stored))
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)
        return stored

    def source(self, name: str) -> bytes:
        """The file of a name to upload from."""
        return self.sources.get(name, f"name\n{name}\n".encode())

    def put_file(self, content: bytes, file_id: str, folder_id: str = UPLOAD_FOLDER) -> StoredFile:
        """Store a file without an upload."""
        stored = StoredFile(file_id, folder_id, "put", file_id, "stored", content)
        self.folders.add(folder_id)
        self.files[file_id] = stored
        return stored

    async def _fetch(self, stored: StoredFile) -> None:
        await asyncio.sleep(self.fetch_delay)
        if urlsplit(stored.source).hostname == EXAMPLE:
            stored.content, stored.state = self.source(stored.name), "stored"
            return
        try:
            async with aiohttp.ClientSession() as session, session.get(stored.source, raise_for_status=True) as response:
                stored.content, stored.state = await response.read(), "stored"
        except (aiohttp.ClientError, OSError, ValueError):
            stored.state = "failed"

    def create_token(self, file_id: str) -> Token | None:
        """Create a token for a stored file, or return None if the file is not stored (yet)."""
        stored = self.files.get(file_id)
        if stored is None or stored.state != "stored":
            return None
        expires_at = pendulum.now("UTC").add(seconds=self.token_ttl)
        token = Token(secrets.token_urlsafe(32), file_id, expires_at)
        self.tokens[token.token] = token
        return token

    def delete_folder(self, folder_id: str) -> bool:
        """Delete a folder with its files, their tokens and its queued uploads, and return whether it existed."""
        if folder_id not in self.folders:
            return False
        self.folders.remove(folder_id)
        self.files = {file_id: stored for file_id, stored in self.files.items() if stored.folder_id != folder_id}
        self.tokens = {text: token for text, token in self.tokens.items() if token.file_id in self.files}
        return True

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as JSON-serializable data."""
        return {
            "requests": dict(self.requests),
            "effects": dict(self.effects),
            "folders": sorted(self.folders),
            "files": [
                {"file_id": one.file_id, "folder_id": one.folder_id, "source": one.source, "state": one.state}
                for one in self.files.values()
            ],
            "tokens": [asdict(token) | {"expires_at": token.expires_at.isoformat()} for token in self.tokens.values()],
        }
