"""Reads an Airflow connection, says what is wrong with it, and masks its secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.compat import AirflowNotFoundException, get_async_connection, mask_secret
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.authorize import Authorize
from airflow_provider_cloudstore.protocol.parse_connection import parse_connection, read_extra
from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms
from airflow_provider_cloudstore.protocol.settings import CONN_TYPE, Settings

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Connection

log = logging.getLogger(__name__)

_ALWAYS_MASKED = 16  # characters; Airflow does not mask secrets below a configurable length, nor some common words


def read_connection(conn_id: str, get_connection: Callable[[str], Connection]) -> Settings:
    """Read the settings of a connection, and log likely mistakes in it.

    :raises CloudStoreError: if the connection is not defined; a ``ConfigurationError`` if it is invalid.
    """
    connection = None
    with suppress(AirflowNotFoundException):
        connection = get_connection(conn_id)
    settings = _parsed(conn_id, connection)
    mask(settings.secrets)
    return settings


async def read_connection_async(conn_id: str) -> Settings:
    """Do the same as :func:`read_connection` on an event loop."""
    connection = None
    with suppress(AirflowNotFoundException):
        connection = await get_async_connection(conn_id)
    settings = _parsed(conn_id, connection)
    await amask(settings.secrets)
    return settings


def exchange_keys(settings: Settings) -> Settings:
    """Return the settings with a new token, and mask it, if the connection has keys; otherwise, return them unchanged.

    :raises ConfigurationError: if the service refuses the keys.
    """
    if not settings.keys:
        return settings
    from airflow_provider_cloudstore.clients.blocking import BlockingClient

    with BlockingClient(settings) as client:
        settings = client.perform(Authorize(settings))
    mask(settings.secrets)
    return settings


def _parsed(conn_id: str, connection: Connection | None) -> Settings:
    try:
        if connection is None:
            raise CloudStoreError(  # not permanent: Airflow says the same if a secrets backend or the API server is away
                "it is not defined, or Airflow cannot read it",
                advice=f"Add it in Admin > Connections with type '{CONN_TYPE}', or set the environment variable "
                f"AIRFLOW_CONN_{conn_id.upper()} to a URI, or to a JSON object with only a connection's keys.",
            )
        settings = parse_connection(connection, read_extra(connection.extra), conn_id)
        for warning in settings.warnings:
            log.warning("Connection '%s' %s", conn_id, warning)
        return settings
    except CloudStoreError as error:
        raise replace(error, operation="connection", subject=conn_id) from None


def mask(secrets: Iterable[Secret]) -> None:
    """Mask ``secrets`` in this process, in every printable form; Airflow by itself masks only the raw form.

    Airflow's masker slows down with each additional secret: a thousand download links take it about half a minute.
    """
    for form in _forms_to_mask(secrets):
        mask_secret(form)


async def amask(secrets: Iterable[Secret]) -> None:
    """Do the same as :func:`mask` on an event loop, where Airflow can. Nothing that this package logs depends on masking."""
    for form in _forms_to_mask(secrets):
        await compat.amask_secret(form)


def _forms_to_mask(secrets: Iterable[Secret]) -> list[str]:
    """Return the fewest strings whose masking hides every form of ``secrets``: a link without its token gives no access."""
    forms: list[str] = []
    for form in sorted({form for secret in secrets for form in printed_forms(secret)}, key=len):
        if not any(len(part) >= _ALWAYS_MASKED and part in form for part in forms):
            forms.append(form)
    return forms
