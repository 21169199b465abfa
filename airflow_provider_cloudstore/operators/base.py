"""What the operators have in common: a hook, text that stays text, and fields that are redacted before Airflow stores them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_cloudstore.compat import BaseOperator
from airflow_provider_cloudstore.operators.links import XCOM_FILE_PAGE
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook


# In front of a field's text while Airflow renders it: no Python literal begins like this, and Jinja's native types leave the text
# alone that is none.
_TEXT = "?"

log = logging.getLogger(__name__)

if not hasattr(BaseOperator, "_do_render_template_fields"):
    log.warning(
        "This Airflow has no BaseOperator._do_render_template_fields, in which the fields of mapped tasks are redacted: it would "
        "store their credentials in clear text. Do not map URLs that hold credentials, or install an Airflow that "
        "airflow-provider-cloudstore supports"
    )


def context_or_empty(context: Context | None) -> Context:
    """The context that Airflow passed; an empty one where a unit test of a DAG passes something else."""
    return cast("Context", context) if issubclass(type(context), Mapping) else {}  # isinstance believes a mock of a dict


class CloudStoreOperator(BaseOperator):
    """Base of the operators and the sensor. Type checkers see ``output`` as ``Any``: at run time it is the return value.

    :param cloudstore_conn_id: The Airflow connection of the service (templated).
    """

    def __init__(self, *, cloudstore_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id

    def render_template(self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None) -> Any:
        """Render a value of a template field so that text stays text.

        A DAG with ``render_template_as_native_obj=True`` evaluates text as a Python literal: of the id ``2025_01`` it makes
        202501. What is not text, such as a number or a list that an upstream task returned, stays what it is.
        """
        if not isinstance(content, str) or id(content) in (seen_oids or ()):  # seen: what an upstream task returned
            return super().render_template(content, context, jinja_env, seen_oids)
        # Added, and not formatted: a member of an enumeration of strings is its value.
        return super().render_template(_TEXT + content, context, jinja_env, seen_oids).removeprefix(_TEXT)

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow stores the rendered fields after this and before `execute`, for plain and for mapped tasks. It documents
        # `render_template_fields` for what is done here, but does not call that on mapped tasks.
        super()._do_render_template_fields(*args, **kwargs)
        self._redact_fields()

    def render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        """Render the template fields, and redact them."""
        super().render_template_fields(*args, **kwargs)
        self._redact_fields()

    def _redact_fields(self) -> None:
        """Replace what must not be stored in the rendered fields; it is called more than once."""

    def _push(self, context: Context, key: str, value: Any) -> None:
        """Push an XCom of its own key, if XComs are wanted; in a unit test without a task instance, there are none."""
        if self.do_xcom_push and (ti := context.get("ti")):
            ti.xcom_push(key=key, value=value)

    def _push_file_page(self, context: Context, hook: CloudStoreHook, file_id: str) -> None:
        """Push the URL of a file's page for the link "File", if the connection has one; it holds no token."""
        if file_id and context.get("ti") and (page := hook.settings.file_page(file_id)):
            self._push(context, XCOM_FILE_PAGE, page)

    def _open_hook(self) -> CloudStoreHook:
        from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

        return CloudStoreHook(self.cloudstore_conn_id)

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """The task's return value, for downstream tasks."""
