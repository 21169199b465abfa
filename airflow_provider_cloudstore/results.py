"""What the hooks return, and the operators push to XCom as ``to_dict()`` has it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, cast

from pendulum import DateTime

__all__ = ["DownloadLink", "DownloadedFile", "FolderDeletion", "RemoteUpload"]

Json = dict[str, Any] | list[Any] | str | int | float | bool | None


class _Result:
    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data, dates as ISO 8601 in UTC; a download link with its token. It is what the operators push to XCom."""
        data = {one.name: getattr(self, one.name) for one in fields(cast("Any", self))}
        moments = {name: value for name, value in data.items() if isinstance(value, DateTime)}
        return data | {name: moment.in_timezone("UTC").to_iso8601_string() for name, moment in moments.items()}


@dataclass(frozen=True, slots=True)
class FolderDeletion(_Result):
    """A folder was deleted with its contents.

    :param folder_id: the folder.
    :param requested_at: when the deletion was sent (UTC).
    :param response: the service's response: parsed JSON, text, or None.
    :param existed: False if the folder did not exist; None if unknown: a response was lost, and the next attempt found no folder.
    """

    folder_id: str
    requested_at: DateTime
    response: Json
    existed: bool | None


@dataclass(frozen=True, slots=True)
class RemoteUpload(_Result):
    """An upload was queued: the service fetches the file later.

    :param file_id: the id that the file has or will have; empty if the service's response does not have it.
    :param url: the source URL, redacted.
    :param requested_at: when the upload was sent (UTC).
    :param response: the service's response: parsed JSON, text, or None.
    """

    file_id: str
    url: str
    requested_at: DateTime
    response: Json


@dataclass(frozen=True, slots=True)
class DownloadLink(_Result):
    """A time-limited download token for a file.

    :param file_id: the file.
    :param token: the token. It is a secret: anyone who has it can download the file.
    :param url_with_token: the URL to download from: the service's, or else that of extra ``download_url``; None without either.
        Airflow redacts rendered fields by key name: by this one the URL is hidden in the fields of the tasks that consume it.
    :param created_at: when the response arrived (UTC).
    :param expires_at: when the token expires (UTC), if the response says so.
    """

    file_id: str
    token: str = field(repr=False)
    url_with_token: str | None = field(repr=False)
    created_at: DateTime
    expires_at: DateTime | None


@dataclass(frozen=True, slots=True)
class DownloadedFile(_Result):
    """A file was downloaded and verified.

    :param file_id: the file.
    :param path: where it is, as specified by the target.
    :param name: the name that its host gave it (``Content-Disposition``), without a path; None if it gave none.
    :param bytes: its size.
    :param sha256: its SHA-256, in hexadecimal.
    """

    file_id: str
    path: str
    name: str | None
    bytes: int
    sha256: str
