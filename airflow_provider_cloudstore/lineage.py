"""What a task read and wrote, as URIs without credentials: hooks report it to Airflow, and operators to OpenLineage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.file_uris import bare_url, dataset_of_url, file_uri

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import OperatorLineage


@dataclass(frozen=True, slots=True)
class Lineage:
    """What was read and what was written: URIs, or absolute paths."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def of_upload(source: str, base_url: str, file_id: str) -> Lineage:
    """From a source URL to a file, if the service's response has an id that operations accept.

    :param source: the source URL, redacted or not: user info and query are left out.
    """
    output: tuple[str, ...] = ()
    with suppress(InvalidInputError):
        output = (file_uri(base_url, file_id),)
    return Lineage((bare_url(source),), output)


def of_batch(manifest: str | None, receipts: str | None) -> Lineage:
    """From a manifest, unless the URLs were a list, to the receipts; the files would be too many."""
    return Lineage((bare_url(manifest),) if manifest else (), (bare_url(receipts),) if receipts else ())


def of_download(base_url: str, file_id: str, target: str) -> Lineage:
    """From a file to its target."""
    return Lineage((file_uri(base_url, file_id),), (bare_url(target),))


def collect(hook: Any, lineage: Lineage) -> None:
    """Report to Airflow's collector what a hook read and wrote; without a lineage backend, nothing is stored."""
    from airflow_provider_cloudstore.compat import get_hook_lineage_collector

    collector: Any = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
    for add, uris in ((collector.add_input_asset, lineage.inputs), (collector.add_output_asset, lineage.outputs)):
        for uri in uris:
            with suppress(ValueError):  # too long for an asset, or rejected by the handler of its scheme
                add(context=hook, uri=uri)


def to_openlineage(lineage: Lineage) -> OperatorLineage:
    """What an operator's ``get_openlineage_facets_on_complete`` returns."""
    from airflow_provider_cloudstore.compat import Dataset, OperatorLineage

    inputs, outputs = ([Dataset(*dataset_of_url(uri)) for uri in uris] for uris in (lineage.inputs, lineage.outputs))
    return OperatorLineage(inputs=inputs, outputs=outputs)
