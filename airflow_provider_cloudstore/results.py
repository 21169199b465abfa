"""The results that the hooks return, and the types of their ``to_dict()``, which the operators store as XComs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypedDict, TypeVar, cast

from pendulum import DateTime

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

Data = TypeVar("Data")


class FolderDeletionXCom(TypedDict):
    """The return value of ``DeleteFolderOperator``: a :class:`FolderDeletion` as plain data."""

    folder_id: str
    requested_at: str
    response: Json
    existed: bool | None


class RemoteUploadXCom(TypedDict):
    """The XCom ``upload`` of ``RemoteUrlUploadOperator``: a :class:`RemoteUpload` as plain data."""

    file_id: str
    url: str
    requested_at: str
    response: Json


class DownloadLinkXCom(TypedDict):
    """The XCom ``download_link`` of ``DownloadLinkOperator``: a :class:`DownloadLink` as plain data, with its token."""

    file_id: str
    token: str
    url_with_token: str | None
    created_at: str
    expires_at: str | None


class DownloadedFileXCom(TypedDict):
    """The return value of ``DownloadFileOperator``: a :class:`DownloadedFile` as plain data."""

    file_id: str
    path: str
    name: str | None
    bytes: int
    sha256: str


class BatchFailure(TypedDict):
    """A URL that failed or is unknown, in a :class:`BatchXCom`."""

    line: int
    url: str
    status: str
    error: str


class BatchXCom(TypedDict):
    """The return value of ``RemoteUrlBatchUploadOperator``: the counts, the receipts' folder, and the first twenty failures."""

    total: int
    queued: int
    failed: int
    unknown: int
    skipped: int
    unsent: int
    queued_earlier: int
    receipts: str | None
    failures: list[BatchFailure]


class _Result(Generic[Data]):
    __slots__ = ()

    def to_dict(self) -> Data:
        """Return the result as plain data, with dates as ISO 8601 in UTC. A download link includes its token."""
        data = {attribute.name: getattr(self, attribute.name) for attribute in fields(cast("Any", self))}
        moments = {name: value for name, value in data.items() if isinstance(value, DateTime)}
        texts = {name: moment.in_timezone("UTC").to_iso8601_string() for name, moment in moments.items()}
        return cast("Data", data | texts)


@dataclass(frozen=True, slots=True)
class FolderDeletion(_Result[FolderDeletionXCom]):
    """A folder was deleted with its contents.

    :param folder_id: The folder.
    :param requested_at: When the deletion was sent (UTC).
    :param response: The service's response: parsed JSON, text, or None.
    :param existed: False if the folder did not exist. None if that is unknown, because a response was lost and the next attempt
        found no folder.
    """

    folder_id: str
    requested_at: DateTime
    response: Json
    existed: bool | None


@dataclass(frozen=True, slots=True)
class RemoteUpload(_Result[RemoteUploadXCom]):
    """An upload was queued: the service fetches the file later.

    :param file_id: The id that the file has or will have; empty if the service's response does not contain it.
    :param url: The source URL, redacted.
    :param requested_at: When the upload was sent (UTC).
    :param response: The service's response: parsed JSON, text, or None.
    """

    file_id: str
    url: str
    requested_at: DateTime
    response: Json


@dataclass(frozen=True, slots=True)
class DownloadLink(_Result[DownloadLinkXCom]):
    """A time-limited download token for a file.

    :param file_id: The file.
    :param token: The token. It is a secret: anyone who has it can download the file.
    :param url_with_token: The URL to download from, as the service or else extra ``download_url`` gives it; None without either.
        Because of its name, Airflow hides this URL in the rendered fields of the tasks that consume it.
    :param created_at: When the response arrived (UTC).
    :param expires_at: When the token expires (UTC), if the response says so.
    """

    file_id: str
    token: str = field(repr=False)
    url_with_token: str | None = field(repr=False)
    created_at: DateTime
    expires_at: DateTime | None


@dataclass(frozen=True, slots=True)
class DownloadedFile(_Result[DownloadedFileXCom]):
    """A file was downloaded and verified.

    :param file_id: The file.
    :param path: The file's path, written as in the target.
    :param name: The file's name according to its host (``Content-Disposition``), without a path; None if the host gave no name.
    :param bytes: The file's size in bytes.
    :param sha256: The file's SHA-256, in hexadecimal.
    """

    file_id: str
    path: str
    name: str | None
    bytes: int
    sha256: str
