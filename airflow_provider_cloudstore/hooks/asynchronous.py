"""The hook for event loops. Users import it from ``hooks/cloudstore.py``, which defines the blocking hook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_cloudstore.compat import BaseHook
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.connection import amask, read_connection_async
from airflow_provider_cloudstore.protocol.finding import secrets_of
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.other_calls import OtherCall
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID
from airflow_provider_cloudstore.results import DownloadLink, FolderDeletion, RemoteUpload

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient


class _SharedClient:
    """The client that all hooks of an event loop share for one connection: the first user opens it, and the last one closes it.

    A triggerer reads connections over one channel, one at a time: if each of thousands of waits read the connection itself, the
    waits would never get to poll.
    """

    def __init__(self) -> None:
        self.users = 0
        self.opening = asyncio.Lock()
        self.client: AsyncClient | None = None


_shared: dict[tuple[asyncio.AbstractEventLoop, str], _SharedClient] = {}


class CloudStoreAsyncHook(BaseHook):
    """Performs the operations of :class:`CloudStoreHook` on an event loop: in triggers, and in tasks with many concurrent calls.

    Use it with ``async with``. All hooks of an event loop share the settings that they read from a connection, and one HTTP
    session for each connection. A connection in use is read again when the service rejects its token.

    Every method raises :class:`~airflow_provider_cloudstore.exceptions.CloudStoreError`; a permanent error is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    def __init__(self, cloudstore_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._shared: _SharedClient | None = None

    async def __aenter__(self) -> Self:
        self._shared = _shared.setdefault((asyncio.get_running_loop(), self.cloudstore_conn_id), _SharedClient())
        self._shared.users += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        shared, self._shared = self._shared, None
        if shared:
            shared.users -= 1
            if not shared.users:
                del _shared[asyncio.get_running_loop(), self.cloudstore_conn_id]
                if shared.client:
                    await shared.client.close()

    async def _client(self) -> AsyncClient:
        """Return the client of the connection; read the connection if no hook of this event loop has."""
        shared = self._shared
        if shared is None:
            raise RuntimeError(
                "CloudStoreAsyncHook works only inside its context manager: async with CloudStoreAsyncHook() as hook: ..."
            )
        async with shared.opening:
            if shared.client is None:
                from airflow_provider_cloudstore.clients.asynchronous import AsyncClient

                settings = await read_connection_async(self.cloudstore_conn_id)
                renew = partial(read_connection_async, self.cloudstore_conn_id)
                shared.client = await AsyncClient(settings, renew).__aenter__()
        return shared.client

    async def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """See :meth:`CloudStoreHook.delete_folder`."""
        client = await self._client()
        return await client.perform(DeleteFolder(client.settings, folder_id, ignore_missing=ignore_missing))

    async def upload_from_url(
        self, url: str, parameters: Mapping[str, str | int] | None = None, *, retry_unknown_outcome: bool = False
    ) -> RemoteUpload:
        """See :meth:`CloudStoreHook.upload_from_url`."""
        client = await self._client()
        operation = UploadFromUrl(client.settings, url, parameters, retry_unknown_outcome=retry_unknown_outcome)
        await amask(operation.secrets)
        return await client.perform(operation)

    async def create_download_link(self, file_id: str) -> DownloadLink:
        """See :meth:`CloudStoreHook.create_download_link`."""
        client = await self._client()
        link = await client.perform(CreateDownloadLink(client.settings, file_id))
        await amask(secrets_of(link))
        return link

    async def request(
        self, method: str, path: str, parameters: Mapping[str, str | int] | None = None, *, idempotent: bool = False
    ) -> Any:
        """See :meth:`CloudStoreHook.request`."""
        client = await self._client()
        operation = OtherCall(client.settings, method, path, parameters or {}, idempotent=idempotent)
        await amask(operation.secrets)
        return await client.perform(operation)

    async def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """See :meth:`CloudStoreHook.poll_file`. This method also returns an error of the connection, and does not mask the token.

        The token needs no mask, because a trigger discards the link; masking thousands of tokens would block the triggerer.
        """
        try:
            client = await self._client()
            return await client.perform(CreateDownloadLink(client.settings, file_id), max_attempts=1)
        except CloudStoreError as error:
            return error
