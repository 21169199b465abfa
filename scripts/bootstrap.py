"""Creates the virtual environment for one Airflow version, using only the standard library.

Concurrent calls are safe: the second waits for the first and reuses its environment.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
NO_PYTHON = 3
"""Exit status if the required Python is not installed."""


def main(name: str, extras: str = "test") -> int:
    """Create or update ``.venv/airflow-NAME``.

    :param name: an Airflow version that has a constraint file, followed by ``-pyX.Y`` for another Python or by any word for other
        extras: ``3.3.2``, ``3.3.2-py3.13``, ``3.3.2-workbench``.
    :param extras: the project's extras to install, separated by commas.
    """
    if sys.version_info < OLDEST_PYTHON:
        print(f"Python >= 3.11 is needed, this is {sys.version.split()[0]}: make PYTHON=python3.11 ...", file=sys.stderr)
        return 1
    airflow, _, variant = name.partition("-")
    wanted = variant.removeprefix("py") if variant.startswith("py") else ""
    python = find_python(wanted) if wanted else sys.executable
    if python is None:
        print(f"NOT RUN: Airflow {airflow} on Python {wanted}: no working python{wanted} on PATH or in pyenv", flush=True)
        return NO_PYTHON
    constraints = ROOT / "constraints" / f"airflow-{airflow}.txt"
    home = ROOT / ".venv" / f"airflow-{name}"
    home.parent.mkdir(exist_ok=True)
    with (home.parent / f"airflow-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, expected = home / "stamp", _fingerprint(constraints, python, extras)
        if stamp.exists() and stamp.read_text() == expected:
            return 0
        print(f"Setting up Airflow {airflow} in {home.relative_to(ROOT)}, once (about half a minute) ...", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
        _fill(home, airflow, constraints, extras.split(","))
        stamp.write_text(expected)
    return 0


def find_python(version: str) -> str | None:
    """The first interpreter of a version that really starts; pyenv's shims exist even if they do not work."""
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    places = [*os.environ.get("PATH", "").split(os.pathsep), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin"))]
    for place in places:
        program = Path(place) / f"python{version}"
        if program.exists() and subprocess.run([program, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return str(program)
    return None


def may_use_uv(home: Path) -> bool:
    """Whether uv would use the same index as pip, whose settings it ignores."""
    asked = [str(home / "bin" / "python"), "-m", "pip", "config", "get", "global.index-url"]
    return "PIP_INDEX_URL" not in os.environ and subprocess.run(asked, capture_output=True, check=False).returncode != 0


def _fill(home: Path, airflow: str, constraints: Path, extras: list[str]) -> None:
    """Install Airflow with what its constraints pin, then the checkout without them: it must change nothing."""
    project = _pyproject()["project"]
    names = [re.split("[<>=]", requirement)[0] for requirement in project["dependencies"]]
    tools = [requirement for extra in extras for requirement in project["optional-dependencies"][extra]]
    pinned = ["-c", str(constraints)]
    # The build tools first: the checkout is then built without an isolated environment.
    build_tools = ["hatchling", "hatch-fancy-pypi-readme", "editables", "setuptools", "wheel", "uv"]
    subprocess.run([*_pip(home), *pinned, *build_tools], check=True, cwd=ROOT)
    _install(home, *pinned, f"apache-airflow=={airflow}", *names, *tools)
    before = _freeze(home)
    _install(home, "--no-build-isolation", "-e", ".")
    if changed := sorted(_freeze(home) ^ before):
        sys.exit(f"Installing the package changes what Airflow {airflow} was released with: {', '.join(changed)}")


def _pip(home: Path) -> list[str]:
    return [str(home / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]


def _install(home: Path, *arguments: str) -> None:
    uv = [str(home / "bin" / "uv"), "pip", "install", "-q", "--compile-bytecode"]
    if may_use_uv(home):
        if subprocess.run([*uv, *arguments], env=_in_environment(home), check=False, cwd=ROOT).returncode == 0:
            return
        print("uv failed (see above); falling back to pip ...", flush=True)
    subprocess.run([*_pip(home), *arguments], check=True, cwd=ROOT)


def _freeze(home: Path) -> set[str]:
    command = [str(home / "bin" / "uv"), "pip", "freeze", "--exclude-editable"]
    done = subprocess.run(command, env=_in_environment(home), check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines())


def _in_environment(home: Path) -> dict[str, str]:
    return os.environ | {"VIRTUAL_ENV": str(home)}


def _pyproject() -> dict[str, Any]:
    import tomllib  # missing from the Pythons rejected above

    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _fingerprint(constraints: Path, python: str, extras: str) -> str:
    project = _pyproject()
    asked = subprocess.run([python, "-c", "import sys; print(sys.version)"], check=True, capture_output=True, text=True)
    parts = [constraints.read_text(), str(project["project"]), str(project["build-system"]), asked.stdout, extras, str(ROOT)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"The set-up failed: {error.cmd[0]} ended with status {error.returncode}; see its output above.")
