"""The base class of the operators: hook, lineage, and what is redacted before Airflow stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.compat import BaseOperator

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, OperatorLineage
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.lineage import Lineage


if not hasattr(BaseOperator, "_do_render_template_fields"):
    raise ImportError(
        "This Airflow has no BaseOperator._do_render_template_fields, in which the operators redact URLs: it would store their "
        "credentials in clear text. Install an Airflow version that airflow-provider-cloudstore supports"
    )


class CloudStoreOperator(BaseOperator):
    """Base of all operators. Type checkers see ``output`` as ``Any``: at run time it is the task's return value."""

    cloudstore_conn_id: str
    _lineage: Lineage | None = None
    """What the task read and wrote; None if it reports nothing."""

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """What the task read and wrote, for OpenLineage, which warns of a result that is None."""
        from airflow_provider_cloudstore.lineage import Lineage, to_openlineage

        return to_openlineage(self._lineage or Lineage())

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow stores the rendered fields after this and before `execute`, for plain and for mapped tasks.
        super()._do_render_template_fields(*args, **kwargs)
        self._redact_fields()

    def _redact_fields(self) -> None:
        """Replace what must not be stored in the rendered fields."""

    def _push(self, context: Context, key: str, value: Any) -> None:
        """Push an XCom of its own key, if XComs are wanted; in a unit test without a task instance, there are none."""
        if self.do_xcom_push and (ti := context.get("ti")):
            ti.xcom_push(key=key, value=value)

    def _open_hook(self) -> CloudStoreHook:
        from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

        return CloudStoreHook(self.cloudstore_conn_id)

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """The task's return value, for downstream tasks."""
