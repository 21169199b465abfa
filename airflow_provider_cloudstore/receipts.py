"""Reads the receipts of a batch, and writes what failed as a manifest: nobody has to know how receipts are spread over files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.batch.ledger import locate
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.outcomes import KEY_SIZE, KeyTable, Status
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
    ``file_id``     only with ``queued``: the id of the file; empty if the response had none
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


def write_failed(
    receipts: str | PathLike[str] | ObjectStoragePath,
    manifest: str | PathLike[str] | ObjectStoragePath,
    target: str | PathLike[str] | ObjectStoragePath,
    *,
    url_column: str = "url",
    unknown: bool = False,
) -> int:
    """Write a manifest of what failed, to be corrected and sent again: the malformed lines, and those whose last receipt says so.

    The lines are as they were, with the manifest's header and compression; a URL that it lists twice is written once. Lines that
    were not sent are left out: clearing the task sends them. The target is complete or absent.

    :param receipts: the folder of one run's receipts.
    :param manifest: the manifest of that run.
    :param target: the file to write, a local path or a path for ``ObjectStoragePath``. It holds the credentials of its URLs.
    :param url_column: the column of a CSV, or the key in JSON, that holds the URL.
    :param unknown: whether to add the lines whose outcome is unknown: those uploads may have arrived.
    :returns: how many lines were written.
    :raises InvalidInputError: if the folder has no receipts, or those of several runs, or the manifest cannot be read to its end.
    :raises BatchStoppedError: if a receipt is damaged.
    """
    from airflow_provider_cloudstore.hooks.targets import atomic_write, object_path
    from airflow_provider_cloudstore.operators.batch_stores import read_manifest

    _validate_single_run(receipts)
    place = object_path(target, "target")
    if str(place) == str(object_path(manifest, "manifest")):
        raise InvalidInputError("the target is the manifest itself; nothing was written", advice="Name another file.")
    statuses = {Status.FAILED.value, Status.UNKNOWN.value} if unknown else {Status.FAILED.value}
    wanted = {bytes.fromhex(one["digest"]) for one in read_receipts(receipts) if one["status"] in statuses}
    source = read_manifest(str(manifest), url_column)
    chosen: dict[bytes, Entry] = {}
    for found in locate(source(), None):
        if found.digest in wanted:
            chosen.setdefault(found.digest, found.entry)  # the first line of a URL is the one that was sent
    with atomic_write(place) as file:
        source.write(chosen.values(), file)
    return len(chosen)


def _validate_single_run(receipts: Any) -> None:
    from airflow_provider_cloudstore.hooks.folders import PathFolder
    from airflow_provider_cloudstore.hooks.targets import object_path

    folder = PathFolder(object_path(receipts, "receipts"))
    names = folder.names()
    marks = {name for name in names if name.startswith("batch-")} | {f"batch-{batch}.json" for batch in parts_by_batch(names)}
    runs = {_run_of(name, folder.read(name)) for name in marks}
    if len(runs) > 1:
        raise InvalidInputError(
            f"{receipts} holds the receipts of {len(runs)} runs or tasks, whose manifests may differ; nothing was written",
            advice="Give each run a folder of its own, such as .../receipts/{{ run_id }}, and name that one.",
        )


def _run_of(name: str, mark: bytes | None) -> tuple[str, ...]:
    """The DAG, run and task of a batch, by its mark: shards differ in the map index alone. Without a mark, it is its own."""
    try:
        return tuple(json.loads(mark or b"")["scope"][:3])
    except (ValueError, TypeError, KeyError):
        return (name,)


def _last_outcomes(folder: Folder, place: str, batches: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    for batch, names in batches.items():
        seen = KeyTable()
        for part in read_parts(folder, reversed(names), place):
            for digest, _, receipt in reversed(list(part)):
                if not seen.get(digest[:KEY_SIZE]):
                    seen.set(digest[:KEY_SIZE], _SEEN)
                    yield {"batch": batch, **receipt}
