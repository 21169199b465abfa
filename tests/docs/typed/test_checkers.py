"""mypy and pyright, both strict, find nothing wrong with our signatures in what users write.

Slow: ``make test-typed``. basedpyright is pyright with Node.js in a wheel, so that nothing is downloaded when it runs; its mode
``strict`` has pyright's rules.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doc_blocks import PYTHON, ROOT

pytest.importorskip("basedpyright", reason="basedpyright is not installed: make test-typed installs it")
pytestmark = pytest.mark.slow

TYPED = Path(__file__).resolve().parent
REJECTED = TYPED / "rejected.py"
AIRFLOWS_OWN = {
    "reportMissingTypeStubs": r'Stub file not found for "airflow\.',
    "reportArgumentType": r'parameter "params" of type "ParamsDict"|^Argument of type "object \| Any"',
    "reportUnknownMemberType": r'^Type of "(expand|open|read|readline|decode|test)" is partially unknown',
    # What ObjectStoragePath.open() returns is an object to checkers.
    "reportUnknownArgumentType": r'Argument type is ("Unknown \| Any"|unknown\s+Argument corresponds to parameter "links")',
    "reportAttributeAccessIssue": r'attribute "decode" for class "object"',
    "no-untyped-call": r'^Call to untyped function "open"',
    "index": r'^Value of type "XComArg" is not indexable',  # a mapped operator's output
    "reportIndexIssue": r'^"__getitem__" method not defined on type "XComArg"',
    "reportUnusedExpression": r"^Expression value is unused",  # upload >> link
}
"""pyright's errors that the same DAG of Airflow's own operators has: the rule, and what it says."""


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    line: int
    rule: str
    message: str


def what_users_write(folder: Path) -> None:
    """The examples, the guides and every other Python block of the docs, as files of a project of their own."""
    for example in (ROOT / "dags_examples").glob("*.py"):
        shutil.copy(example, folder)
    shutil.copy(TYPED / "accepted.py", folder)
    for block in PYTHON:
        (folder / f"{re.sub(r'[.-]', '_', block.name)}.py").write_text(block.whole)
    (folder / "test_your_dag_md_0.py").rename(folder / "share.py")  # the page's name for it: its test imports it


def pyright(folder: Path) -> list[Finding]:
    config = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run(command, env=seen_as_installed("PYTHONPATH"), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return [
        Finding(Path(found["file"]).name, found["range"]["start"]["line"] + 1, found.get("rule", ""), found["message"])
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def mypy(folder: Path) -> list[Finding]:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--no-color-output", "."]
    done = subprocess.run(
        command, cwd=folder, env=seen_as_installed("MYPYPATH"), capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^([^:\n]+):(\d+): error: (.*?)  \[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    return [Finding(file, int(line), rule, message) for file, line, message, rule in found]


def seen_as_installed(variable: str) -> dict[str, str]:
    # Elsewhere than the checked files, as in a user's project; the environment may hold another checkout.
    return os.environ | {variable: str(ROOT)}


@pytest.fixture(scope="module", params=[pyright, mypy])
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    """What a checker finds in all of it: most of its time goes into reading Airflow."""
    folder = tmp_path_factory.mktemp("project")
    what_users_write(folder)
    shutil.copy(REJECTED, folder)
    found: list[Finding] = request.param(folder)
    return [one for one in found if not re.search(AIRFLOWS_OWN.get(one.rule, "(?!)"), one.message)]


def test_nothing_is_wrong_in_what_users_write_but_airflows_own(findings: list[Finding]) -> None:
    assert not [one for one in findings if one.file != REJECTED.name]


def test_what_is_wrong_is_rejected(findings: list[Finding]) -> None:
    wrong = {number for number, line in enumerate(REJECTED.read_text().splitlines(), start=1) if "# wrong" in line}
    assert {one.line for one in findings if one.file == REJECTED.name} == wrong
