"""Reports lineage: to Airflow's collector from a hook, and to OpenLineage from an operator."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.protocol.file_uris import dataset_of_url
from airflow_provider_cloudstore.protocol.lineage import Lineage

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

log = logging.getLogger(__name__)


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
        return [Dataset(namespace=name.namespace, name=name.name) for name in map(dataset_of_url, uris)]

    found = lineage or Lineage()
    return OperatorLineage(inputs=datasets(found.inputs), outputs=datasets(found.outputs))
