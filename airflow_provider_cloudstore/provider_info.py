"""The provider metadata that Airflow reads, and the names that DAG parsing needs; importing it costs next to nothing."""

from __future__ import annotations

from typing import Any

from airflow_provider_cloudstore import __version__

DEFAULT_CONN_ID = "cloudstore_default"

_INTEGRATION = "Cloud file storage service"


def _modules(kind: str, *names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_provider_cloudstore.{kind}.{name}" for name in ("cloudstore", *names)]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["schema", "login"],
    "relabeling": {"host": "Base URL", "password": "Access token"},
    "placeholders": {
        "host": "https://files.example.com",
        "port": "443 (Airflow 3.3's Test button needs a number)",
        "password": "the access token of the service",
    },
}


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


CONN_FIELDS: dict[str, dict[str, Any]] = {
    "timeout": _field("Timeout (seconds)", "How long one request may take. Default 30.", "number", minimum=0.001, maximum=86400),
    "max_attempts": _field(
        "Attempts", "How many requests one call may send, a whole number. Default 4.", "integer", minimum=1, maximum=86400
    ),
    "verify": _field("Verify TLS", "true, false, or the path of a CA bundle. Default true."),
    "proxy": _field(
        "Proxy",
        "URL of an http or https proxy, such as http://proxy.example.com:3128; user and password percent-encoded.",
        format="password",
    ),
    "allow_http": _field(
        "Allow plain http",
        "Allow http:// URLs, which expose the token to the network. Loopback addresses are always allowed.",
        "boolean",
    ),
    "protected_folder_ids": _field(
        "Protected folder ids",
        'Ids that are never deleted, separated by commas or as a list such as ["id1", "id2"], in addition to the root (0, /).',
    ),
    "token_path": _field(
        "Token path", "Dotted path to the download token in the response, for services with a format of their own."
    ),
    "file_id_path": _field(
        "File id path", "Dotted path to the file's id in the response to an upload, for services with a format of their own."
    ),
    "not_found_pattern": _field(
        "Not-found pattern", 'Regular expression: an error message of the service that matches it means "not found".'
    ),
    "download_url": _field(
        "Download URL",
        "The URL to download files from, with {token} as placeholder; for services whose responses have no URL.",
    ),
}

ASSET_URIS: list[dict[str, Any]] = [
    {
        "schemes": ["cloudstore"],
        "handler": "airflow_provider_cloudstore.assets.cloudstore.sanitize_uri",
        "factory": "airflow_provider_cloudstore.assets.cloudstore.create_asset",
        "to_openlineage_converter": "airflow_provider_cloudstore.assets.cloudstore.convert_asset_to_openlineage",
    }
]


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, as Airflow's ``provider_info.schema.json`` describes it."""
    return {
        "package-name": "airflow-provider-cloudstore",
        "name": _INTEGRATION,
        "description": "Delete folders, queue remote uploads and create download links in a cloud file storage service.",
        "versions": [__version__],
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["service"]}],
        "operators": _modules("operators", "batch", "download"),
        "sensors": _modules("sensors"),
        "hooks": _modules("hooks", "asynchronous"),
        "triggers": _modules("triggers"),
        "filesystems": ["airflow_provider_cloudstore.fs.cloudstore"],
        "asset-uris": ASSET_URIS,
        "dataset-uris": ASSET_URIS,  # Airflow 2
        "connection-types": [
            {
                "hook-class-name": "airflow_provider_cloudstore.hooks.cloudstore.CloudStoreHook",
                "hook-name": _INTEGRATION,
                "connection-type": "cloudstore",
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": CONN_FIELDS,
            }
        ],
    }
