"""Names what Airflow's ``FileTransferOperator`` reads from ``cloudstore://`` as this package's operators do, for OpenLineage.

Airflow names a dataset by its path, which knows the connection and not the service. OpenLineage uses the extractor if its setting
``[openlineage] extractors`` lists it.
"""

from __future__ import annotations

from airflow.providers.common.compat.openlineage.facet import Dataset
from airflow.providers.common.compat.sdk import ObjectStoragePath
from airflow.providers.openlineage.extractors.base import BaseExtractor, DefaultExtractor, OperatorLineage

from airflow_provider_cloudstore.protocol.file_uris import SCHEME, dataset_of_url


class FileTransferExtractor(BaseExtractor):  # type: ignore[misc]  # not in every environment
    """The lineage of ``FileTransferOperator``, with the asset URI of a file as the name of its source."""

    @classmethod
    def get_operator_classnames(cls) -> list[str]:
        """The operator."""
        return ["FileTransferOperator"]

    def _execute_extraction(self) -> OperatorLineage | None:
        found = DefaultExtractor(self.operator).extract()
        source = self.operator.src
        path = ObjectStoragePath(source, conn_id=self.operator.source_conn_id) if isinstance(source, str) else source
        if found and path.protocol == SCHEME:
            found.inputs = [Dataset(*dataset_of_url(path.fs.asset_uri(path.path)))]
        return found
