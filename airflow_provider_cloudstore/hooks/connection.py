"""Reads an Airflow connection, says what is wrong with it, masks its secrets, and shares one read among an event loop's hooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.compat import AirflowNotFoundException, get_async_connection, mask_secret
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms
from airflow_provider_cloudstore.protocol.services import EXTRAS
from airflow_provider_cloudstore.protocol.settings import CONN_TYPE, Settings, read_extra, unknown_extras

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Connection

log = logging.getLogger(__name__)

Read = tuple[Settings, list[str]]
"""The settings of a connection, and warnings about it."""
_ALWAYS_MASKED = 16  # characters; Airflow does not mask secrets below a configurable length, nor some common words


def read_connection(conn_id: str, get_connection: Callable[[str], Connection]) -> Read:
    """Read the settings of a connection, and warnings about it, such as ``has the unknown extra ...``.

    :raises ConfigurationError: if the connection is not defined or invalid.
    """
    connection = None
    with suppress(AirflowNotFoundException):
        connection = get_connection(_validated(conn_id))
    read = _parsed(conn_id, connection)
    mask(read[0].secrets)
    return read


async def read_connection_async(conn_id: str, refused: Secret | None = None) -> Read:
    """Do the same as :func:`read_connection` on an event loop, and get a token if the connection has keys.

    :param refused: the token that the service has refused.
    """
    from airflow_provider_cloudstore.hooks.tokens import with_token

    connection = None
    with suppress(AirflowNotFoundException):
        connection = await get_async_connection(_validated(conn_id))
    settings, warnings = _parsed(conn_id, connection)
    if settings.keys:
        settings = await asyncio.to_thread(with_token, settings, refused)
    await amask(settings.secrets)
    return settings, warnings


def _validated(conn_id: object) -> str:
    """Reject a connection id that is not a string, such as another value that an upstream task returned."""
    if not isinstance(conn_id, str):
        raise ConfigurationError(f"cloudstore_conn_id must be a string, not {type(conn_id).__name__}", operation="connection")
    return conn_id


def _parsed(conn_id: str, connection: Connection | None) -> Read:
    try:
        if connection is None:
            raise ConfigurationError(
                "it is not defined, or Airflow cannot parse it",
                wait="tolerates",  # Airflow's command line rotates a token by deleting and re-adding the connection
                advice=f"Add it in Admin > Connections with type '{CONN_TYPE}', or set the environment variable "
                f"AIRFLOW_CONN_{conn_id.upper()} to a URI, or to a JSON object with only a connection's keys.",
            )
        extra = read_extra(connection.extra)
        settings = Settings.from_connection(connection, extra)
        warnings = [
            f"has the unknown extra {name!r}. Valid extras: {', '.join(sorted(EXTRAS))}" for name in unknown_extras(extra)
        ]
        return replace(settings, conn_id=conn_id), warnings
    except ConfigurationError as error:
        named = replace(error, operation="connection", subject=conn_id)
    raise named


class SharedConnection:
    """The settings that all hooks of an event loop share for one connection.

    A triggerer reads connections over one channel, one at a time: if each of thousands of waits read the connection itself, the
    waits would never get to poll. One separate task at a time reads it, so that cancelling a user does not affect the others.
    """

    def __init__(self, conn_id: str) -> None:
        self._conn_id = conn_id
        self._settings: Settings | None = None
        self._reading: asyncio.Task[Settings] | None = None

    async def settings(self) -> Settings:
        """Return the settings as last read, and read them first if nobody has.

        :raises ConfigurationError: if they have not been read yet, and the connection is not defined or invalid.
        """
        return self._settings or await self._read()

    async def after_rejection(self, refused: Secret) -> Settings:
        """Return the settings after the service rejected a token; read them again unless another user already has."""
        if self._settings and self._settings.access_token != refused:
            return self._settings
        return await self._read(refused)

    async def _read(self, refused: Secret | None = None) -> Settings:
        """Read the connection, or wait for the read that is under way."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._renew(refused), name="read a cloudstore connection")
        return await asyncio.shield(self._reading)

    async def _renew(self, refused: Secret | None) -> Settings:
        settings, warnings = await read_connection_async(self._conn_id, refused)
        if settings != self._settings:
            for warning in warnings:
                log.warning("Connection '%s' %s", self._conn_id, warning)
            self._settings = settings
        return self._settings or settings  # a hook that gets the same object keeps its HTTP session


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, SharedConnection]] = WeakKeyDictionary()


def shared_connection(conn_id: str) -> SharedConnection:
    """Return the connection that the hooks of this event loop share; it lives as long as a hook refers to it."""
    connections = _shared.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return connections.setdefault(conn_id, SharedConnection(conn_id))


def mask(secrets: Iterable[Secret]) -> None:
    """Mask ``secrets`` in this process, in every printable form; Airflow by itself masks only the raw form.

    Airflow's masker slows down with each additional secret: a thousand download links take it about half a minute.
    """
    for form in _forms_to_mask(secrets):
        mask_secret(form)


async def amask(secrets: Iterable[Secret]) -> None:
    """Do the same as :func:`mask` on an event loop.

    Airflow 3 before 3.3.2 cannot mask on an event loop, and masks only the connection's password. Nothing that this package logs
    depends on masking.
    """
    for form in _forms_to_mask(secrets):
        await compat.amask_secret(form)


def _forms_to_mask(secrets: Iterable[Secret]) -> list[str]:
    """Return the fewest strings whose masking hides every form of ``secrets``: a link without its token gives no access."""
    forms: list[str] = []
    for form in sorted({form for secret in secrets for form in printed_forms(secret)}, key=len):
        if not any(len(part) >= _ALWAYS_MASKED and part in form for part in forms):
            forms.append(form)
    return forms
