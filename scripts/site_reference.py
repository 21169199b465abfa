"""What the reference shows of a class beside its docstring, and which signatures it leaves out."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from airflow_provider_cloudstore.doctor.report import Report, Step
from airflow_provider_cloudstore.emulator.fixtures import DagRunResult
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

_NEVER_CREATED_BY_USERS = (CloudStoreError, DagRunResult, Report, Step)


def _complete(*event: Any) -> None:
    """Add an operator's template fields, and how an error is handled; a module's docstring is for its readers alone."""
    _, what, _, thing, _, lines = event
    if what == "module":
        lines.clear()
    if what == "class" and hasattr(thing, "template_fields"):
        lines += ["", ":Template fields: " + ", ".join(f"``{field}``" for field in thing.template_fields), ""]
    if what == "class" and issubclass(thing, CloudStoreError):
        retried = "Retried by the call" if thing.retried else "Not retried by the call"
        lines += [
            "",
            f"{retried}; {'permanent: Airflow does not retry the task' if thing.permanent else 'Airflow retries the task'}.",
        ]
        lines += ["", f"*{thing.hint}*" if thing.hint else "", ""]


def _sign(*event: Any) -> tuple[str | None, str | None]:
    """Leave out the signatures of what users never create, and write out the default connection id."""
    _, what, _, thing, _, arguments, returned = event
    if what == "class" and issubclass(thing, _NEVER_CREATED_BY_USERS):
        return "", returned
    return (arguments.replace("DEFAULT_CONN_ID", repr(DEFAULT_CONN_ID)) if arguments else arguments), returned


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx.

    :param app: the build.
    """
    app.connect("autodoc-process-docstring", _complete)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True}
