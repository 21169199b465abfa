"""Runs next to the wheel in the empty environment and prints how this Airflow reads the package, as JSON in the last line."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from typing import Any

import airflow_provider_cloudstore as package


def connection_form() -> dict[str, Any]:
    """Return the custom fields of the connection form and the changed standard ones, as this Airflow reads them."""
    from airflow.providers_manager import ProvidersManager

    manager: Any = ProvidersManager()  # type: ignore[no-untyped-call]
    prefix = "extra__cloudstore__"
    # Filled from the hook's classmethods before Airflow 3.2, from the provider info since.
    widgets = {name.removeprefix(prefix) for name in manager.connection_form_widgets if name.startswith(prefix)}
    behaviour = manager.field_behaviours.get("cloudstore")
    return {"fields": sorted(widgets), "behaviour": behaviour}


def modules() -> list[str]:
    """Import every module of the package and return their names."""
    names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    for name in names:
        if not name.endswith(("__main__", "emulator.fixtures")):  # pytest imports the fixtures
            importlib.import_module(name)
    return names


if __name__ == "__main__":
    result = {"file": package.__file__, "modules": modules(), "form": connection_form()}
    sys.stdout.write("\n" + json.dumps(result) + "\n")
