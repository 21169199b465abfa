"""Sends a file as download hosts do: whole or in part (RFC 9110 section 14), with its ``ETag``."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

_CHUNK = 256 * 1024


class RangedFile(web.StreamResponse):
    """A file, or the one range of it that the request names.

    :ivar cut_after: bytes of the body after which the connection is closed; None to send all of it.
    """

    cut_after: int | None = None

    def __init__(self, path: Path, request: web.Request) -> None:
        found = path.stat()
        etag, modified = f'"{found.st_mtime_ns:x}-{found.st_size:x}"', formatdate(found.st_mtime, usegmt=True)
        headers = {"Content-Type": "application/octet-stream", "ETag": etag, "Last-Modified": modified, "Accept-Ranges": "bytes"}
        part = _part(request, found.st_size)
        if request.headers.get("If-Range", etag) not in (etag, modified):
            part = None
        self._path, self._part = path, part if part is not None else range(found.st_size)
        status = 200 if part is None else 206 if part else 416
        if part is not None:
            span = f"{part.start}-{part.stop - 1}" if part else "*"
            headers["Content-Range"] = f"bytes {span}/{found.st_size}"
        super().__init__(status=status, headers=headers)
        self.content_length = len(self._part)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the body too, as aiohttp's own file responses do here."""
        writer = await super().prepare(request)
        for piece in self.pieces():
            await self.write(piece)
        if self.cut_after is not None and request.transport:
            request.transport.close()
        return writer

    def pieces(self) -> Iterator[bytes]:
        """Read the bytes of the body."""
        left = len(self._part) if self.cut_after is None else min(self.cut_after, len(self._part))
        with self._path.open("rb") as file:
            file.seek(self._part.start)
            while left and (piece := file.read(min(_CHUNK, left))):
                yield piece
                left -= len(piece)


def _part(request: web.Request, size: int) -> range | None:
    """Return the bytes that ``Range`` names: an empty range for a 416, None for the whole file or an unsupported header."""
    try:
        wanted = request.http_range
    except ValueError:
        return None
    return range(size)[wanted] if "Range" in request.headers else None
