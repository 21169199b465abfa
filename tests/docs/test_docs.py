"""The docs agree with the code: links, names, imports, commands and connections."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.faults import Kind
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.protocol.settings import EXTRAS, Settings
from airflow_provider_cloudstore.provider_info import connection_form
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.doc_blocks import ON_AIRFLOW_2, PYTHON, ROOT, blocks, code_of, commands, example, for_this_airflow
from tests.doc_blocks import PAGES as READ_BY_USERS
from tests.support import connected

PACKAGE = ROOT / "airflow_provider_cloudstore"
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
NAMING_PATHS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *(DOCS / "project").glob("*.md")]
SOURCE = "https://example.com/report.csv"
CHOICES = {name: getattr(operators, name) for name in operators.__all__} | {"FileAvailableSensor": FileAvailableSensor}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readmes_dag_is_that_of_the_page_which_runs_it() -> None:
    assert code_of("README.md-0") == code_of("first-dag.md-0")


def test_every_test_that_the_architecture_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert not [name for name in named if f"def {name}(" not in tests]


def test_every_extra_is_documented_with_its_help_and_default_and_no_other() -> None:
    page = (DOCS / "operate" / "connection.md").read_text()
    table = page.partition("| extra | meaning | default |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ").replace("`", "")) for line in table.splitlines()]
    told = {name: (meaning.replace("\\|", "|"), default) for name, meaning, default in rows}
    assert sorted(told) == sorted(connection_form())
    for name, extra in EXTRAS.items():
        meaning, default = told[name]
        assert meaning.startswith(extra.help), name
        if isinstance(extra.default, (int, float)):
            assert default == str(extra.default).lower(), name


def test_the_hooks_of_the_reference_upload_what_the_page_says(emulator: Emulator) -> None:
    names: dict[str, Any] = {}
    for block in ("hooks.md-0", "hooks.md-1"):
        exec(for_this_airflow(code_of(block)), names)
    found = [
        names["upload_report"].function(SOURCE),
        *asyncio.run(names["upload_reports"].function([f"{SOURCE}1", f"{SOURCE}2"])),
    ]
    assert sorted(found) == sorted(file["file_id"] for file in emulator.state()["files"])


def test_every_fault_of_the_emulator_is_documented_and_no_other() -> None:
    page = (DOCS / "reference" / "emulator.md").read_text()
    assert sorted(re.findall(r"^- `([a-z_]+)`: ", page, re.MULTILINE)) == sorted(kind.value for kind in Kind)


def test_every_make_target_that_the_docs_name_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    slow = makefile.partition("SLOW := ")[2].partition("\n\n")[0].split()
    for page in PAGES:
        for target in re.findall(r"(?:`|^)make ([a-z-]+)(?:`| )", page.read_text(), re.MULTILINE):
            known = target in slow or re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert known, f"{page.name}: make {target}"


@pytest.mark.parametrize("statement", ON_AIRFLOW_2)
def test_the_imports_of_the_page_are_there_on_this_airflow(statement: str) -> None:
    exec(for_this_airflow(statement), {})


@pytest.mark.parametrize("file", sorted((ROOT / "dags_examples").glob("*.py")), ids=lambda file: file.stem)
def test_an_example_has_its_dag_with_the_imports_of_this_airflow(file: Path) -> None:
    assert example(file)["dag"].dag_id == f"example_{file.stem}"


def test_every_python_block_is_run_by_a_test() -> None:
    folders = [ROOT / "tests" / "docs", ROOT / "tests" / "airflow"]
    tests = "".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))
    assert not [block.name for block in PYTHON if f'"{block.name}"' not in tests]


COMMANDS = [command for page in READ_BY_USERS for block in blocks(page, "console") for command in commands(block)]
EMULATOR = [line for line in COMMANDS if line.startswith("python -m airflow_provider_cloudstore.emulator")]
EXPORTS = [line for line in COMMANDS if line.startswith("export AIRFLOW_CONN_CLOUDSTORE_DEFAULT=")]


def connection_in(export: str) -> Settings:
    """The settings in an ``export``, parsed by the shell's rules and then the hook's."""
    (assignment,) = shlex.split(export, comments=True)[1:]
    connection = json.loads(assignment.partition("=")[2])
    extra = connection.get("extra", {})
    settings = connected(extra, connection["host"], connection["password"])
    assert not settings.warnings
    return settings


def test_the_emulator_takes_the_documented_flags_and_stops_with_ctrl_c() -> None:
    flags = [word for command in EMULATOR for word in shlex.split(re.sub(r"--port \d+", "--port 0", command))[3:]]
    program = [sys.executable, "-m", "airflow_provider_cloudstore.emulator", *flags]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            url = started.stdout.readline().split()[2]
            settings = connection_in(started.stdout.readline())
            assert (settings.base_url, settings.access_token.reveal()) == (url, "trying")
            assert started.stdout.readline() == f"To upload: https://example.com/ANY_NAME, {url}/_emulator/sources/ANY_NAME\n"
            assert requests.get(f"{url}/_emulator/state", timeout=5).ok
            started.send_signal(signal.SIGINT)
            rest, errors = started.communicate(timeout=30)
            assert (started.returncode, rest, "Traceback" in errors) == (0, "Stopped.\n", False)
        finally:
            started.kill()


def test_a_connection_in_the_docs_is_valid_unchanged() -> None:
    assert EXPORTS
    assert all(connection_in(export) for export in EXPORTS)


def test_the_pages_of_the_project_name_only_paths_that_exist() -> None:
    pages = "".join(page.read_text() for page in NAMING_PATHS)
    named = set(re.findall(r"`((?:[\w.-]+/)[\w./-]*|[\w-]+\.(?:py|md|sh|toml))`", pages))
    assert named
    assert not sorted(path for path in named if not any((top / path).exists() for top in (ROOT, PACKAGE, PACKAGE / "protocol")))


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda page: page.name)
def test_a_table_of_operators_names_all_of_them_and_methods_that_exist(page: Path) -> None:
    text = page.read_text()
    assert not [f"{page.name} needs {name}" for name in CHOICES if f"`{name}" not in text]
    assert set(re.findall(r"`CloudStoreHook\(\)\.(\w+)\(", text)) <= set(dir(CloudStoreHook))
