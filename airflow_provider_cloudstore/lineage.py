"""What a task read and wrote, as URIs without credentials, and how hooks and operators report it."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.file_uris import bare_url, dataset_of_url, file_uri

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lineage:
    """What was read and what was written.

    :param inputs: URIs, or absolute paths.
    :param outputs: the same.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def of_upload(source: str, base_url: str, file_id: str) -> Lineage:
    """From a source URL to a file; the service's response does not always identify it.

    :param source: the source URL, redacted or not: user info and query are left out.
    :param base_url: the service's base URL.
    :param file_id: the file's id; empty if the service returned none.
    """
    output: tuple[str, ...] = ()
    with suppress(InvalidInputError):  # no operation accepts such an id; the upload is queued nevertheless
        output = (file_uri(base_url, file_id),)
    return Lineage((bare_url(source),), output)


def of_batch(manifest: str | None, receipts: str | None) -> Lineage:
    """From a manifest to the receipts; the files would be too many.

    :param manifest: its path; None if the URLs were a list.
    :param receipts: the folder of the receipts, if any.
    """
    return Lineage((bare_url(manifest),) if manifest else (), (bare_url(receipts),) if receipts else ())


def of_download(base_url: str, file_id: str, target: str) -> Lineage:
    """From a file to its target."""
    return Lineage((file_uri(base_url, file_id),), (bare_url(target),))


def collect(hook: Any, lineage: Lineage) -> None:
    """Report to Airflow's collector what a hook read and wrote; without a lineage backend, nothing is stored."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

    collector: Any = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
    for add, uris in ((collector.add_input_asset, lineage.inputs), (collector.add_output_asset, lineage.outputs)):
        for uri in uris:
            try:
                add(context=hook, uri=uri)
            except ValueError as error:  # too long for an asset, or rejected by the handler of its scheme
                log.debug("No asset for lineage (%s)", type(error).__name__)


def operator_lineage(lineage: Lineage | None) -> OperatorLineage:
    """The result of an operator's ``get_openlineage_facets_on_complete``.

    :param lineage: None if it read and wrote nothing, because it failed: OpenLineage warns of a result that is None.
    """
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.providers.openlineage.extractors import OperatorLineage

    def datasets(uris: tuple[str, ...]) -> list[Dataset]:
        return [Dataset(*dataset_of_url(uri)) for uri in uris]

    found = lineage or Lineage()
    return OperatorLineage(inputs=datasets(found.inputs), outputs=datasets(found.outputs))
