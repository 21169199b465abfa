"""The provider metadata that Airflow reads, and the names that DAG parsing needs; importing it is fast."""

from __future__ import annotations

from typing import Any

from airflow_provider_cloudstore import __version__

DEFAULT_CONN_ID = "cloudstore_default"

_INTEGRATION = "CloudStore"


def _modules(*names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_provider_cloudstore.{name}" for name in names]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["schema"],
    "relabeling": {"host": "Base URL", "login": "First key", "password": "Access token, or second key"},
    "placeholders": {
        "host": "https://files.example.com",
        "port": "443",
        "login": "only where extra 'authorize' is set",
        "password": "the access token of the service",
    },
}


def connection_form() -> dict[str, dict[str, Any]]:
    """Return a field for each extra of the connection, in the format of ``conn-fields``."""
    from airflow_provider_cloudstore.protocol.settings import EXTRAS

    form = {}
    for name, extra in EXTRAS.items():
        default = f" Default {str(extra.default).lower()}." if isinstance(extra.default, (int, float)) else ""
        schema = {"type": ["string", "null"], "format": "password"}
        if extra.shown_as != "password":
            schema = {"type": [extra.shown_as, "null"]}
        form[name] = {"label": name, "description": f"{extra.help}{default}", "schema": schema}
    return form


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, as Airflow's ``provider_info.schema.json`` describes it."""
    return {
        "package-name": "airflow-provider-cloudstore",
        "name": _INTEGRATION,
        "description": "Delete folders, queue remote uploads and create download links in a cloud file storage service.",
        "versions": [__version__],
        # With a public home, "external-doc-url" of the integration is the address of the documentation.
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["service"]}],
        "operators": _modules("operators.cloudstore", "operators.upload", "batch.operator"),
        "sensors": _modules("sensors.cloudstore"),
        "hooks": _modules("hooks.cloudstore"),
        "triggers": _modules("triggers.cloudstore"),
        "cli": ["airflow_provider_cloudstore.doctor.command.commands"],  # for Airflow versions that load commands of providers
        "extra-links": ["airflow_provider_cloudstore.operators.base.FileLink"],
        "connection-types": [
            {
                "hook-class-name": "airflow_provider_cloudstore.hooks.cloudstore.CloudStoreHook",
                "hook-name": _INTEGRATION,
                "connection-type": "cloudstore",
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": connection_form(),
            }
        ],
    }
