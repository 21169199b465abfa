"""A wheel built from the checkout works next to Airflow in an empty environment (slow: it installs Airflow)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from scripts import bootstrap

ROOT = Path(__file__).resolve().parent.parent.parent.parent

OWN = "airflow_provider_cloudstore"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a program of an environment outside the checkout, with the wheel and what was newest on Airflow's release day."""
    folder, airflow = tmp_path_factory.mktemp("elsewhere"), version("apache-airflow")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTHON"))}
    env["AIRFLOW_HOME"] = str(folder / "home")
    venv.create(folder / "venv", with_pip=True)
    # uv takes the files from its cache; pip would take most of this test's time.
    if bootstrap.may_use_uv(Path(sys.prefix)):
        install = [str(Path(sys.prefix) / "bin" / "uv"), "pip", "install", "-q", "--python", str(folder / "venv")]
    else:
        install = [str(folder / "venv" / "bin" / "pip"), "install", "-qq", "--disable-pip-version-check"]
    constraints = ROOT / "constraints" / f"airflow-{airflow}.txt"
    subprocess.run([*install, "-c", str(constraints), f"apache-airflow=={airflow}", str(wheel)], env=env, check=True)

    def run(program: str, *arguments: str) -> str:
        command = [str(folder / "venv" / "bin" / program), *arguments]
        done = subprocess.run(command, cwd=folder, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    return run


def test_the_wheel_contains_the_package_its_types_and_license_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "airflow_provider_cloudstore/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"airflow_provider_cloudstore"}
    package = {name for name in names if ".dist-info/" not in name}
    assert {Path(name).suffix for name in package} == {".py", ".typed"}
    ours = {str(file.relative_to(ROOT)) for file in (ROOT / OWN).rglob("*") if file.suffix in {".py", ".typed"}}
    assert package == ours | {f"{OWN}/example_dags/{file.name}" for file in (ROOT / "dags_examples").glob("*.py")}


def test_the_long_description_has_no_relative_link_and_no_picture_that_the_index_lacks(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    (metadata,) = [files.read(name).decode() for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    assert "# airflow-provider-cloudstore" in metadata
    assert [target for target in re.findall(r"\]\(([^)]+)\)", metadata) if not target.startswith(("#", "http"))] == []


def test_airflow_shows_the_examples_with_its_own_and_imports_each(elsewhere: Callable[..., str]) -> None:
    if not version("apache-airflow").startswith("3.3."):
        pytest.skip("Airflow 3.3 is the first that looks for the examples of other providers")
    bundle = "airflow-provider-cloudstore-example-dags"
    elsewhere("airflow", "db", "migrate")
    elsewhere("airflow", "dags", "reserialize", "--bundle-name", bundle)
    shown = json.loads(elsewhere("airflow", "dags", "list", "--bundle-name", bundle, "-o", "json").splitlines()[-1])
    assert {dag["dag_id"] for dag in shown} == {f"example_{file.stem}" for file in (ROOT / "dags_examples").glob("*.py")}
    assert "No data found" in elsewhere("airflow", "dags", "list-import-errors", "--bundle-name", bundle)


def test_airflow_lists_the_provider_and_its_connection_type(elsewhere: Callable[..., str]) -> None:
    providers = json.loads(elsewhere("airflow", "providers", "list", "-o", "json").splitlines()[-1])
    assert [one["version"] for one in providers if one["package_name"] == "airflow-provider-cloudstore"]
    assert "airflow-provider-cloudstore" in elsewhere("airflow", "providers", "get", "airflow-provider-cloudstore")
    hooks = json.loads(elsewhere("airflow", "providers", "hooks", "-o", "json").splitlines()[-1])
    (hook,) = [one for one in hooks if one["connection_type"] == "cloudstore"]
    assert hook["class"] == "airflow_provider_cloudstore.hooks.cloudstore.CloudStoreHook"


def test_every_module_imports_and_the_emulator_starts_without_the_checkout(elsewhere: Callable[..., str]) -> None:
    assert str(ROOT) not in elsewhere("python", "-c", f"import {OWN}; print({OWN}.__file__)")
    files = [
        file for file in (ROOT / OWN).rglob("[a-z]*.py") if file.name != "fixtures.py" and file.parent.name != "retry_policies"
    ]  # pytest imports the fixtures, and retry policies need Airflow 3.3
    assert files
    elsewhere("python", "-c", "; ".join(f"import {'.'.join(file.relative_to(ROOT).with_suffix('').parts)}" for file in files))
    assert "--token-ttl" in elsewhere("python", "-m", f"{OWN}.emulator", "--help")
