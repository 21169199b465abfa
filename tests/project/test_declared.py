"""What is imported is declared, and what the README says of versions is what the Makefile and CI run."""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

import airflow_provider_cloudstore

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Airflow 2.11 alone has the first two, and its connection form alone asks for them; pytest is there where the fixture is used,
# and upath (universal_pathlib) alone loads its class of paths.
OTHERS = {"flask_appbuilder", "wtforms", "pytest", "upath"}


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for requirement in requirements}


def imported(folder: str) -> set[str]:
    found: set[str] = set()
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    return {name.split(".")[0] for name in found} - set(sys.stdlib_module_names)


def test_what_the_package_imports_is_declared() -> None:
    declared = {"airflow" if name == "apache-airflow" else name for name in distributions(PROJECT["dependencies"])}
    assert imported("airflow_provider_cloudstore") - OTHERS - {"airflow_provider_cloudstore"} <= declared


def test_every_runtime_dependency_has_a_floor_and_these_floors_are_tested_together() -> None:
    pins = (ROOT / "constraints" / f"airflow-{matrix()[0]}-lowest.txt").read_text()
    tested = dict(re.findall(r"^([\w.-]+)==([\w.]+)", pins, re.MULTILINE))
    floors = dict(re.findall(r"^([\w.-]+)>=([\w.]+)$", "\n".join(PROJECT["dependencies"]), re.MULTILINE))
    assert floors.keys() == distributions(PROJECT["dependencies"])
    del floors["apache-airflow"]  # the oldest of the matrix
    assert {name: Version(tested[name]) for name in floors} == {name: Version(floor) for name, floor in floors.items()}
    assert "://" not in pins


def test_no_test_imports_another() -> None:
    for file in (ROOT / "tests").rglob("*.py"):
        assert not re.findall(r"^\s*(?:from|import) tests\b.*\btest_\w+", file.read_text(), re.MULTILINE), file


def matrix() -> list[str]:
    (line,) = re.findall(r"^MATRIX := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(line).split()


def test_the_readme_shows_the_matrix_that_ci_runs() -> None:
    shown = re.findall(r"^\| (\d+\.\d+\.\d+) \| ([\d., ]+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    pairs = {(airflow, python) for airflow, pythons in shown for python in pythons.split(", ")}
    assert pairs == {(airflow, python or "3.11") for airflow, _, python in (name.partition("-py") for name in matrix())}


def test_the_workflows_run_the_same_matrix() -> None:
    tests, release = ((ROOT / ".github" / "workflows" / name).read_text() for name in ("tests.yml", "release.yml"))
    (line,) = re.findall(r"^ +airflow: \[(.*)\]$", tests, re.MULTILINE)
    assert re.findall(r'"([^"]+)"', line) == matrix()
    rows = re.findall(r'- { airflow: "(.*)", python: "(.*)" }$', release, re.MULTILINE)
    assert rows == [(airflow, python or "3.11") for airflow, _, python in (name.partition("-py") for name in matrix())]


@pytest.mark.parametrize("name", matrix())
def test_every_version_of_the_matrix_is_pinned_without_addresses(name: str) -> None:
    pins = (ROOT / "constraints" / f"airflow-{name.partition('-py')[0]}.txt").read_text()
    assert f"\napache-airflow=={name.partition('-py')[0]}\n" in pins
    assert "://" not in pins


def test_the_package_under_test_is_the_wheels_if_that_was_asked_for() -> None:
    imported = Path(airflow_provider_cloudstore.__file__)
    assert imported.is_relative_to(sysconfig.get_path("purelib")) == ("INSTALLED" in os.environ)
