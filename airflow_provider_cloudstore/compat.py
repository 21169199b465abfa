"""Imports what this package uses from where each Airflow version has it; no other module handles differences of versions.

Each branch serves one range of versions, and is deleted with its oldest version. Type checkers see the newest branch.
"""

# Other modules import these names from here.
# mypy: implicit_reexport
# ruff: noqa: F401

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow import __version__

_AIRFLOW = tuple(int(number) for number in re.findall(r"\d+", __version__)[:3])
_MASKS_ON_EVENT_LOOPS = _AIRFLOW >= (3, 3, 2)
HAS_STORED_LINKS = _AIRFLOW >= (3,)
"""Whether a task asks for the links of its operator when it ends, and Airflow stores them."""

if TYPE_CHECKING or _AIRFLOW >= (3, 2):
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowTaskTerminated,
        AirflowTaskTimeout,
    )
else:
    from airflow.configuration import conf
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowTaskTerminated,
        AirflowTaskTimeout,
    )

if TYPE_CHECKING or _AIRFLOW >= (3, 1):
    from airflow.sdk import BaseHook
else:
    from airflow.hooks.base import BaseHook

if TYPE_CHECKING or _AIRFLOW >= (3,):
    from airflow.sdk import BaseOperator, BaseOperatorLink, BaseSensorOperator, ObjectStoragePath
    from airflow.sdk.log import mask_secret
else:
    from airflow.io.path import ObjectStoragePath
    from airflow.models.baseoperator import BaseOperator
    from airflow.models.baseoperatorlink import BaseOperatorLink
    from airflow.models.xcom import XCom
    from airflow.sensors.base import BaseSensorOperator
    from airflow.utils.log.secrets_masker import mask_secret

if TYPE_CHECKING:  # names in annotations, and one that only Airflow 2 needs
    from airflow.sdk import Connection, Context, XComArg
    from airflow.sdk.execution_time.xcom import XCom


async def get_async_connection(conn_id: str) -> Connection:
    """Read a connection on an event loop.

    Before 3.3.2, Airflow cannot mask the connection's secrets there, so the connection is read in a thread. ``asgiref`` starts
    that thread, because Airflow 3.0 and 3.1 find the way back to the triggerer's loop only from such a thread.
    """
    if _MASKS_ON_EVENT_LOOPS:
        return await BaseHook.aget_connection(conn_id)
    from asgiref.sync import sync_to_async

    return await sync_to_async(BaseHook.get_connection)(conn_id)


async def amask_secret(secret: str) -> None:
    """Mask a secret on an event loop; on Airflow 3 before 3.3.2, do nothing, because masking there blocks or raises."""
    if _MASKS_ON_EVENT_LOOPS:
        from airflow.sdk.log import amask_secret

        await amask_secret(secret)
    elif _AIRFLOW < (3,):  # masking needs no other process
        mask_secret(secret)


def form_widgets(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Build the widgets of the connection form (Airflow before 3.2). No check box: it would override a default with false."""
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from wtforms import PasswordField, StringField

    def widget(field: Mapping[str, Any]) -> Any:
        hidden = field["schema"].get("format") == "password"
        kind, looks = (PasswordField, BS3PasswordFieldWidget) if hidden else (StringField, BS3TextFieldWidget)
        return kind(field["label"], widget=looks(), description=field["description"])

    return {name: widget(field) for name, field in fields.items()}
