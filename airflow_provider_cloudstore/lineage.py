"""What a task read and wrote, for OpenLineage: the names of datasets, which hold no credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import OperatorLineage


@dataclass(frozen=True, slots=True)
class Lineage:
    """What was read and what was written: URLs, or absolute paths. Empty ones are left out."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def to_openlineage(self) -> OperatorLineage:
        """What an operator's ``get_openlineage_facets_on_complete`` returns."""
        from airflow_provider_cloudstore.compat import Dataset, OperatorLineage

        inputs, outputs = ([Dataset(*_dataset(url)) for url in urls if url] for urls in (self.inputs, self.outputs))
        return OperatorLineage(inputs=inputs, outputs=outputs)


def file_url(base_url: str, file_id: str) -> str:
    """A file's name in lineage, the id percent-encoded: ``cloudstore://HOST[:PORT]/BASE/PATH/FILE_ID``; empty without an id."""
    base = urlsplit(base_url)
    return f"cloudstore://{base.netloc}{base.path}/{quote(file_id, safe='')}" if file_id else ""


def _dataset(url: str) -> tuple[str, str]:
    """The namespace and the name of a dataset, without user info, which in Airflow's paths is a connection's id, and query."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return "file", parts.path or url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.removeprefix("/") or "/"
