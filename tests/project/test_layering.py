"""Arrows point down: glue -> clients -> protocol. Ruff says so in each folder; this says so for what is really imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "airflow_provider_cloudstore"
OWN = PACKAGE.name
STANDARD = sys.stdlib_module_names - {"socket", "time", "asyncio", "ssl", "threading", "select", "http"}
HTTP = {"requests", "aiohttp", "certifi", "yarl", "urllib3", "http"}
ALLOWED = {
    "protocol": {f"{OWN}.exceptions", f"{OWN}.protocol", "pendulum", *STANDARD},
    "batch": {f"{OWN}.exceptions", f"{OWN}.protocol", f"{OWN}.clients", f"{OWN}.batch", *sys.stdlib_module_names},
    "clients": {f"{OWN}.exceptions", f"{OWN}.protocol", f"{OWN}.clients", "pendulum", *HTTP, *sys.stdlib_module_names},
}

NOT_LOADED = {"exceptions", "protocol", "clients", "batch", "hooks", "triggers", "fs", "assets", "compat"}
"""What only a running task needs is imported in ``execute``: a DAG file does not pay for it."""


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_is_below_it(layer: str) -> None:
    files = sorted((PACKAGE / layer).glob("*.py"))
    assert files
    for file in files:
        for name in imports(file):
            if name.startswith(f"{OWN}."):
                prefix = ".".join(name.split(".")[:2])
                assert prefix in ALLOWED[layer] or name == f"{OWN}.__version__", f"{file.name} imports {name}"
            else:
                assert name.split(".")[0] in ALLOWED[layer], f"{file.name} imports {name}"


def own_imports(file: Path) -> set[str]:
    """The rooms of the package that a file imports from."""
    return {name.split(".")[1] for name in imports(file) if name.startswith(f"{OWN}.")}


def test_the_emulator_imports_the_protocol_alone() -> None:
    for file in (PACKAGE / "emulator").glob("*.py"):
        assert own_imports(file) <= {"emulator", "exceptions", "protocol"}, file.name


def test_the_doctor_uses_hooks_clients_and_protocol_and_nothing_uses_the_doctor() -> None:
    below = {"exceptions", "hooks", "clients", "protocol", "provider_info"}
    for file in PACKAGE.rglob("*.py"):
        own = own_imports(file)
        assert own <= {"doctor", *below} if file.parent.name == "doctor" else "doctor" not in own, file


GLUE = (".", "assets", "operators", "sensors", "triggers", "hooks", "fs")


@pytest.mark.parametrize(
    ("layer", "above"),
    [
        ("hooks", {"triggers", "operators", "sensors", "fs"}),
        ("triggers", {"operators", "sensors", "fs"}),
        ("operators", {"sensors", "fs"}),
    ],
)
def test_the_arrows_within_the_glue_point_down(layer: str, above: set[str]) -> None:
    for file in (PACKAGE / layer).glob("*.py"):
        assert not own_imports(file) & above, file.name


def test_only_compat_depends_on_the_airflow_version() -> None:
    for folder in (*GLUE, "doctor", "emulator"):
        for file in (PACKAGE / folder).glob("*.py"):
            found = re.findall("except (?:ImportError|ModuleNotFoundError)|AIRFLOW_V", file.read_text())
            assert not found or file.name == "compat.py", f"{file.name}: {found}"


def test_glue_speaks_no_http() -> None:
    for folder in GLUE[:-1]:
        for file in (PACKAGE / folder).glob("*.py"):
            returned = {"requests"} if (folder, file.name) == ("hooks", "cloudstore.py") else set()  # by get_conn()
            assert not ({name.split(".")[0] for name in imports(file)} - returned) & HTTP
            assert ".status" not in file.read_text()


def test_importing_the_operators_and_the_sensor_loads_only_what_a_dag_file_needs() -> None:
    code = (
        "import sys; import airflow_provider_cloudstore\n"
        "assert not {'airflow', 'aiohttp', 'requests', 'pendulum'} & sys.modules.keys()\n"
        "import airflow.providers.common.compat.sdk as sdk\n"
        "[getattr(sdk, n) for n in ('BaseOperator', 'BaseHook', 'BaseSensorOperator', 'AirflowSensorTimeout', 'conf')]\n"
        "before = {name for name in sys.modules if not name.startswith('airflow_provider_cloudstore')}\n"
        f"import {OWN}.operators.cloudstore, {OWN}.sensors.cloudstore\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name.split(".") for name in run.stdout.splitlines()[-1].split()]
    assert {name[0] for name in loaded} == {OWN}
    assert not {name[1] for name in loaded if name[1:]} & NOT_LOADED
