"""Holds the Airflow connection and its token, so that nobody else has to.

Here the protocol's errors become Airflow's: a permanent one is also an ``AirflowFailException``, on which no retry is spent.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary

from airflow.providers.common.compat.connection import get_async_connection, get_async_extra_dejson
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowNotFoundException, BaseHook, Connection, mask_secret

from airflow_provider_cloudstore.metrics import counted_requests
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.errors import (
    BadRequestError,
    CloudStoreError,
    ConfigurationError,
    NotFoundError,
    ServiceError,
    restore,
)
from airflow_provider_cloudstore.protocol.proxies import environment_proxy
from airflow_provider_cloudstore.protocol.results import DownloadedFile, DownloadLink, FolderDeletion, RemoteUpload
from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms
from airflow_provider_cloudstore.protocol.settings import CONN_TYPE, Settings, read_extra, warnings_about
from airflow_provider_cloudstore.provider_info import CONN_FIELDS, UI_FIELD_BEHAVIOUR

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
    from airflow_provider_cloudstore.clients.blocking import BlockingClient
    from airflow_provider_cloudstore.clients.downloads import FileReader

T = TypeVar("T")

_MAX_MASKED = 50
"""URLs and links of one hook that are registered for masking: Airflow's masker compiles all its secrets anew for each one."""


@dataclass(slots=True)
class _Masking:
    """How many links and source URLs a hook has had masked, so that hundreds of calls do not wait for Airflow's masker.

    :param count: how many calls it was asked for.
    """

    count: int = 0

    def admit(self, secrets: Iterable[Secret], warn: Callable[[str], None]) -> Iterable[Secret]:
        """The secrets of a call if they are to be masked, else nothing.

        :param secrets: what gives access in its source URL, or its link.
        :param warn: is given one line at the first call whose secrets are not.
        """
        self.count += 1
        if self.count == _MAX_MASKED + 1:
            warn(
                f"Airflow masks the links and source URLs of the first {_MAX_MASKED} calls of a hook only, because its masker "
                "slows every log line and every call down with each further secret. Do not log or print those of later calls"
            )
        return secrets if self.count <= _MAX_MASKED else ()


class CloudStoreHook(BaseHook):
    """Deletes folders, queues remote uploads and creates download links, with an Airflow connection.

    The connection is read when it is first needed, and once more if its token is refused. Keep one hook for many calls, as a
    context manager, and they share one HTTP connection.

    Every method raises :class:`~airflow_provider_cloudstore.protocol.errors.CloudStoreError`; a permanent one is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    conn_name_attr = "cloudstore_conn_id"
    default_conn_name = "cloudstore_default"
    conn_type = CONN_TYPE
    hook_name = "Cloud file storage service"

    def __init__(self, cloudstore_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._client: BlockingClient | None = None
        self._settings: Settings | None = None
        self._masking = _Masking()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """How the connection form shows the standard fields (Airflow before 3.2)."""
        return {key.replace("-", "_"): value for key, value in UI_FIELD_BEHAVIOUR.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """The connection form's own fields (Airflow before 3.2)."""
        from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
        from wtforms import BooleanField, PasswordField, StringField

        def widget(field: dict[str, Any]) -> Any:
            if "boolean" in field["schema"]["type"]:
                return BooleanField(field["label"], description=field["description"])
            hidden = field["schema"].get("format") == "password"
            kind, looks = (PasswordField, BS3PasswordFieldWidget) if hidden else (StringField, BS3TextFieldWidget)
            return kind(field["label"], widget=looks(), description=field["description"])

        return {name: widget(field) for name, field in CONN_FIELDS.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP connection; the next call opens a new one."""
        if self._client:
            self._client.close()
        self._client = None
        self._settings = None

    def get_conn(self) -> BlockingClient:
        """The client that the methods below use; it is opened when first asked for.

        :raises ConfigurationError: if the Airflow connection is not usable.
        """
        if self._client is None:
            from airflow_provider_cloudstore.clients.blocking import BlockingClient

            self._client = BlockingClient(self.settings, self.read_settings)
        return self._client

    @property
    def settings(self) -> Settings:
        """What the Airflow connection says.

        :raises ConfigurationError: if it is not usable.
        """
        if self._settings is None:
            with airflow_errors():
                return self.read_settings()
        return self._settings

    def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """Delete a folder and its contents permanently (API document, section 4.1).

        :param folder_id: the folder; an empty, missing or protected id is rejected before anything is sent.
        :param ignore_missing: return normally if the folder does not exist; the result's ``existed`` is then False.
        :returns: what was deleted, when, and what the service said.
        :raises NotFoundError: if there is no such folder.
        """
        with airflow_errors():
            return self._perform(DeleteFolder(folder_id, self.settings, ignore_missing=ignore_missing))

    def upload_from_url(self, url: str, *, retry_unknown_outcome: bool = False) -> RemoteUpload:
        """Queue an upload that the service later fetches from a URL (API document, section 4.2).

        :param url: an absolute URL with scheme http, https or ftp. Its credentials (user info, query) are never shown.
        :param retry_unknown_outcome: resend an upload that may have been queued; the service may then hold the file twice.
        :returns: what was queued, when, what the service said, and the file's id if the response has one.
        :raises OutcomeUnknownError: if it may have been queued, and you did not opt in to resending.
        """
        from airflow_provider_cloudstore.lineage import collect
        from airflow_provider_cloudstore.protocol.lineage import of_upload

        with airflow_errors():
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
        with airflow_errors():
            link = self._perform(CreateDownloadLink(file_id, self.settings))
        mask(self._masking.admit(link.secrets, self.log.warning))
        return link

    def download(
        self, file_id: str, target: Any, *, expected_sha256: str | None = None, link: DownloadLink | None = None
    ) -> DownloadedFile:
        """Download a file. No link leaves this process; a broken download resumes, and an expired link is replaced.

        The target is complete or absent: a failed or killed download leaves it unchanged. The download URL is taken from the
        service's response, or else from the connection's extra ``download_url``.

        :param file_id: the file.
        :param target: a local path, or a path for Airflow's ``ObjectStoragePath``, such as ``s3://aws_default@bucket/key``.
        :param expected_sha256: the SHA-256 to verify, in hexadecimal digits; none by default.
        :param link: a link that was just created, to be used first.
        :returns: where the file is, its size and its SHA-256.
        :raises ConfigurationError: if neither the response nor the connection gives a download URL.
        :raises ChecksumError: if the SHA-256 differs.
        :raises DownloadLinkRejectedError: if the download's host refuses new links, too.
        """
        from airflow_provider_cloudstore.clients.downloads import DownloadClient
        from airflow_provider_cloudstore.hooks.targets import atomic_write, resolve_target
        from airflow_provider_cloudstore.lineage import collect
        from airflow_provider_cloudstore.protocol.downloads import Download
        from airflow_provider_cloudstore.protocol.lineage import of_download

        with airflow_errors():
            download = Download(file_id, self.settings, expected_sha256=expected_sha256)
            path, shown = resolve_target(target)
            if link:
                download.use_link(link)
            with DownloadClient(self.settings, self.create_download_link) as client, atomic_write(path) as sink:
                client.run(download, sink, budget=_budget(math.inf), on_retry=self.log.warning)
                file = download.result(shown)
        collect(self, of_download(self.settings.base_url, file.file_id, file.path))
        return file

    def open_file(self, file_id: str) -> FileReader:
        """Open a file for reading in parts; the filesystem ``cloudstore://`` reads with it.

        :param file_id: the file.
        :returns: a reader that knows the file's size.
        :raises NotFoundError: if there is no such file.
        """
        from airflow_provider_cloudstore.clients.downloads import DownloadClient, FileReader
        from airflow_provider_cloudstore.protocol.downloads import Download

        with airflow_errors():
            client = DownloadClient(self.settings, self.create_download_link)
            return FileReader(client, Download(file_id, self.settings), self.log.warning)

    def poll_file(self, file_id: str) -> DownloadLink | CloudStoreError:
        """Poll once whether a file is available, which it is when a link for it can be created.

        :param file_id: the file.
        :returns: the link, or the error that says why there is none; whether it means "not yet" is decided by
            :class:`~airflow_provider_cloudstore.protocol.waiting.FileWait`.
        """
        with airflow_errors():
            call = CreateDownloadLink(file_id, self.settings)
        return self._poll_within(call, time_budget())

    def _poll_within(self, call: CreateDownloadLink, seconds: float) -> DownloadLink | CloudStoreError:
        ends_at = time.monotonic() + seconds
        found = self._poll_once(call, seconds)
        if call.token_rejected:  # once more, with the token that the connection holds now
            found = self._poll_once(call, ends_at - time.monotonic())
        return found

    def _poll_once(self, call: CreateDownloadLink, seconds: float) -> DownloadLink | CloudStoreError:
        try:
            with counted_requests(call):
                link = self.get_conn().attempt(call, seconds)
        except CloudStoreError as error:
            return error
        mask(self._masking.admit(link.secrets, self.log.warning))
        return link

    def test_connection(self) -> tuple[bool, str]:
        """Whether the service accepts the token: one request for a link to a file that does not exist, within the timeout."""
        try:
            found = self._poll_within(CreateDownloadLink("airflow-connection-test", self.settings), self.settings.timeout)
        except CloudStoreError as error:
            found = error
        if isinstance(found, DownloadLink):
            return True, "The connection works: the service accepts the token."
        if isinstance(found, NotFoundError) and found.message:
            return True, "The connection works: the service accepts the token (it was asked for a file that does not exist)."
        if isinstance(found, (BadRequestError, ServiceError)) and found.message:
            return True, (
                f"The connection works: the service answered a request for a file that does not exist with {found.reason}. "
                "If that message is about the token, check the password."
            )
        return False, str(found)

    def _perform(self, call: Call[T]) -> T:
        with counted_requests(call):
            return self.get_conn().perform(call, budget=time_budget(), on_retry=self.log.warning)

    def read_settings(self) -> Settings:
        """Read the Airflow connection, again if it was read before: its token may have been rotated.

        :raises ConfigurationError: if it is not usable.
        """
        with _missing_connection(self.cloudstore_conn_id):
            connection = self.get_connection(self.cloudstore_conn_id)
        self._settings = settings_of(connection, self.log.warning)
        _ = connection.extra_dejson  # it masks what Airflow takes for secret in it
        mask(self._settings.secrets)
        return self._settings


class CloudStoreAsyncHook(BaseHook):
    """The same for event loops: triggers, and tasks that do many calls at once. Use it with ``async with``.

    All hooks of one event loop that lead to the same address share one HTTP session.

    Every method raises :class:`~airflow_provider_cloudstore.protocol.errors.CloudStoreError`; a permanent one is also an
    ``AirflowFailException``.

    :param cloudstore_conn_id: the Airflow connection of type ``cloudstore``.
    """

    def __init__(self, cloudstore_conn_id: str = CloudStoreHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id
        self._open = AsyncExitStack()
        self._masking = _Masking()
        self._settings: Settings
        self._client: AsyncClient

    def __getattr__(self, name: str) -> Any:
        if name in ("_settings", "_client"):
            raise RuntimeError(
                "CloudStoreAsyncHook is used inside its context manager only: async with CloudStoreAsyncHook() as hook: ..."
            )
        raise AttributeError(name)

    async def __aenter__(self) -> Self:
        from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session

        with airflow_errors():
            read = _read.setdefault(asyncio.get_running_loop(), {})
            at, recent = read.get(self.cloudstore_conn_id, (-math.inf, None))
            if recent is None or time.monotonic() - at > _READ_FOR_SECONDS:
                recent = await self._read_settings()
            self._settings = recent
            session = await self._open.enter_async_context(shared_session(self._settings))
        self._client = AsyncClient(self._settings, self._read_settings, session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name in ("_client", "_settings"):  # whoever calls it from now on is told so
            vars(self).pop(name, None)
        await self._open.aclose()

    async def delete_folder(self, folder_id: str, *, ignore_missing: bool = False) -> FolderDeletion:
        """As :meth:`CloudStoreHook.delete_folder`."""
        with airflow_errors():
            return await self._perform(DeleteFolder(folder_id, self._settings, ignore_missing=ignore_missing))

    async def upload_from_url(self, url: str, *, retry_unknown_outcome: bool = False) -> RemoteUpload:
        """As :meth:`CloudStoreHook.upload_from_url`."""
        with airflow_errors():
            call = UploadFromUrl(url, self._settings, retry_unknown_outcome=retry_unknown_outcome)
            await amask(self._masking.admit(call.secrets, self.log.warning))
            return await self._perform(call)

    async def create_download_link(self, file_id: str) -> DownloadLink:
        """As :meth:`CloudStoreHook.create_download_link`."""
        with airflow_errors():
            link = await self._perform(CreateDownloadLink(file_id, self._settings))
        await amask(self._masking.admit(link.secrets, self.log.warning))
        return link

    async def poll_file(self, file_id: str) -> CloudStoreError | None:
        """Poll once whether a file is available; the link that proves it is discarded.

        :param file_id: the file.
        :returns: None if it is available, else the error that says why there is no link.
        """
        call = CreateDownloadLink(file_id, self._settings)
        missing = await self._poll_once(call)
        if call.token_rejected:  # once more, with the token that the connection holds now
            missing = await self._poll_once(call)
        return missing

    async def _poll_once(self, call: CreateDownloadLink) -> CloudStoreError | None:
        # One attempt and no retry policy: the pauses between two looks are the waiting's.
        try:
            with counted_requests(call):
                await self._client.attempt(call)
        except CloudStoreError as error:
            return error
        return None

    async def _perform(self, call: Call[T]) -> T:
        with counted_requests(call):
            return await self._client.perform(call, on_retry=self.log.warning)

    async def _read_settings(self) -> Settings:
        with _missing_connection(self.cloudstore_conn_id):
            connection = await get_async_connection(self.cloudstore_conn_id, hook=self)
        self._settings = settings_of(connection, self.log.warning)
        await get_async_extra_dejson(connection)  # it masks what Airflow takes for secret in it
        await amask(self._settings.secrets)
        _read.setdefault(asyncio.get_running_loop(), {})[self.cloudstore_conn_id] = time.monotonic(), self._settings
        return self._settings


_READ_FOR_SECONDS = 10.0
_read: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, tuple[float, Settings]]] = WeakKeyDictionary()
"""The connections that were read in each event loop, and when: a thousand triggers that start together read theirs once. A token
that the service refuses is read anew whatever stands here."""


@contextmanager
def _missing_connection(conn_id: str) -> Iterator[None]:
    """Make Airflow's error for a connection that is not defined one of ours, which says where to define it."""
    try:
        yield
        return
    except AirflowNotFoundException:
        pass
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    raise ConfigurationError(
        f"it is not defined: add it in Admin > Connections with type '{CONN_TYPE}', or set the environment variable {variable}",
        operation="connection",
        subject=conn_id,
    )


def settings_of(connection: Connection, warn: Callable[[str], None]) -> Settings:
    """The settings in an Airflow connection, for both hooks.

    :param connection: the connection.
    :param warn: is given one line for each thing in it that is likely a mistake.
    :raises ConfigurationError: if it is not usable.
    """
    try:
        return _settings_of(connection, warn)
    except ConfigurationError as error:
        what = error.reason
    raise ConfigurationError(what, operation="connection", subject=connection.conn_id or "")


def _settings_of(connection: Connection, warn: Callable[[str], None]) -> Settings:
    extra = read_extra(connection.extra)
    for warning in warnings_about(connection.conn_type, extra):
        warn(f"Connection '{connection.conn_id}' {warning}")
    settings = Settings.from_connection(
        host=connection.host,
        schema=connection.schema,
        port=connection.port,
        password=connection.password,
        extra=extra,
    )
    if settings.proxy:
        return settings
    return replace(settings, proxy=environment_proxy(settings.base_url, os.environ), proxy_is_inherited=True)


def mask(secrets: Iterable[Secret]) -> None:
    """Have Airflow mask every form in which ``secrets`` can be printed; Airflow by itself masks only the raw one.

    :param secrets: what must not be printed by this process from now on.
    """
    for form in _forms_to_mask(secrets):
        mask_secret(form)


_SURELY_MASKED = 16  # characters; Airflow passes over secrets that are shorter than its configuration says, and over some words


def _forms_to_mask(secrets: Iterable[Secret]) -> list[str]:
    """The fewest texts whose masking hides every form of ``secrets``: a link without its token gives no access."""
    forms: list[str] = []
    for form in sorted({form for secret in secrets for form in printed_forms(secret)}, key=len):
        if not any(len(part) >= _SURELY_MASKED and part in form for part in forms):
            forms.append(form)
    return forms


async def amask(secrets: Iterable[Secret]) -> None:
    """As :func:`mask`, on an event loop.

    Airflow 3 before 3.3.2 has no way to do so there that neither blocks nor fails; then only what Airflow masks by itself, a
    connection's password, is masked. What this package prints holds no secret, masked or not.

    :param secrets: what must not be printed by this process from now on.
    """
    try:
        from airflow.sdk.log import amask_secret
    except ModuleNotFoundError:  # Airflow 2: masking is a matter of this process alone
        mask(secrets)
    except ImportError:
        return
    else:
        for form in _forms_to_mask(secrets):
            await amask_secret(form)


def time_left() -> float:
    """Seconds that Airflow's alarm for ``execution_timeout`` has left, and 0 where there is none."""
    return signal.getitimer(signal.ITIMER_REAL)[0]


def time_budget() -> float:
    """Seconds that a call may take: what Airflow's alarm for ``execution_timeout`` has left, but a second; at most five minutes.

    Ending before the alarm gives the user an error that says what happened, in place of a bare timeout.
    """
    return _budget(DEFAULT_BUDGET)


def _budget(most: float) -> float:
    left = time_left()
    return min(most, left - min(1.0, left / 10)) if left else most


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Make a permanent error an ``AirflowFailException`` as well, for operators and for TaskFlow code alike."""
    try:
        yield
    except CloudStoreError as error:
        if error.permanent and not isinstance(error, AirflowFailException):
            error.__class__ = _FAILING[type(error)]
        raise


def _reduce_failing(error: CloudStoreError) -> tuple[Any, ...]:
    # The type is made when it is needed, and no module knows it by its name: the other process makes its own.
    return restore_failing, (type(error).__bases__[0], error.args, vars(error))


def restore_failing(kind: type[CloudStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> CloudStoreError:
    """A permanent error that is also an ``AirflowFailException``, as it was when it was pickled or copied.

    :param kind: its type in :mod:`~airflow_provider_cloudstore.protocol.errors`.
    :param args: its message.
    :param fields: all its data.
    """
    return restore(_FAILING[kind], args, fields)


class _FailingTypes(dict[type[CloudStoreError], type[CloudStoreError]]):
    """For each permanent error the type that is an ``AirflowFailException`` too, made when it first occurs."""

    def __missing__(self, kind: type[CloudStoreError]) -> type[CloudStoreError]:
        # A traceback names the module to import the error from in `except`.
        own = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": _reduce_failing}
        self[kind] = type(kind.__name__, (kind, AirflowFailException), own)
        return self[kind]


_FAILING = _FailingTypes()
