"""What the operators have in common: text that stays text, hook, lineage, and what is redacted before Airflow stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.compat import BaseOperator

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, OperatorLineage
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.lineage import Lineage


# In front of a field's text while Airflow renders it: no Python literal begins like this, and Jinja's native types leave the text
# alone that is none.
_TEXT = "?"


def known_context(context: Context | None) -> Context:
    """The context that Airflow passed; an empty one where a unit test of a DAG passes something else."""
    return context if isinstance(context, Mapping) else {}


class CloudStoreOperator(BaseOperator):
    """Base of the operators and the sensor. Type checkers see ``output`` as ``Any``: at run time it is the return value."""

    cloudstore_conn_id: str
    _lineage: Lineage | None = None
    """What the task read and wrote; None if it reports nothing."""

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """What the task read and wrote, for OpenLineage, which warns of a result that is None."""
        from airflow_provider_cloudstore.lineage import Lineage

        return (self._lineage or Lineage()).to_openlineage()

    def render_template(self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None) -> Any:
        """Render a value of a template field so that text stays text.

        A DAG with ``render_template_as_native_obj=True`` evaluates text as a Python literal: of the id ``2025_01`` it makes
        202501. What is not text, such as a number or a list that an upstream task returned, stays what it is.
        """
        if not isinstance(content, str) or id(content) in (seen_oids or ()):  # seen: what an upstream task returned
            return super().render_template(content, context, jinja_env, seen_oids)
        # Added, and not formatted: a member of an enumeration of strings is its value.
        return super().render_template(_TEXT + content, context, jinja_env, seen_oids).removeprefix(_TEXT)

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


class RedactingOperator(CloudStoreOperator):
    """Base of the operators whose fields hold URLs, which are redacted before Airflow stores them.

    :raises RuntimeError: if this Airflow lacks the method in which they are.
    """

    def __init__(self, **kwargs: Any) -> None:
        if not hasattr(BaseOperator, "_do_render_template_fields"):
            raise RuntimeError(
                f"This Airflow has no BaseOperator._do_render_template_fields, in which {type(self).__name__} redacts URLs: it "
                "would store their credentials in clear text. Install an Airflow that airflow-provider-cloudstore supports"
            )
        super().__init__(**kwargs)

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow stores the rendered fields after this and before `execute`, for plain and for mapped tasks.
        super()._do_render_template_fields(*args, **kwargs)
        self._redact_fields()

    def _redact_fields(self) -> None:
        """Replace what must not be stored in the rendered fields."""
        raise NotImplementedError
