"""The two hooks: the service's operations with an Airflow connection. Nothing above them handles the access token."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow.providers.common.compat.connection import get_async_connection, get_async_extra_dejson
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection

from airflow_provider_cloudstore.compat import form_widgets
from airflow_provider_cloudstore.exceptions import CloudStoreError, ConfigurationError, NotFoundError, ServiceError
from airflow_provider_cloudstore.hooks.masking import MaskingLimit, amask, mask
from airflow_provider_cloudstore.hooks.shared_connection import SharedConnection, shared_connection
from airflow_provider_cloudstore.hooks.time_budget import time_budget
from airflow_provider_cloudstore.metrics import count_download, counted_requests
from airflow_provider_cloudstore.protocol.calls import (
    Call,
    CreateDownloadLink,
    DeleteFolder,
    UploadFromUrl,
)
from airflow_provider_cloudstore.protocol.failures import is_about_subject
from airflow_provider_cloudstore.protocol.results import DownloadedFile, DownloadLink, FolderDeletion, RemoteUpload
from airflow_provider_cloudstore.protocol.settings import CONN_TYPE, Settings, read_extra, warnings_about
from airflow_provider_cloudstore.provider_info import CONN_FIELDS, DEFAULT_CONN_ID, UI_FIELD_BEHAVIOUR

if TYPE_CHECKING:
    import requests

    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
    from airflow_provider_cloudstore.clients.blocking import BlockingClient
    from airflow_provider_cloudstore.clients.streaming import DownloadClient
    from airflow_provider_cloudstore.hooks.file_reader import FileReader
    from airflow_provider_cloudstore.protocol.download_requests import FileVersion

T = TypeVar("T")

MISSING_FILE_ID = "airflow-connection-test"
"""The id of a file that does not exist, for the connection test and the doctor."""


class CloudStoreHook(BaseHook):
    """Deletes folders, queues remote uploads and creates download links, with an Airflow connection.

    The connection is read on first use, and once more if the service rejects its token. Calls and downloads
    of one hook share an HTTP session in each thread; use it as a context manager for many calls.

    Every method raises :class:`~airflow_provider_cloudstore.exceptions.CloudStoreError`; a permanent one is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    conn_name_attr = "cloudstore_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = "Cloud file storage service"

    def __init__(self, cloudstore_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._client: BlockingClient | None = None
        self._settings: Settings | None = None
        self._masking = MaskingLimit()
        self._is_tested = False
        self._warnings: list[str] = []

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The standard fields of the connection form (Airflow before 3.2)."""
        return {key.replace("-", "_"): value for key, value in UI_FIELD_BEHAVIOUR.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """The additional fields of the connection form (Airflow before 3.2)."""
        return form_widgets(CONN_FIELDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP sessions, and forget the adapters mounted on them; the next call opens a new one."""
        if self._client:
            self._client.close()
        self._client = None
        self._settings = None

    def get_conn(self) -> requests.Session:
        """The HTTP session of this thread, over which calls and downloads are sent.

        The hook adds the token to each of its own requests; your requests carry none. They use the connection's proxy and
        certificates unless you pass others, follow no redirects, keep no cookies, and have no timeout but the one you pass. The
        guards of methods such as :meth:`delete_folder` do not apply to them. An adapter that you mount, and the history of a
        mock, see the hook's token.

        :raises ConfigurationError: if the connection is invalid.
        """
        return self._http.session

    @property
    def _http(self) -> BlockingClient:
        if self._client is None:
            from airflow_provider_cloudstore.clients.blocking import BlockingClient

            self._client = BlockingClient(self.settings, self.read_settings)
        return self._client

    @property
    def settings(self) -> Settings:
        """The settings from the Airflow connection.

        :raises ConfigurationError: if the connection is invalid.
        """
        if self._settings is None:
            return self.read_settings()
        return self._settings

    def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """Delete a folder and its contents permanently (API document, section 4.1).

        :param folder_id: the folder; an empty, missing or protected id is rejected before anything is sent.
        :param ignore_missing: return normally if the folder does not exist; the result's ``existed`` is then False.
        :returns: the folder, the time of the request, and the response.
        :raises NotFoundError: if there is no such folder.
        """
        return self._perform(DeleteFolder(folder_id, self.settings, ignore_missing=ignore_missing))

    def upload_from_url(self, url: str, *, retry_unknown_outcome: bool = False) -> RemoteUpload:
        """Queue an upload that the service later fetches from a URL (API document, section 4.2).

        :param url: an absolute URL with scheme http, https or ftp. Its credentials (user info, query) are never logged.
        :param retry_unknown_outcome: resend an upload that may have been queued; the service may then hold the file twice.
        :returns: the redacted URL, the time of the request, the response, and the file's id if the response has one.
        :raises OutcomeUnknownError: if it may have been queued, and you did not opt in to resending.
        """
        from airflow_provider_cloudstore.lineage import collect, of_upload

        call = UploadFromUrl(url, self.settings, retry_unknown_outcome=retry_unknown_outcome)
        mask(self._masking.admit(call.secrets, self.log.warning))
        upload = self._perform(call)
        collect(self, of_upload(upload.url, self.settings.base_url, upload.file_id))
        return upload

    def create_download_link(self, file_id: str) -> DownloadLink:
        """Create a time-limited download token for a file (API document, section 4.3).

        :param file_id: the file.
        :returns: the token, and its URL and expiry if the response has them.
        :raises InvalidResponseError: if the service's response has no token.
        """
        return self._masked(self._perform(CreateDownloadLink(file_id, self.settings)))

    def download(
        self, file_id: str, target: Any, *, expected_sha256: str | None = None, link: DownloadLink | None = None
    ) -> DownloadedFile:
        """Download a file. No link leaves this process; a broken download resumes with a new link.

        The target is complete or absent: a failed or killed download leaves it unchanged. The download URL is taken from the
        service's response, or else from the connection's extra ``download_url``.

        :param file_id: the file.
        :param target: a local path, or a path for Airflow's ``ObjectStoragePath``, such as ``s3://aws_default@bucket/key``. If
            it ends with ``/``, the file's name is its id, percent-encoded.
        :param expected_sha256: the SHA-256 to verify, in hexadecimal digits; none by default.
        :param link: a link that was just created, to be used first.
        :returns: the file's path, size and SHA-256.
        :raises ConfigurationError: if neither the response nor the connection gives a download URL.
        :raises ChecksumError: if the SHA-256 differs.
        :raises RequestRejectedError: if the download's host rejects new links.
        """
        from airflow_provider_cloudstore.hooks.targets import atomic_write, resolve_target
        from airflow_provider_cloudstore.lineage import collect, of_download
        from airflow_provider_cloudstore.protocol.download_requests import Download

        download = Download(file_id, self.settings, expected_sha256=expected_sha256)
        path, name = resolve_target(target, download.file_id)
        with atomic_write(path) as sink:
            self._downloads().run(download, sink, link, on_retry=self.log.warning)
            file = download.result(name)
        collect(self, of_download(self.settings.base_url, file.file_id, file.path))
        return file

    def open_file(self, file_id: str, version: FileVersion | None = None) -> FileReader:
        """Open a file for random reads, in any number of threads, for the ``cloudstore://`` filesystem.

        :param file_id: the file.
        :param version: the version to read; None for the current one.
        :returns: a reader that knows the file's size.
        :raises NotFoundError: if there is no such file.
        :raises FileChangedError: if the file was replaced since it had ``version``.
        """
        from airflow_provider_cloudstore.hooks.file_reader import FileReader

        return FileReader(self._downloads(), file_id, self.settings, version, self.log.warning)

    def _downloads(self) -> DownloadClient:
        from airflow_provider_cloudstore.clients.streaming import DownloadClient

        return DownloadClient(
            self._http, self.create_download_link, time_left=lambda: time_budget(math.inf), count=count_download
        )

    def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """Check once whether a file is available: whether a download link for it can be created.

        :param file_id: the file.
        :returns: the link, or the error; :class:`~airflow_provider_cloudstore.protocol.waiting.FileWait` decides whether the
            error means "not yet".
        """
        return self._poll(file_id, time_budget())

    def _poll(self, file_id: str, seconds: float) -> DownloadLink | CloudStoreError:
        call = CreateDownloadLink(file_id, self.settings, max_attempts=1)
        try:
            return self._masked(self._perform(call, seconds))
        except CloudStoreError as error:
            return error

    def _masked(self, link: DownloadLink) -> DownloadLink:
        mask(self._masking.admit(link.secrets, self.log.warning))
        return link

    def test_connection(self) -> tuple[bool, str]:
        """Test the token with one request, within the timeout: a download link for a file that does not exist.

        The message does not name the connection: the Test button stores what the form shows under a temporary id.
        """
        self._is_tested = True
        try:
            works, message = self._test()
            return works, "\n".join([message, *self._warnings])
        finally:
            self._is_tested = False
            self.close()

    def _test(self) -> tuple[bool, str]:
        try:
            found = self._poll(MISSING_FILE_ID, self.settings.timeout)
        except CloudStoreError as error:
            found = error
        if isinstance(found, DownloadLink):
            return True, "The connection works: the service accepts the token."
        if isinstance(found, NotFoundError) and found.message and not found.inconclusive:
            return True, "The connection works: the service accepts the token (the requested file does not exist)."
        if found.message and (isinstance(found, ServiceError) or is_about_subject(found)):
            advice = "If this means that the requested file does not exist, set extra 'not_found_pattern' to match it."
            found = replace(found, advice=f"{advice} If it is about the token, check the password.")
        return False, str(replace(found, operation="connection test", subject=""))

    def _warn(self, warning: str) -> None:
        self.log.warning(warning)
        self._warnings.append(warning)

    def _perform(self, call: Call[T], seconds: float | None = None) -> T:
        with counted_requests(call):
            return self._http.perform(call, budget=time_budget() if seconds is None else seconds, on_retry=self.log.warning)

    def read_settings(self) -> Settings:
        """Read the Airflow connection, even if it was read before: its token may have been rotated.

        :raises ConfigurationError: if the connection is invalid.
        """
        self._warnings = []
        named = "" if self._is_tested else self.cloudstore_conn_id
        with _named_errors(self.cloudstore_conn_id, named):
            connection = self.get_connection(self.cloudstore_conn_id)
            self._settings = _settings_of(connection, named, self._warn)
        _ = connection.extra_dejson  # Airflow masks the secrets in it on access
        mask(self._settings.secrets)
        return self._settings


class CloudStoreAsyncHook(BaseHook):
    """The same operations for event loops: triggers, and tasks with many concurrent calls. Use it with ``async with``.

    All hooks of an event loop share what they read of a connection, and an HTTP session for each address. A connection in use
    is read again at most once a minute, and at once if the service rejects its token.

    Every method raises :class:`~airflow_provider_cloudstore.exceptions.CloudStoreError`; a permanent one is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    def __init__(self, cloudstore_conn_id: str = CloudStoreHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._open = AsyncExitStack()
        self._masking = MaskingLimit()
        self._connection: SharedConnection | None = None
        self._settings: Settings
        self._client: AsyncClient

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            self._open = opening
            connection = await opening.enter_async_context(shared_connection(self.cloudstore_conn_id, type(self)))
            await self._use(connection, await connection.open(self._read_settings))
            self._open, self._connection = opening.pop_all(), connection
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection = None
        await self._open.aclose()

    async def _use(self, connection: SharedConnection, settings: Settings) -> Settings:
        """Open the session for these settings; an earlier one may still have requests in flight."""
        from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session

        session = await self._open.enter_async_context(shared_session(settings))
        reload = partial(connection.after_rejection, settings, self._read_settings)
        self._settings, self._client = settings, AsyncClient(settings, reload, session)
        return settings

    async def _current(self) -> Settings:
        """The connection as last read, by whichever hook."""
        if self._connection is None:
            raise RuntimeError(
                "CloudStoreAsyncHook works only inside its context manager: async with CloudStoreAsyncHook() as hook: ..."
            )
        settings = self._connection.current(self._read_settings)
        return settings if settings is self._settings else await self._use(self._connection, settings)

    async def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """As :meth:`CloudStoreHook.delete_folder`."""
        return await self._perform(DeleteFolder(folder_id, await self._current(), ignore_missing=ignore_missing))

    async def upload_from_url(self, url: str, *, retry_unknown_outcome: bool = False) -> RemoteUpload:
        """As :meth:`CloudStoreHook.upload_from_url`."""
        call = UploadFromUrl(url, await self._current(), retry_unknown_outcome=retry_unknown_outcome)
        await amask(self._masking.admit(call.secrets, self.log.warning))
        return await self._perform(call)

    async def create_download_link(self, file_id: str) -> DownloadLink:
        """As :meth:`CloudStoreHook.create_download_link`."""
        link = await self._perform(CreateDownloadLink(file_id, await self._current()))
        await amask(self._masking.admit(link.secrets, self.log.warning))
        return link

    async def poll_file(self, file_id: str) -> CloudStoreError | None:
        """Check once whether a file is available; the link is discarded.

        :param file_id: the file.
        :returns: None if it is available, else the error.
        """
        call = CreateDownloadLink(file_id, await self._current(), max_attempts=1)
        try:
            await self._perform(call)
        except CloudStoreError as error:
            return error
        return None

    async def _perform(self, call: Call[T]) -> T:
        with counted_requests(call):
            return await self._client.perform(call, on_retry=self.log.warning)

    async def _read_settings(self, warned: set[str]) -> Settings:
        def warn(warning: str) -> None:
            if warning not in warned:
                warned.add(warning)
                self.log.warning(warning)

        with _named_errors(self.cloudstore_conn_id, self.cloudstore_conn_id):
            connection = await get_async_connection(self.cloudstore_conn_id, hook=self)
            settings = _settings_of(connection, self.cloudstore_conn_id, warn)
        await get_async_extra_dejson(connection)  # Airflow masks the secrets in it on access
        await amask(settings.secrets)
        return settings


@contextmanager
def _named_errors(conn_id: str, named: str) -> Iterator[None]:
    """Make errors name the connection, and say where to define or to correct one that Airflow does not find.

    :param named: its name in messages; empty if its id is a temporary one.
    """
    try:
        yield
        return
    except AirflowNotFoundException:
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        if os.environ.get(variable) and not named:
            reason, advice = "Airflow cannot parse the connection", "Check each field of the form."
        elif os.environ.get(variable):  # Airflow treats one that it cannot parse as missing
            reason = f"Airflow cannot parse the environment variable {variable}"
            advice = "It must be a URI, or a JSON object with no other keys than those of an Airflow connection."
        else:
            reason = "it is not defined"
            advice = f"Add it in Admin > Connections with type '{CONN_TYPE}', or set the environment variable {variable}."
    except ConfigurationError as error:
        reason, advice = error.reason, error.advice
    raise ConfigurationError(reason, operation="connection", subject=named, advice=advice) from None


def _settings_of(connection: Connection, named: str, warn: Callable[[str], None]) -> Settings:
    extra = read_extra(connection.extra)
    for warning in warnings_about(connection.conn_type, extra):
        warn(f"Connection '{named}' {warning}" if named else f"The connection {warning}")
    settings = Settings.from_connection(
        host=connection.host,
        schema=connection.schema,
        port=connection.port,
        password=connection.password,
        extra=extra,
    )
    settings = replace(settings, conn_id=named)
    if settings.proxy:
        return settings
    from airflow_provider_cloudstore.clients.proxies import environment_proxy

    return replace(settings, proxy=environment_proxy(settings.base_url), proxy_is_inherited=True)
