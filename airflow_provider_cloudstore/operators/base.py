"""The base of the operators and the sensor: it opens the hook, links to a file's page, and renders and redacts fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from airflow_provider_cloudstore.compat import HAS_STORED_LINKS, BaseOperator, BaseOperatorLink
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

XCOM_FILE_PAGE = "file_page"
# Put in front of a field's text while Airflow renders it. No Python literal begins with it, so Jinja's native types, which
# evaluate literals, leave the text alone.
_NOT_A_LITERAL = "?"


class FileLink(BaseOperatorLink):
    """Links to the page of the task's file, if the connection has the extra ``file_page_url``."""

    name = "File"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL that the task has pushed, or an empty string if it has not pushed any."""
        if HAS_STORED_LINKS:  # asked in the task's own process, where a missing XCom would be logged as an error
            return str(getattr(operator, XCOM_FILE_PAGE, ""))
        from airflow_provider_cloudstore.compat import XCom

        return XCom.get_value(ti_key=ti_key, key=XCOM_FILE_PAGE) or ""


def context_or_empty(context: Context | None) -> Context:
    """Return the context that Airflow passed, or an empty context where a unit test of a DAG passes something else."""
    return cast("Context", context) if issubclass(type(context), Mapping) else {}  # isinstance would accept a mock of a dict


def validate_flags(**flags: object) -> None:
    """Reject strings as flags that may cause harm, because ``"no"`` and ``"false"`` would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")


def validate_positive(name: str, value: object) -> float:
    """Return a rate or a duration in seconds from a number or, as Airflow's own sensors accept it, a ``timedelta``."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(number, (int, float)) or not 0 < number < math.inf:
        raise ValueError(f"{name} must be a number above 0, not {value!r}")
    return number


class CloudStoreOperator(BaseOperator):
    """Base of the operators and the sensor. Type checkers see ``output`` as ``Any``, because at run time it is the return value.

    :param cloudstore_conn_id: The Airflow connection of the service (templated).
    """

    def __init__(self, *, cloudstore_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloudstore_conn_id = cloudstore_conn_id

    def render_template(self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None) -> Any:
        """Render a value of a template field so that text stays text.

        With ``render_template_as_native_obj=True``, Airflow evaluates text as a Python literal, and would turn the id ``2025_01``
        into 202501. A value that is not text, such as a number or a list that an upstream task returned, stays unchanged.
        """
        if not isinstance(content, str) or id(content) in (seen_oids or ()):  # what an upstream task returned is not rendered
            return super().render_template(content, context, jinja_env, seen_oids)
        # `+` uses the value of a member of a string enumeration; an f-string would use its name.
        return super().render_template(_NOT_A_LITERAL + content, context, jinja_env, seen_oids).removeprefix(_NOT_A_LITERAL)

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Every Airflow version calls this method for plain and for mapped tasks, and stores the rendered fields after it. The
        # documented `render_template_fields` is not called on mapped tasks.
        super()._do_render_template_fields(*args, **kwargs)
        self._redact_fields()

    def _redact_fields(self) -> None:
        """Replace secrets in the rendered fields before Airflow stores them. This may be called more than once."""

    def _push(self, context: Context, key: str, value: Any) -> None:
        """Push an XCom under ``key`` if the task pushes XComs. In a unit test without a task instance, do nothing."""
        if self.do_xcom_push and (ti := context_or_empty(context).get("ti")):
            ti.xcom_push(key=key, value=value)

    def _push_file_page(self, context: Context, hook: CloudStoreHook, file_id: str) -> None:
        """Push the URL of a file's page for the link "File", if the connection defines that URL, which holds no token."""
        from airflow_provider_cloudstore.exceptions import CloudStoreError

        if not file_id or not context_or_empty(context).get("ti"):
            return
        with suppress(CloudStoreError):  # a missing link is no reason to fail a task that has done its work
            if template := hook.settings.file_page_url:
                page = template.replace("{file_id}", quote(file_id, safe=""))
                setattr(self, XCOM_FILE_PAGE, page)
                self._push(context, XCOM_FILE_PAGE, page)

    def _open_hook(self) -> CloudStoreHook:
        from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

        return CloudStoreHook(self.cloudstore_conn_id)

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """The task's return value, for downstream tasks."""
