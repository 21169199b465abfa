"""pyright, strict, finds nothing wrong with our signatures in what users write. In ``make lint``, mypy reads most of it, too.

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
from pathlib import Path
from typing import Any

import pytest

from tests.doc_blocks import PYTHON, ROOT

pytest.importorskip("basedpyright", reason="basedpyright is not installed: make test-typed installs it")
pytestmark = pytest.mark.slow

TYPED = Path(__file__).resolve().parent
REJECTED = TYPED / "rejected.py"
INCOMPLETE = ("download.md-0", "emulator.md-0", "many-uploads.md-1", "upload-and-share.md-1")
"""Blocks whose imports and names their page leaves to the reader."""
AIRFLOWS_OWN = {
    "reportMissingTypeStubs": r'Stub file not found for "airflow\.',
    # The second is a mapped operator's output.
    "reportArgumentType": r'parameter "params" of type "ParamsDict"|^Argument of type "(object \| Any|XComArg)"',
    "reportUnknownMemberType": r'^Type of "(expand|open|read|readline|decode|sensor|short_circuit|test)" is partially unknown',
    # What ObjectStoragePath.open() returns is an object to checkers.
    "reportUnknownArgumentType": r'Argument type is ("Unknown \| Any"|unknown\s+Argument corresponds to parameter "links")',
    "reportAttributeAccessIssue": r'attribute "decode" for class "object"',
    "reportIndexIssue": r'^"__getitem__" method not defined on type "XComArg"',  # a mapped operator's output
    "reportUnusedExpression": r"^Expression value is unused",  # upload >> link
}
"""pyright's errors that the same DAG of Airflow's own operators has: the rule, and what it says."""


def what_users_write(folder: Path) -> None:
    """The examples and the Python blocks of the docs, as files of a project of their own."""
    for file in [*(ROOT / "dags_examples").glob("*.py"), TYPED / "accepted.py", REJECTED]:
        shutil.copy(file, folder)
    for block in PYTHON:
        if block.name not in INCOMPLETE:
            (folder / f"{re.sub(r'[.-]', '_', block.name)}.py").write_text(block.code)
    (folder / "test_your_dag_md_0.py").rename(folder / "share.py")  # the page's name for it: its test imports it


def test_nothing_is_wrong_in_what_users_write_and_what_is_wrong_is_rejected(tmp_path: Path) -> None:
    what_users_write(tmp_path)
    config = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(tmp_path), "--pythonpath", sys.executable]
    env = os.environ | {"PYTHONPATH": str(ROOT)}  # the environment may hold another checkout
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(tmp_path.glob("*.py")))
    found: list[dict[str, Any]] = [
        one
        for one in report["generalDiagnostics"]
        if one["severity"] == "error" and not re.search(AIRFLOWS_OWN.get(one.get("rule"), "(?!)"), one["message"])
    ]
    assert not [one for one in found if Path(one["file"]).name != REJECTED.name]
    wrong = {number for number, line in enumerate(REJECTED.read_text().splitlines()) if "# wrong" in line}
    assert {one["range"]["start"]["line"] for one in found} == wrong
