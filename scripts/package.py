"""Builds what is released, into ``dist/``: from a commit, reproducibly, and only if version, changelog and tag agree."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from airflow_provider_cloudstore import __version__
from scripts.airflow_home import ROOT

DIST = ROOT / "dist"


def main(tag: str = "") -> int:
    """Build and check.

    :param tag: the tag of the release; empty for none.
    :returns: 0 if everything agrees.
    """
    if problem := disagreement(__version__, (ROOT / "CHANGELOG.md").read_text(), tag) or uncommitted():
        print(problem, file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    committed = run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "dist"
        # Once the wheel comes from the sdist, and once from the commit's files.
        for number, (target, wanted) in enumerate(((DIST, []), (again, ["--sdist", "--wheel"]))):
            command = [sys.executable, "-m", "build", "--no-isolation", *wanted, "--outdir", str(target)]
            run(*command, cwd=exported(Path(folder) / str(number)), SOURCE_DATE_EPOCH=committed)
        if digests(DIST) != digests(again):
            print(f"Two builds differ: {digests(DIST)} and {digests(again)}", file=sys.stderr)
            return 1
    built = [str(file) for file in sorted(DIST.iterdir())]
    print(run(sys.executable, "-m", "twine", "check", "--strict", *built), end="")
    print(run(sys.executable, "-m", "check_wheel_contents", str(DIST)), end="")
    print(run(sys.executable, "-m", "validate_pyproject", "pyproject.toml"), end="")
    for name, digest in digests(DIST).items():
        print(f"{digest}  dist/{name}")
    return 0


def disagreement(version: str, changelog: str, tag: str) -> str:
    """Why the version cannot be released, or nothing.

    :param version: the package's.
    :param changelog: the text of the changelog.
    :param tag: the tag of the release; empty for none.
    """
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    if newest is None or newest[1] != version:
        return f"The package is {version}, but the newest entry of CHANGELOG.md is {newest[1] if newest else 'missing'}"
    return f"The package is {version}, but the tag is {tag}: it must be v{version}" if tag not in ("", f"v{version}") else ""


def uncommitted() -> str:
    """What keeps the checkout from being a commit, or nothing."""
    changes = run("git", "status", "--porcelain")
    return f"A release is built from a commit; commit or remove these first:\n{changes}" if changes else ""


def exported(folder: Path) -> Path:
    """The files of the commit, and no others: git hides some files of a checkout that a build would find.

    :param folder: where to write them.
    """
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder, by its name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def run(*command: str, cwd: Path = ROOT, **env: str) -> str:
    """Run a program.

    :param cwd: the folder to run it in.
    :param env: environment variables for it.
    :returns: what it printed.
    :raises CalledProcessError: if it failed.
    """
    return subprocess.run(command, cwd=cwd, env=os.environ | env, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr)
        sys.exit(f"{' '.join(error.cmd[:4])} ... ended with status {error.returncode}")
