"""Turns the paths that users write into Airflow's path objects."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.guards import validate_text
from airflow_provider_cloudstore.protocol.secrets import holds_credentials
from airflow_provider_cloudstore.stores import validate_target


def object_path(given: Any, name: str) -> Any:
    """Return a path object, after a check that its filesystem can be used.

    :param given: text, a ``pathlib.Path`` or an ``ObjectStoragePath``.
    :raises InvalidInputError: if it is not a path, holds credentials, or no installed provider has its scheme; nothing was sent.
    """
    if not isinstance(given, (str, os.PathLike)) and not hasattr(given, "open"):
        raise InvalidInputError(f"{name} must be a path, not a {type(given).__name__}")
    text = str(given)
    scheme = text.partition("://")[0][:40] if "://" in text else "file"
    if holds_credentials(text):
        raise InvalidInputError(
            f"{name} holds a user and a password, which Airflow and its logs would show",
            advice=f"Store them in an Airflow connection, and write its id in their place: {scheme}://conn_id@bucket/...",
        )
    with suppress(ImportError, ValueError):  # its provider lacks a library; the scheme is unknown, or the path is invalid
        path: Any = ObjectStoragePath(given) if isinstance(given, str) else given
        getattr(path, "fs", None)
        return path
    raise InvalidInputError(
        f"{name}: no filesystem is installed for '{scheme}': check the spelling, or install the Airflow provider for it, "
        "such as apache-airflow-providers-amazon[s3fs] for s3"
    )


def resolve_target(target: Any, file_id: Any) -> tuple[Any, str]:
    """Return the path to which a download is written, and the path's text for messages and XComs.

    :param target: text, a ``pathlib.Path`` or an ``ObjectStoragePath``; ``~`` and ``~user`` are expanded in a local path.
    :param file_id: names the file if the target ends with ``/``.
    :raises InvalidInputError: if it does not name a file, or if :func:`object_path` rejects it; nothing was sent.
    """
    text = validate_text(str(target) if hasattr(target, "open") else target, "target")
    if text.endswith("/"):
        text += quote(validate_text(file_id, "file_id"), safe="")
    if not hasattr(target, "protocol"):
        text = os.path.expanduser(text)
        target = text if "://" in text else Path(text)
    path = object_path(target, "target")
    validate_target(path)  # so that a mistake is reported before a wait
    return path, text
