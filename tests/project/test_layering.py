"""Arrows point down, as in ARCHITECTURE.md. Ruff says so in some folders; this says so for what is really imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "airflow_provider_cloudstore"
OWN = PACKAGE.name
FILES = [(file.relative_to(PACKAGE).parts[0].removesuffix(".py"), file) for file in sorted(PACKAGE.rglob("*.py"))]
"""Each file and its room: the folder, or the module in the package itself."""
ORDER = ("compat", "exceptions", "results", "protocol", "clients", "stores", "hooks", "triggers", "operators", "sensors", "batch")
"""From the bottom up."""
BESIDE = {
    "doctor": {"doctor", "compat", "exceptions", "results", "hooks", "clients", "protocol", "provider_info"},
    "emulator": {"emulator", "exceptions", "protocol"},
}
GLUE = {"stores", "hooks", "triggers", "operators", "sensors", "compat", "provider_info", "receipts"}
HTTP = {"requests", "aiohttp", "certifi", "yarl", "urllib3", "http"}
WAITS = {"socket", "time", "asyncio", "ssl", "threading", "select", "http"}
LIBRARIES = {
    "protocol": {"pendulum", *sys.stdlib_module_names} - WAITS,
    "batch": sys.stdlib_module_names,
    "clients": {"pendulum", *HTTP, *sys.stdlib_module_names},
}
SAME_ON_ALL_VERSIONS = {
    *(f"airflow.triggers.base.{name}" for name in ("BaseTrigger", "TriggerEvent")),
    *(f"airflow.sdk.{name}" for name in ("RetryDecision", "RetryPolicy")),
    *(f"airflow.cli.cli_config.{name}" for name in ("ActionCommand", "Arg", "GroupCommand")),
}
"""Where these names are does not depend on Airflow's version. They are slow to import."""
NOT_LOADED = {"exceptions", "protocol", "clients", "stores", "batch", "hooks", "triggers"}
"""What only a running task needs is imported in ``execute``: a DAG file does not pay for it."""
BATCH = f"{OWN}.batch.operator.RemoteUrlBatchUploadOperator"
"""All that the rest knows of batches: ``operators.cloudstore`` has each operator."""
FORM = {f"{OWN}.protocol"}
"""What Airflow loads when it asks for the connection form."""
OF_BATCH = {f"{OWN}.batch", f"{OWN}.batch.operator"}


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize(("room", "file"), FILES, ids=lambda value: getattr(value, "stem", value))
def test_a_file_imports_only_what_is_below_it(room: str, file: Path) -> None:
    names = imports(file) - ({BATCH} if file == PACKAGE / "operators" / "cloudstore.py" else set())
    rooms = {name.split(".")[1] for name in names if name.startswith(f"{OWN}.")} - {"__version__"}
    libraries = {name.split(".")[0] for name in names} - {OWN}
    if room in ORDER:
        assert not rooms & set(ORDER[ORDER.index(room) + 1 :])
    assert room in ("batch", "receipts") or "batch" not in rooms
    if room != "compat":
        assert not {name for name in names if name.startswith("airflow.")} - SAME_ON_ALL_VERSIONS
    if room in ("protocol", "clients"):
        assert rooms <= set(ORDER) - ({"compat"} if room == "protocol" else set())
    assert rooms <= BESIDE[room] if room in BESIDE else not rooms & BESIDE.keys()
    if room in LIBRARIES:
        assert libraries <= LIBRARIES[room]
    if room in GLUE:
        returned = {"requests"} if file == PACKAGE / "hooks" / "cloudstore.py" else set()  # by get_conn()
        assert not libraries & (HTTP - returned)
        assert ".status" not in file.read_text()
    if room not in {"compat", *LIBRARIES}:
        assert not re.findall("except (?:ImportError|ModuleNotFoundError)|AIRFLOW_V", file.read_text())


def test_importing_the_operators_and_the_sensor_loads_only_what_a_dag_file_needs() -> None:
    code = (
        "import sys; import airflow_provider_cloudstore\n"
        "assert not {'airflow', 'aiohttp', 'requests', 'pendulum'} & sys.modules.keys()\n"
        "from tests.authoring import DAG, task\n"
        "before = set(sys.modules)\n"
        f"import {OWN}.operators.cloudstore, {OWN}.sensors.cloudstore\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name.split(".") for name in run.stdout.splitlines()[-1].split() if name not in {*FORM, *OF_BATCH}]
    assert {name[0] for name in loaded} <= {OWN, "airflow"}
    assert not {name[1] for name in loaded if name[0] == OWN and name[1:]} & NOT_LOADED
    # Of Airflow itself, a few definitions beyond what a DAG file has already.
    assert not {part for name in loaded if name[0] == "airflow" for part in name} & {"triggers", "stats", "metrics", "providers"}
