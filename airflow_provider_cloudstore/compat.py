"""Everything that depends on the Airflow version, beyond what ``common.compat`` covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat import sdk


async def amask_secret(secret: str) -> None:
    """Mask a secret from within an event loop. Airflow 3 before 3.3.2 cannot: masking there blocks or raises."""
    try:
        from airflow.sdk.log import amask_secret
    except ModuleNotFoundError:  # Airflow 2, where masking needs no other process
        sdk.mask_secret(secret)
    except ImportError:
        return
    else:
        await amask_secret(secret)


def form_widgets(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The connection form's widgets for the provider info's ``conn-fields`` (Airflow before 3.2, with Flask-AppBuilder)."""
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from wtforms import BooleanField, PasswordField, StringField

    def widget(field: Mapping[str, Any]) -> Any:
        if "boolean" in field["schema"]["type"]:
            return BooleanField(field["label"], description=field["description"])
        hidden = field["schema"].get("format") == "password"
        kind, looks = (PasswordField, BS3PasswordFieldWidget) if hidden else (StringField, BS3TextFieldWidget)
        return kind(field["label"], widget=looks(), description=field["description"])

    return {name: widget(field) for name, field in fields.items()}
