"""The hook for event loops. Users import it from ``hooks/cloudstore.py``, where its blocking twin is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_provider_cloudstore.compat import BaseHook
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.connection import MaskingLimit, SharedConnection, shared_connection
from airflow_provider_cloudstore.protocol.finding import secrets_of
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.other_calls import OtherCall
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID
from airflow_provider_cloudstore.results import DownloadLink, FolderDeletion, RemoteUpload

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient

T = TypeVar("T")


class CloudStoreAsyncHook(BaseHook):
    """The same operations for event loops: triggers, and tasks with many concurrent calls. Use it with ``async with``.

    All hooks of an event loop share what they read of a connection, and an HTTP session for each address. A connection in use
    is read again at most once a minute, and at once if the service rejects its token.

    Every method raises :class:`~airflow_provider_cloudstore.exceptions.CloudStoreError`; a permanent one is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    def __init__(self, cloudstore_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._sessions = AsyncExitStack()
        self._masking = MaskingLimit()
        self._connection: SharedConnection | None = None
        self._settings: Settings | None = None
        self._client: AsyncClient

    async def __aenter__(self) -> Self:
        self._connection = shared_connection(self.cloudstore_conn_id)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._connection = self._settings = None
        await self._sessions.aclose()

    async def _current(self) -> Settings:
        """The connection as last read, by whichever hook."""
        if self._connection is None:
            raise RuntimeError(
                "CloudStoreAsyncHook works only inside its context manager: async with CloudStoreAsyncHook() as hook: ..."
            )
        settings = await self._connection.settings()
        if settings is not self._settings:
            from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session

            # An earlier session stays open: it may still have requests in flight.
            session = await self._sessions.enter_async_context(shared_session(settings))
            self._settings = settings
            self._client = AsyncClient(settings, self._connection.after_rejection, session)
        return settings

    async def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """As :meth:`CloudStoreHook.delete_folder`."""
        return await self._perform(DeleteFolder(await self._current(), folder_id, ignore_missing=ignore_missing))

    async def upload_from_url(
        self, url: str, parameters: Mapping[str, str | int] | None = None, *, retry_unknown_outcome: bool = False
    ) -> RemoteUpload:
        """As :meth:`CloudStoreHook.upload_from_url`."""
        operation = UploadFromUrl(await self._current(), url, parameters, retry_unknown_outcome=retry_unknown_outcome)
        await self._masking.amask(operation.secrets)
        return await self._perform(operation)

    async def create_download_link(self, file_id: str) -> DownloadLink:
        """As :meth:`CloudStoreHook.create_download_link`."""
        link = await self._perform(CreateDownloadLink(await self._current(), file_id))
        await self._masking.amask(secrets_of(link))
        return link

    async def request(
        self, method: str, path: str, parameters: Mapping[str, str | int] | None = None, *, idempotent: bool = False
    ) -> Any:
        """As :meth:`CloudStoreHook.request`."""
        operation = OtherCall(await self._current(), method, path, parameters or {}, idempotent=idempotent)
        await self._masking.amask(operation.secrets)
        return await self._perform(operation)

    async def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """As :meth:`CloudStoreHook.poll_file`. An error of the connection is returned, too; the token is not masked.

        A trigger discards the link, and masking thousands of tokens would block the triggerer.
        """
        try:
            return await self._perform(CreateDownloadLink(await self._current(), file_id), max_attempts=1)
        except CloudStoreError as error:
            return error

    async def _perform(self, operation: Operation[T], max_attempts: int | None = None) -> T:
        return await self._client.perform(operation, max_attempts=max_attempts)
