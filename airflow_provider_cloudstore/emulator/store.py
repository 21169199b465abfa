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
    """A file, which is ``queued``, ``stored`` or ``failed``: it exists as soon as its upload is queued."""

    file_id: str
    folder_id: str
    source: str
    name: str
    state: str = "queued"
    content: bytes = b""


@dataclass(slots=True)
class Token:
    """A download token."""

    token: str
    file_id: str
    expires_at: DateTime


@dataclass
class Store:
    """The service's state. One event loop owns it."""

    token_ttl: float
    fetch_delay: float
    files: dict[str, StoredFile] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    """The name of each folder by its id. There are none in folders, and the root, whose id is empty, is no folder."""
    trash: set[str] = field(default_factory=set)
    """The folders that are in the trash, with their files."""
    sources: dict[str, bytes] = field(default_factory=dict)
    """Files served without a token, as by any web server, for uploads to fetch; one of any other name is made up."""
    requests: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    _fetches: list[asyncio.Task[None]] = field(default_factory=list)

    def queue_upload(self, url: str, folder_id: str) -> StoredFile:
        """Queue a fetch; it runs after the response is sent."""
        stored = StoredFile(_new_id(), folder_id, url, url.partition("?")[0].rpartition("/")[2])
        self.files[stored.file_id] = stored
        self._fetches.append(asyncio.get_running_loop().create_task(self._fetch(stored)))
        return stored

    def source(self, name: str) -> bytes:
        """The file of a name to upload from."""
        return self.sources.get(name, f"name\n{name}\n".encode())

    def put_file(self, content: bytes, file_id: str = "", folder_id: str = UPLOAD_FOLDER) -> StoredFile:
        """Store a file without an upload, with a new id unless one is given."""
        file_id = file_id or _new_id()
        if folder_id:
            self.put_folder(folder_id)
        self.files[file_id] = StoredFile(file_id, folder_id, "put", file_id, "stored", content)
        return self.files[file_id]

    async def _fetch(self, stored: StoredFile) -> None:
        await asyncio.sleep(self.fetch_delay)
        try:
            if urlsplit(stored.source).hostname == EXAMPLE:
                stored.content = self.source(stored.name)
            else:
                async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(stored.source) as response:
                    stored.content = await response.read()
            stored.state = "stored"
        except (aiohttp.ClientError, OSError, ValueError):
            stored.state = "failed"

    def create_token(self, file_id: str) -> Token:
        """Create a token for a stored file."""
        token = Token(secrets.token_urlsafe(32), file_id, pendulum.now("UTC").add(seconds=self.token_ttl))
        self.tokens[token.token] = token
        return token

    def put_folder(self, folder_id: str = "", name: str = "") -> str:
        """Return the id of a folder, created when needed; without an id a new folder."""
        folder_id = folder_id or _new_id()
        self.folders.setdefault(folder_id, name or folder_id)
        return folder_id

    def files_in(self, folder_id: str) -> list[StoredFile]:
        """The stored files of a folder."""
        return [one for one in self.files.values() if one.folder_id == folder_id and one.state == "stored"]

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as JSON-serializable data."""
        return {
            "requests": dict(self.requests),
            "effects": dict(self.effects),
            "folders": sorted(self.folders.keys() - self.trash),
            "files": [
                {"file_id": one.file_id, "folder_id": one.folder_id, "source": one.source}
                | {"state": "trash" if one.folder_id in self.trash else one.state}
                for one in self.files.values()
            ],
            "tokens": [asdict(token) | {"expires_at": token.expires_at.isoformat()} for token in self.tokens.values()],
        }


def _new_id() -> str:
    return f"f{secrets.randbits(48)}"
