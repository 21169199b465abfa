"""Reads the receipts of a batch, and writes what failed as a manifest: nobody has to know how receipts are spread over files."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.batch.folder import PathFolder
from airflow_provider_cloudstore.batch.manifest import FileManifest
from airflow_provider_cloudstore.batch.recording import Status, parts_by_batch, read_part
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.stores import atomic_write

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import ObjectStoragePath


def read_receipts(path: str | PathLike[str] | ObjectStoragePath) -> Iterator[dict[str, Any]]:
    """The last outcome of each URL in a folder of receipts, latest first. A folder may hold several batches: each has its own.

    The receipts are streamed: memory grows by about 120 bytes a URL. While a batch runs, the outcomes so far are returned.

    ==============  ============================================================================================
    ``batch``       the id of the batch, as in the files' names; ``batch-<id>.json`` says whose it is
    ``line``        the line of the manifest, or the position in the list, counted from 1
    ``digest``      the SHA-256 of the URL, in hexadecimal; it joins receipts to a manifest
    ``url``         the URL without credentials
    ``status``      ``queued``, ``failed`` or ``unknown``
    ``try``         the try that recorded it
    ``file_id``     only with ``queued``: the id of the file; empty if the response had none
    ``response``    only with ``queued``: the service's response; missing if it was empty
    ``error``       only with ``failed`` and ``unknown``: why
    ==============  ============================================================================================

    :param path: the folder: text, an ``ObjectStoragePath`` or a ``pathlib.Path``.
    :raises InvalidInputError: if there are no receipts at that path.
    :raises BatchStoppedError: if a file is damaged; the message names it and its line.
    """
    return _last_outcomes(_open(path))


def write_failed(
    receipts: str | PathLike[str] | ObjectStoragePath,
    manifest: str | PathLike[str] | ObjectStoragePath,
    target: str | PathLike[str] | ObjectStoragePath,
    *,
    url_column: str = "url",
) -> int:
    """Write a manifest of what failed, to be corrected and sent again: the malformed lines, and those whose last receipt says so.

    The lines are as they were, with the manifest's header, uncompressed; a URL that it lists twice is written once. Lines that
    were not sent are left out: clearing the task sends them. The target is complete or absent.

    :param receipts: the folder of one batch's receipts.
    :param manifest: the manifest of that batch.
    :param target: the file to write, a local path or a path for ``ObjectStoragePath``. It holds the credentials of its URLs.
    :param url_column: the column of a CSV, or the key in JSON, that holds the URL.
    :returns: how many lines were written.
    :raises InvalidInputError: if the folder has not the receipts of one batch, or the manifest cannot be read.
    :raises BatchStoppedError: if a receipt is damaged.
    """
    from airflow_provider_cloudstore.hooks.targets import object_path, tries_of_task

    folder = _open(receipts)
    if sum(name.startswith("batch-") for name in folder.names()) > 1:
        raise InvalidInputError(
            f"{folder.place} holds the receipts of several batches, whose manifests may differ; nothing was written",
            advice="Give each run a folder of its own, such as .../receipts/{{ run_id }}, and name that one.",
        )
    source_path, target_path = object_path(manifest, "manifest"), object_path(target, "target")
    if str(source_path) == str(target_path):
        raise InvalidInputError("the target is the manifest itself; nothing was written", advice="Name another file.")
    failed = {bytes.fromhex(one["digest"]) for one in _last_outcomes(folder) if one["status"] == Status.FAILED.value}
    source = FileManifest(source_path, str(manifest), url_column)
    first, wanted = next((entry.line for entry in source()), 0), _lines_of(source, failed)
    with atomic_write(target_path, tries_of_task()) as file:
        for number, line in source.lines():
            if number < first or number in wanted:
                file.write(line.encode("utf-8", "surrogateescape"))
    return len(wanted)


def _lines_of(source: FileManifest, digests: set[bytes]) -> set[int]:
    chosen: dict[bytes, int] = {}
    for entry in source():
        if entry.digest in digests:
            chosen.setdefault(entry.digest, entry.line)  # the first line of a URL is the one that was sent
    return set(chosen.values())


def _open(path: Any) -> PathFolder:
    from airflow_provider_cloudstore.hooks.targets import object_path

    folder = PathFolder(object_path(path, "receipts"))
    if not any(name.startswith(("batch-", "part-")) for name in folder.names()):
        raise InvalidInputError(f"there are no receipts at {folder.place}: check the path")
    return folder


def _last_outcomes(folder: PathFolder) -> Iterator[dict[str, Any]]:
    for batch, names in parts_by_batch(folder.names()).items():
        seen: set[bytes] = set()
        for name in reversed(names):
            for digest, _, receipt in reversed(read_part(folder, name)):
                if digest not in seen:
                    seen.add(digest)
                    yield {"batch": batch, **receipt}
