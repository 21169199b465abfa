"""What a task read and wrote, as URIs without credentials."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cloudstore.protocol.file_uris import bare_url, file_uri


@dataclass(frozen=True, slots=True)
class Lineage:
    """What was read and what was written.

    :param inputs: URIs, or absolute paths.
    :param outputs: the same.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def of_upload(source: str, base_url: str, file_id: str | None) -> Lineage:
    """From a source URL to a file; the service's response does not always identify it.

    :param source: the source URL, redacted or not: user info and query are left out.
    :param base_url: the service's base URL.
    :param file_id: the file's id, if the service returned one.
    """
    return Lineage((bare_url(source),), (file_uri(base_url, file_id),) if file_id else ())


def of_batch(manifest: str | None, receipts: str | None) -> Lineage:
    """From a manifest to the receipts; the files would be too many.

    :param manifest: its path; None if the URLs were a list.
    :param receipts: the folder of the receipts, if any.
    """
    return Lineage((bare_url(manifest),) if manifest else (), (bare_url(receipts),) if receipts else ())


def of_download(base_url: str, file_id: str, target: str) -> Lineage:
    """From a file to its target."""
    return Lineage((file_uri(base_url, file_id),), (bare_url(target),))
