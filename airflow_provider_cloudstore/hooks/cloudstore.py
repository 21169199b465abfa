"""The hooks, which perform the service's operations with an Airflow connection: one for workers, and one for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_provider_cloudstore.compat import BaseHook, form_widgets
from airflow_provider_cloudstore.exceptions import TASK_ENDED, CloudStoreError, NotFoundError
from airflow_provider_cloudstore.hooks.connection import (
    amask,
    exchange_keys,
    mask,
    read_connection,
    read_connection_async,
)
from airflow_provider_cloudstore.protocol.authorize import Authorize
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.custom_call import CustomCall
from airflow_provider_cloudstore.protocol.http import TransportFailure
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.settings import CONN_TYPE, NO_TOKEN, Settings
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID, UI_FIELD_BEHAVIOUR, connection_form
from airflow_provider_cloudstore.results import DownloadedFile, DownloadLink, FolderDeletion, RemoteUpload

if TYPE_CHECKING:
    import requests

    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
    from airflow_provider_cloudstore.clients.blocking import BlockingClient

T = TypeVar("T")

MISSING_FILE_ID = "airflow-connection-test"
"""The id of a file that does not exist, for the connection test and the doctor."""


class CloudStoreHook(BaseHook):
    """Deletes folders, queues remote uploads and creates download links, with an Airflow connection.

    The connection is read on first use, and once more if the service rejects its token. All calls and downloads of a hook share
    an HTTP session; use the hook as a context manager for many calls. Threads may share it, too.

    Every method raises :class:`~airflow_provider_cloudstore.exceptions.CloudStoreError`; a permanent error is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    conn_name_attr = "cloudstore_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = "CloudStore"
    _opening = threading.RLock()  # of the class, so that hooks can be copied

    def __init__(self, cloudstore_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._client: BlockingClient | None = None

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how the connection form shows its standard fields (Airflow before 3.2)."""
        return {key.replace("-", "_"): value for key, value in UI_FIELD_BEHAVIOUR.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the additional fields of the connection form (Airflow before 3.2)."""
        return form_widgets(connection_form())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP session and discard the adapters mounted on it; the next call opens a new session."""
        if self._client:
            self._client.close()
        self._client = None

    def get_conn(self) -> requests.Session:
        """Return the HTTP session over which the hook sends its calls and downloads.

        The hook adds the token to its own requests only; your requests carry no token. They use the connection's proxy and
        certificates unless you pass others, follow no redirects, keep no cookies, and have no timeout unless you pass it. The
        guards of methods such as :meth:`delete_folder` do not apply to them. An adapter that you mount, and the history of a
        mock, can see the token of the hook's requests.

        :raises ConfigurationError: if the connection is invalid.
        """
        return self._http.session

    @property
    def _http(self) -> BlockingClient:
        from airflow_provider_cloudstore.clients.blocking import BlockingClient

        with self._opening:
            self._client = self._client or BlockingClient(self.read_settings(), self.renew_settings)
            return self._client

    @property
    def settings(self) -> Settings:
        """The settings from the Airflow connection, as last read. If it has keys, the first call asks for a token.

        :raises ConfigurationError: if the connection is invalid.
        """
        return self._http.settings

    def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """Delete a folder and its contents permanently (``POST /folder/delete``).

        :param folder_id: the folder; an empty, missing or protected id is rejected before anything is sent.
        :param ignore_missing: return normally if the folder does not exist; the result's ``existed`` is then False.
        :returns: the folder, the time of the request, and the response.
        :raises NotFoundError: if there is no such folder.
        """
        return _perform(self._http, DeleteFolder, folder_id, ignore_missing=ignore_missing)

    def upload_from_url(
        self, url: str, parameters: Mapping[str, str | int] | None = None, *, retry_unknown_outcome: bool = False
    ) -> RemoteUpload:
        """Queue an upload that the service later fetches from a URL (``POST /file/url_upload_add``).

        :param url: an absolute URL with scheme http, https or ftp. Its credentials (user info, query) are never logged.
        :param parameters: more form fields of the upload: a string or an integer by name, such as ``{"folder_id": "42"}``.
        :param retry_unknown_outcome: resend an upload that may have been queued; the service may then hold the file twice.
        :returns: the redacted URL, the time of the request, the response, and the file's id if the response has it.
        :raises OutcomeUnknownError: if the upload may have been queued, and you did not opt in to resending.
        """
        return _perform(self._http, UploadFromUrl, url, parameters, retry_unknown_outcome=retry_unknown_outcome)

    def create_download_link(self, file_id: str) -> DownloadLink:
        """Create a time-limited download token for a file (``GET /file/download``).

        :param file_id: the file.
        :returns: the token, and its URL and expiry if the response has them.
        :raises InvalidResponseError: if the service's response has no token.
        """
        return _perform(self._http, CreateDownloadLink, file_id)

    def request(
        self, method: str, path: str, parameters: Mapping[str, str | int] | None = None, *, idempotent: bool = False
    ) -> Any:
        """Send a call that this package has no method for, such as ``hook.request("POST", "/file/rename", {...})``.

        The call goes to ``path`` below the service's ``api_path``, with the connection's token. Errors, retries and masking are
        those of the other methods. Messages show the value of the first parameter, unless it is a credential.

        :param method: ``GET`` or ``POST``.
        :param path: the path below ``api_path``: segments of letters, digits, ``_`` and ``-``.
        :param parameters: strings or integers by name.
        :param idempotent: resend a POST whose outcome is unknown: it may run twice. A GET is always resent.
        :returns: the parsed JSON body, or its text if it is not JSON; None if it is empty. Credentials in it are ``***``.
        :raises InvalidInputError: if the call cannot be sent, or if the hook has a method for it, such as :meth:`delete_folder`.
        :raises OutcomeUnknownError: if a POST may have been carried out.
        """
        return _perform(self._http, CustomCall, method, path, parameters, idempotent=idempotent)

    def download(self, file_id: str, target: Any, *, expected_sha256: str | None = None) -> DownloadedFile:
        """Download a file. A broken download resumes with a new link. Links are neither logged nor stored.

        The target is complete or absent: a failed or killed download leaves it unchanged. The download URL is taken from the
        service's response, or else from the connection's extra ``download_url``.

        :param file_id: the file.
        :param target: a local path, or a path for Airflow's ``ObjectStoragePath``, such as ``s3://aws_default@bucket/key``. If
            it ends with ``/``, the file is named after its id, percent-encoded.
        :param expected_sha256: the SHA-256 that the file must have, in hexadecimal digits; None skips this check.
        :returns: the file's path, the name that its host gave it, its size and SHA-256.
        :raises ConfigurationError: if neither the response nor the connection gives a download URL.
        :raises ChecksumError: if the SHA-256 differs.
        :raises TransientServiceError: if the download's host fails, or rejects new links.
        :raises OSError: or another error of the target's store, if the file cannot be written.
        """
        return _download(self._http, file_id, target, expected_sha256)

    def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """Check once whether a file is available, and return its link, or the error by which a wait goes on or ends."""
        try:
            return _perform(self._http, CreateDownloadLink, file_id, max_attempts=1)
        except CloudStoreError as error:
            return error

    def test_connection(self) -> tuple[bool, str]:
        """Test the token with one request, within the timeout: ask for a link to a file that does not exist.

        The message does not name the connection, because the Test button stores the form's values under a temporary id.
        """
        from airflow_provider_cloudstore.clients.blocking import BlockingClient

        works, lines = True, ["The connection works: the service creates links."]
        try:
            settings = replace(self.read_settings(), conn_id="")
            lines += [f"The connection {warning}" for warning in settings.warnings]
            with BlockingClient(settings, partial(exchange_keys, settings)) as client:
                client.perform(CreateDownloadLink(settings, MISSING_FILE_ID), max_attempts=1)
        except CloudStoreError as error:
            works = isinstance(error, NotFoundError) and bool(error.message)  # a front end's 404 has no words of a service
            words = f"The connection works if this is what the service says of a file that does not exist: {error.message}"
            lines[0] = f"{words}\nOtherwise, check the host (base URL) and extra 'api_path'."
            if not works:
                lines[0] = str(replace(error, operation="connection test", subject=""))
        return works, "\n".join(lines)

    def renew_settings(self) -> Settings:
        """Read the Airflow connection again, and get a new token if it has keys."""
        return exchange_keys(self.read_settings())

    def read_settings(self) -> Settings:
        """Read the Airflow connection, even if it was read before.

        :raises ConfigurationError: if the connection is invalid.
        """
        return read_connection(self.cloudstore_conn_id, self.get_connection)


def _perform(
    client: BlockingClient, kind: Callable[..., Operation[T]], *arguments: Any, max_attempts: int = 0, **options: Any
) -> T:
    """Perform an operation, and mask the credentials in its arguments and its result.

    :raises OutcomeUnknownError: also if Airflow ends the task during a call that must not be repeated, so that it is not retried.
    """
    operation = kind(client.settings, *arguments, **options)
    mask(operation.secrets)
    try:
        result = client.perform(operation, max_attempts=max_attempts)
        mask(operation.secrets_of(result))
        return result
    except TASK_ENDED as error:
        if operation.may_be_repeated:
            raise
        ended = TransportFailure(sent=True, reason=f"the task ended with {type(error).__name__}")
        raise Attempt(operation, client.settings).without_response(ended) from None


def _download(client: BlockingClient, file_id: str, target: Any, expected_sha256: str | None) -> DownloadedFile:
    from airflow_provider_cloudstore.clients.streaming import stream
    from airflow_provider_cloudstore.protocol.download_requests import Download
    from airflow_provider_cloudstore.stores import atomic_write, resolve_target

    def create_link(file_id: str) -> DownloadLink:
        return _perform(client, CreateDownloadLink, file_id)

    download = Download(file_id, client.settings, expected_sha256=expected_sha256)
    path, path_text = resolve_target(target, download.file_id)
    with atomic_write(path) as file:
        return stream(client, download, file, path_text, create_link)


@dataclass(slots=True)
class _SharedClient:
    """The client that all hooks of an event loop share for one connection: the first user opens it, and the last one closes it.

    A triggerer reads connections one at a time: thousands of waits that each read theirs would never get to poll.
    """

    users: int = 0
    client: AsyncClient | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


_clients: dict[tuple[asyncio.AbstractEventLoop, str], _SharedClient] = {}


class CloudStoreAsyncHook(BaseHook):
    """Performs the operations of :class:`CloudStoreHook` on an event loop: in triggers, and in tasks with many concurrent calls.

    Use it with ``async with``. All hooks of an event loop share the settings that they read from a connection, and one HTTP
    session for each connection. A connection in use is read again when the service rejects its token.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    def __init__(self, cloudstore_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._shared: _SharedClient | None = None

    async def __aenter__(self) -> Self:
        self._shared = _clients.setdefault((asyncio.get_running_loop(), self.cloudstore_conn_id), _SharedClient())
        self._shared.users += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        shared, self._shared = self._shared, None
        if shared:
            shared.users -= 1
            if not shared.users:
                del _clients[asyncio.get_running_loop(), self.cloudstore_conn_id]
                if shared.client:
                    await shared.client.close()

    async def _open_client(self) -> AsyncClient:
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
                shared.client = await AsyncClient(settings, self._renew).__aenter__()
        return shared.client

    async def _renew(self) -> Settings:
        from airflow_provider_cloudstore.clients.asynchronous import AsyncClient

        settings = await read_connection_async(self.cloudstore_conn_id)
        if not settings.keys:
            return settings
        async with AsyncClient(settings) as client:
            return await _perform_async(client, Authorize)

    async def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """See :meth:`CloudStoreHook.delete_folder`."""
        return await _perform_async(await self._open_client(), DeleteFolder, folder_id, ignore_missing=ignore_missing)

    async def upload_from_url(
        self, url: str, parameters: Mapping[str, str | int] | None = None, *, retry_unknown_outcome: bool = False
    ) -> RemoteUpload:
        """See :meth:`CloudStoreHook.upload_from_url`."""
        client = await self._open_client()
        return await _perform_async(client, UploadFromUrl, url, parameters, retry_unknown_outcome=retry_unknown_outcome)

    async def create_download_link(self, file_id: str) -> DownloadLink:
        """See :meth:`CloudStoreHook.create_download_link`."""
        return await _perform_async(await self._open_client(), CreateDownloadLink, file_id)

    async def request(
        self, method: str, path: str, parameters: Mapping[str, str | int] | None = None, *, idempotent: bool = False
    ) -> Any:
        """See :meth:`CloudStoreHook.request`."""
        return await _perform_async(await self._open_client(), CustomCall, method, path, parameters, idempotent=idempotent)

    async def download(self, file_id: str, target: Any, *, expected_sha256: str | None = None) -> DownloadedFile:
        """See :meth:`CloudStoreHook.download`. It runs in a thread, and begins with the token of the other calls."""
        from airflow_provider_cloudstore.clients.blocking import BlockingClient

        client = await self._open_client()
        await client.renew(NO_TOKEN)
        # The thread renews a token itself: if the task ends meanwhile, no loop would answer it.
        with BlockingClient(client.settings, CloudStoreHook(self.cloudstore_conn_id).renew_settings) as blocking:
            return await asyncio.to_thread(_download, blocking, file_id, target, expected_sha256)

    async def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """See :meth:`CloudStoreHook.poll_file`.

        The token is not masked: a trigger discards the link, and masking thousands of tokens would block the triggerer.
        """
        try:
            client = await self._open_client()
            return await client.perform(CreateDownloadLink(client.settings, file_id), max_attempts=1)
        except CloudStoreError as error:
            return error


async def _perform_async(client: AsyncClient, kind: Callable[..., Operation[T]], *arguments: Any, **options: Any) -> T:
    """Perform an operation, and mask the credentials in its arguments and its result."""
    operation = kind(client.settings, *arguments, **options)
    await amask(operation.secrets)
    result = await client.perform(operation)
    await amask(operation.secrets_of(result))
    return result
