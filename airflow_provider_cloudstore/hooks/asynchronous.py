"""The hook for event loops. Users import it from ``hooks/cloudstore.py``, which defines the blocking hook."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_provider_cloudstore.compat import BaseHook
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.connection import SharedConnection, amask, shared_connection
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
    """Performs the operations of :class:`CloudStoreHook` on an event loop: in triggers, and in tasks with many concurrent calls.

    Use it with ``async with``. All hooks of an event loop share the settings that they read from a connection, and one HTTP
    session for each address. A connection in use is read again when the service rejects its token.

    Every method raises :class:`~airflow_provider_cloudstore.exceptions.CloudStoreError`; a permanent error is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    def __init__(self, cloudstore_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._sessions = AsyncExitStack()
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
        """Return the connection's settings as last read by any hook of this event loop."""
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
        """See :meth:`CloudStoreHook.delete_folder`."""
        return await self._perform(DeleteFolder(await self._current(), folder_id, ignore_missing=ignore_missing))

    async def upload_from_url(
        self, url: str, parameters: Mapping[str, str | int] | None = None, *, retry_unknown_outcome: bool = False
    ) -> RemoteUpload:
        """See :meth:`CloudStoreHook.upload_from_url`."""
        operation = UploadFromUrl(await self._current(), url, parameters, retry_unknown_outcome=retry_unknown_outcome)
        await amask(operation.secrets)
        return await self._perform(operation)

    async def create_download_link(self, file_id: str) -> DownloadLink:
        """See :meth:`CloudStoreHook.create_download_link`."""
        link = await self._perform(CreateDownloadLink(await self._current(), file_id))
        await amask(secrets_of(link))
        return link

    async def request(
        self, method: str, path: str, parameters: Mapping[str, str | int] | None = None, *, idempotent: bool = False
    ) -> Any:
        """See :meth:`CloudStoreHook.request`."""
        operation = OtherCall(await self._current(), method, path, parameters or {}, idempotent=idempotent)
        await amask(operation.secrets)
        return await self._perform(operation)

    async def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """See :meth:`CloudStoreHook.poll_file`. This method also returns an error of the connection, and does not mask the token.

        The token needs no mask, because a trigger discards the link; masking thousands of tokens would block the triggerer.
        """
        try:
            return await self._perform(CreateDownloadLink(await self._current(), file_id), max_attempts=1)
        except CloudStoreError as error:
            return error

    async def _perform(self, operation: Operation[T], max_attempts: int | None = None) -> T:
        return await self._client.perform(operation, max_attempts=max_attempts)
