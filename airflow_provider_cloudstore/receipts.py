"""Reads the receipts of a batch, so that nobody has to know how they are spread over files and tries."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.batch.outcomes import KEY_SIZE, KeyTable
from airflow_provider_cloudstore.batch.receipts import Folder, parts_by_batch, read_parts
from airflow_provider_cloudstore.protocol.errors import InvalidInputError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import ObjectStoragePath

_SEEN = 1


def read_receipts(path: str | PathLike[str] | ObjectStoragePath) -> Iterator[dict[str, Any]]:
    """The last outcome of each URL in a folder of receipts, latest first. A folder may hold several batches: each has its own.

    The receipts are streamed: memory grows by 20 to 39 bytes a URL. While a batch runs, the outcomes so far are returned.

    ==============  ============================================================================================
    ``batch``       the id of the batch, as in the files' names; ``batch-<id>.json`` says whose it is
    ``line``        the line of the manifest, or the position in the list, counted from 1
    ``key``         the manifest's own id of the line, only with ``key_column``
    ``digest``      the SHA-256 of the URL, in hexadecimal; it joins receipts to a manifest
    ``url``         the URL without credentials
    ``status``      ``queued``, ``failed`` or ``unknown``
    ``try``         the try that recorded it
    ``response``    only with ``queued``: the service's response; null if it has more than 16 KiB
    ``error``       only with ``failed`` and ``unknown``: why
    ==============  ============================================================================================

    ``response`` and ``error`` are missing if the service returned nothing, and from outcomes that only Airflow's state store had.

    :param path: the folder: text, an ``ObjectStoragePath`` or a ``pathlib.Path``.
    :raises InvalidInputError: if there are no receipts at that path.
    :raises BatchStoppedError: if a file is damaged; the message names it and its line.
    """
    from airflow_provider_cloudstore.hooks.folders import PathFolder
    from airflow_provider_cloudstore.hooks.targets import object_path

    folder = PathFolder(object_path(path, "path"))
    place = str(path).rstrip("/")
    names = folder.names()
    batches = parts_by_batch(names)
    if not batches and not any(name.startswith("batch-") for name in names):
        raise InvalidInputError(f"there are no receipts at {place}: check the path")
    return _last_outcomes(folder, place, batches)


def _last_outcomes(folder: Folder, place: str, batches: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    for batch, names in batches.items():
        seen = KeyTable()
        for part in read_parts(folder, reversed(names), place):
            for digest, _, receipt in reversed(list(part)):
                if not seen.get(digest[:KEY_SIZE]):
                    seen.set(digest[:KEY_SIZE], _SEEN)
                    yield {"batch": batch, **receipt}
