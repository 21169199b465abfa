"""The docs agree with the code: links, names, commands, tables and generated pages."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.faults import Kind
from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.protocol import results
from airflow_provider_cloudstore.protocol.settings import EXTRA_KEYS, Settings, warnings_about
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.doc_blocks import PAGES as READ_BY_USERS
from tests.doc_blocks import PYTHON, ROOT, blocks, code_of, commands
from tests.wire.failure_table import ERRORS

PACKAGE = ROOT / "airflow_provider_cloudstore"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAMING_PATHS = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/project/architecture.md",
    "docs/project/where-a-change-goes.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_picture_is_small_shown_on_a_page_and_described_in_words() -> None:
    shown = {
        (page.parent / target).resolve(): words
        for page in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text())
    }
    pictures = {*(ROOT / "docs").rglob("*.png")}
    assert pictures == shown.keys()
    assert not [file.name for file, words in shown.items() if len(words) < 20]
    assert not [file.name for file in pictures if file.stat().st_size > 150_000]


def test_the_readmes_dag_is_a_dag_of_the_operators_it_names() -> None:
    code = code_of("README.md-0")
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    dag = names["upload"].dag  # type: ignore[attr-defined]
    assert {type(task).__name__ for task in dag.tasks} == {
        "RemoteUrlUploadOperator",
        "DownloadLinkOperator",
        "DeleteFolderOperator",
    }
    assert code == code_of("first-dag.md-0")


@pytest.mark.parametrize("page", READ_BY_USERS, ids=lambda page: page.name)
def test_code_fits_into_the_page(page: Path) -> None:
    code = "".join(re.findall(r"^ *```(?:python|console)\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE))
    assert not [line for line in code.splitlines() if len(line) > 84]


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "operate" / "guarantees.md").read_text()))
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert not [name for name in named if f"def {name}(" not in tests]


def test_every_error_and_every_extra_is_documented() -> None:
    kinds = {
        name for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, exceptions.CloudStoreError)
    } - {"PermanentError", "BatchEndedError"}  # what others have in common
    page = (ROOT / "docs" / "operate" / "failures.md").read_text()
    assert not [f"docs/operate/failures.md needs a heading {name}" for name in kinds if f"\n### {name}" not in page]
    page = (ROOT / "docs" / "operate" / "connection.md").read_text()
    assert not [f"docs/operate/connection.md needs `{key}`" for key in EXTRA_KEYS if f"`{key}`" not in page]


def printed_by_the_package() -> list[str]:
    """Every string in the package's code but docstrings; the variable parts of messages are left out."""
    trees = [ast.parse(file.read_text()) for file in (ROOT / "airflow_provider_cloudstore").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    strings = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docs]
    return [str(node.value) for node in strings]


def test_every_message_that_the_failures_page_explains_is_one_that_the_package_prints() -> None:
    page = (ROOT / "docs" / "operate" / "failures.md").read_text()
    messages = [message for line in re.findall(r"^- (`.+?`): ", page, re.MULTILINE) for message in re.findall(r"`([^`]+)`", line)]
    parts = {part.strip() for message in messages for part in message.split("…") if len(part.strip()) > 2}
    printed = printed_by_the_package()
    assert messages
    assert not sorted(part for part in parts if not any(part in text for text in printed))


def test_every_fault_of_the_emulator_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "emulator.md").read_text().partition("| kind |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)) == sorted(kind.value for kind in Kind)


def test_every_make_target_that_the_docs_name_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    slow = makefile.partition("SLOW := ")[2].partition("\n\n")[0].split()
    for page in PAGES:
        for target in re.findall(r"(?:`|^)make ([a-z-]+)(?:`| )", page.read_text(), re.MULTILINE):
            known = target in slow or re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert known, f"{page.name}: make {target}"


def test_every_python_block_is_run_by_a_test() -> None:
    folders = [ROOT / "tests" / "docs", ROOT / "tests" / "airflow"]
    tests = "".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))
    assert not [block.name for block in PYTHON if f'"{block.name}"' not in tests]


COMMANDS = [command for page in READ_BY_USERS for block in blocks(page, "console") for command in commands(block)]
EMULATOR = [line for line in COMMANDS if line.startswith("python -m airflow_provider_cloudstore.emulator")]
DOCTOR = [
    line for line in COMMANDS if line.startswith("python -m airflow_provider_cloudstore.doctor")
]  # tests/docs/test_doctor.py
EXPORTS = [line for line in COMMANDS if line.startswith("export AIRFLOW_CONN_CLOUDSTORE_DEFAULT=")]


def test_every_command_is_run_by_a_test() -> None:
    # CI runs `make`, tests/project/packaging runs pip in a new environment, tests/airflow/first_day runs Airflow's commands.
    starts = ("make ", "pip ", "python3.11 -m venv ", ". ~/cloudstore-venv/", "airflow ", "export AIRFLOW__")
    elsewhere = {line for line in COMMANDS if line.startswith(starts)}
    assert set(COMMANDS) == {*EMULATOR, *DOCTOR, *EXPORTS, *elsewhere}
    assert EMULATOR
    assert EXPORTS


def connection_in(export: str) -> Settings:
    """The settings in an ``export``, parsed by the shell's rules and then the hook's."""
    (assignment,) = shlex.split(export, comments=True)[1:]
    connection = json.loads(assignment.partition("=")[2])
    extra = connection.get("extra", {})
    assert not warnings_about(connection["conn_type"], extra)
    return Settings.from_connection(
        host=connection["host"], schema=None, port=None, password=connection["password"], extra=extra
    )  # fmt: skip


@pytest.mark.parametrize("command", EMULATOR)
def test_the_emulator_runs_as_documented_and_stops_with_ctrl_c(command: str) -> None:
    arguments = [sys.executable, *shlex.split(re.sub(r"--port \d+", "--port 0", command))[1:]]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        export = next(line for line in started.stdout if line.startswith("export "))
        assert connection_in(export).base_url.startswith("http://127.0.0.1:")
    finally:
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=30) == 0


@pytest.mark.parametrize("export", [line for line in EXPORTS if "{" in line])
def test_a_connection_in_the_docs_is_valid_unchanged(export: str) -> None:
    assert connection_in(export).timeout in (30, 60)


def test_the_reference_documents_every_class_that_users_import_and_nothing_that_is_missing() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    named = re.findall(r"^\.\. auto(?:class|function):: (\S+)\.(\w+)$", pages, re.MULTILINE)
    assert all(callable(getattr(importlib.import_module(module), name)) for module, name in named)
    assert f".. automodule:: {exceptions.__name__}\n" in pages
    expected = {*operators.__all__, "CloudStoreHook", "CloudStoreAsyncHook", "FileAvailableSensor"} - {name for _, name in named}
    assert not [f"a page of docs/reference needs '.. autoclass::' with {name}" for name in expected]
    unlisted = {name for name, kind in vars(results).items() if is_of(results, kind)} - {*results.__all__}
    assert not [f"protocol/results.py needs '{name}' in __all__, which the reference lists" for name in unlisted]


def is_of(module: object, kind: object) -> bool:
    is_own = isinstance(kind, type) and kind.__module__ == getattr(module, "__name__", "") and not kind.__name__.startswith("_")
    return is_own and hasattr(kind, "to_dict")  # what a caller gets, and not what makes it


def test_the_pages_agree_on_which_errors_are_retried_and_permanent() -> None:
    assert ERRORS
    for name, row in ERRORS.items():
        kind: type[exceptions.CloudStoreError] = vars(exceptions)[name]
        assert (row.retried, row.permanent) == (kind.retried, kind.permanent), name


def test_every_module_says_first_what_it_decides_and_the_architecture_names_every_part() -> None:
    modules = {file: file.read_text() for folder in (PACKAGE, ROOT / "scripts") for file in folder.rglob("*.py")}
    first_lines = {
        file: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0] for file, text in modules.items() if text.strip()
    }
    assert not [file for file, line in first_lines.items() if not line.endswith((".", ":"))]
    page = "".join((ROOT / one).read_text() for one in ("ARCHITECTURE.md", "docs/project/where-a-change-goes.md"))
    parts = [*PACKAGE.glob("[a-z]*/"), *(ROOT / "tests").glob("[a-z]*/"), *(PACKAGE / "protocol").glob("[a-z]*.py")]
    assert not [part for part in parts if not re.search(rf"\b{re.escape(part.name)}\b", page)]


def test_every_path_that_these_pages_name_exists() -> None:
    pages = "".join((ROOT / page).read_text() for page in NAMING_PATHS)
    named = set(re.findall(r"`((?:[\w.-]+/)[\w./-]*|[\w-]+\.(?:py|md|sh|toml))`", pages))
    assert named
    assert not sorted(path for path in named if not any((top / path).exists() for top in (ROOT, PACKAGE, PACKAGE / "protocol")))


def test_the_readmes_table_names_what_can_be_called() -> None:
    classes = {name: getattr(operators, name) for name in operators.__all__} | {"FileAvailableSensor": FileAvailableSensor}
    rows = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert not [f"README.md needs a row for {name} in its table of operators" for name in classes.keys() - rows]
    for name, parameters in rows.items():
        assert {*re.findall(r"(\w+)=", parameters)} <= inspect.signature(classes[name].__init__).parameters.keys()
