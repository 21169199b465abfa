"""What is imported is declared, its floors are tested, and the README, the changelog and the tag show what is there."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import tomllib
from pathlib import Path

from packaging.version import Version

import airflow_provider_cloudstore
from tests.project.test_layering import FILES, imports

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS = dict(re.findall(r"^([\w.-]+)>=([\w.]+)$", "\n".join(PROJECT["dependencies"]), re.MULTILINE))
MAKEFILE = (ROOT / "Makefile").read_text()
MATRIX: list[str] = re.findall(r"^MATRIX := (.*)$", MAKEFILE, re.MULTILINE)[0].split()
PAIRS = [(airflow, python or "3.11") for airflow, _, python in (name.partition("-py") for name in MATRIX)]
"""Each Airflow with its Python."""
# Airflow 2.11 alone has the first two, and its connection form alone asks for them; pytest is there where the fixture is used.
OTHERS = {"flask_appbuilder", "wtforms", "pytest"}


def test_what_the_package_imports_is_declared_with_a_floor() -> None:
    imported = {name.split(".")[0] for _, file in FILES for name in imports(file)}
    declared = {"airflow" if name == "apache-airflow" else name for name in FLOORS}
    assert len(FLOORS) == len(PROJECT["dependencies"])
    assert imported - sys.stdlib_module_names - OTHERS - {"airflow_provider_cloudstore"} <= declared


def test_the_floors_are_what_the_oldest_airflow_was_released_with_and_tested_together() -> None:
    pins = (ROOT / "constraints" / f"airflow-{MATRIX[0]}.txt").read_text()
    tested = dict(re.findall(r"^([\w.-]+)==([\w.]+)", pins, re.MULTILINE))
    floors = FLOORS | {"apache-airflow": MATRIX[0]}
    assert {name: Version(tested[name]) for name in floors} == {name: Version(floor) for name, floor in floors.items()}


def test_the_page_of_versions_lists_what_is_pinned_and_tested_with_the_day_of_the_pins() -> None:
    page = (ROOT / "docs" / "project" / "versions.md").read_text()
    shown = re.findall(r"^\| (\d+\.\d+\.\d+) \| ([\d-]+) \| ([\d., ]+) \|$", page, re.MULTILINE)
    pairs = {(airflow, python) for airflow, _, pythons in shown for python in pythons.split(", ")}
    assert pairs == {*PAIRS}
    assert {airflow: day for airflow, day, _ in shown} == dict(re.findall(r"^DAY_(\S+) := (\S+)$", MAKEFILE, re.MULTILINE))
    for airflow, _ in pairs:
        assert f"\napache-airflow=={airflow}\n" in (ROOT / "constraints" / f"airflow-{airflow}.txt").read_text()


def test_the_workflows_test_the_whole_matrix() -> None:
    workflows = ROOT / ".github" / "workflows"
    (tested,) = re.findall(r"^ +airflow: (\[.*\])$", (workflows / "tests.yml").read_text(), re.MULTILINE)
    assert json.loads(tested) == MATRIX
    released = re.findall(r'{ airflow: "(.+)", python: "(.+)" }', (workflows / "release.yml").read_text())
    assert released == PAIRS


def test_the_changelog_begins_with_what_is_unreleased_and_a_tag_has_the_version_and_an_entry() -> None:
    entries = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert entries[0] == "Unreleased"
    own = airflow_provider_cloudstore.__version__
    if tag := os.environ.get("TAG"):  # make package TAG=... hands over the tag of a release
        assert (tag, entries[1:2]) == (f"v{own}", [own])


def test_the_package_under_test_is_the_wheels_if_that_was_asked_for() -> None:
    imported = Path(airflow_provider_cloudstore.__file__)
    assert imported.is_relative_to(sysconfig.get_path("purelib")) == ("INSTALLED" in os.environ)
