"""The workflows run what ``.ci/run`` runs, and actions that nobody can change unseen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = {file.name: file.read_text() for file in sorted((ROOT / ".github" / "workflows").iterdir())}
MAKE = shutil.which("make") or "make"
# The make that runs the tests hands its options to the makes below it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}


def targets(workflow: str) -> set[str]:
    """The make targets of a workflow, one for each value of its matrix."""
    text = WORKFLOWS[workflow]
    values = {
        "airflow": re.findall(r'"([^"]+)"', " ".join(re.findall(r'airflow: (\[.*\]|"[^"]+")', text))),
        "target": re.findall(r"^ {10}- ([\w-]+)$", text.partition("target:\n")[2], re.MULTILINE),
    }
    found: set[str] = set()
    for target in re.findall(r"\brun: make (.*)$", text, re.MULTILINE):
        start, _, variable = target.partition("${{ matrix.")
        found |= {start + value for value in values[variable.removesuffix(" }}")]} if variable else {target}
    return found


@pytest.fixture
def parts(tmp_path: Path) -> set[str]:
    """What ``.ci/run`` asks of make, which only notes it here."""
    (tmp_path / "make").write_text(f"""#!/bin/sh
for target; do :; done
echo "$target" >> {tmp_path}/targets
[ "$target" != matrix-names ] || exec {MAKE} "$@"
""")
    (tmp_path / "make").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([ROOT / ".ci" / "run"], env=ENVIRONMENT | {"PATH": path}, check=True, stdout=subprocess.DEVNULL, timeout=60)
    asked = set((tmp_path / "targets").read_text().split())
    return {target for target in asked if not target.startswith("env-")} - {"matrix-names"}


def test_the_workflow_runs_all_parts_of_the_local_run(parts: set[str]) -> None:
    assert {"lint", "test", "package", "test-on-2.11.2"} <= parts
    assert parts - targets("tests.yml") == set()


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_target_of_a_workflow_exists(workflow: str) -> None:
    assert targets(workflow)
    command = [MAKE, "-n", *targets(workflow)]
    made = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_action_is_pinned_to_a_commit(workflow: str) -> None:
    used = re.findall(r"\buses: (.*)$", WORKFLOWS[workflow], re.MULTILINE)
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action)] == []
