"""Makes the virtual environment for one Airflow version, once: Python's standard library is all that it needs.

Two calls at once do not harm each other: the second waits for the first, and finds its work done.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)


def main(airflow: str) -> int:
    """Make or bring up to date ``.venv/airflow-VERSION``.

    :param airflow: an Airflow version that has a constraint file.
    :returns: the exit status.
    """
    if sys.version_info < OLDEST_PYTHON:
        print(f"Python >= 3.11 is needed, this is {sys.version.split()[0]}: make PYTHON=python3.11 ...", file=sys.stderr)
        return 1
    constraints = ROOT / "constraints" / f"airflow-{airflow}.txt"
    home = ROOT / ".venv" / f"airflow-{airflow}"
    home.parent.mkdir(exist_ok=True)
    with (home.parent / f"airflow-{airflow}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = home / "stamp", _fingerprint(constraints)
        if stamp.exists() and stamp.read_text() == wanted:
            return 0
        print(f"Setting up Airflow {airflow} in {home.relative_to(ROOT)}, once (about a minute) ...", flush=True)
        venv.create(home, with_pip=True, clear=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        # Airflow and the build tools first, so that the checkout itself needs no build environment of its own.
        subprocess.run([*pip, "-c", constraints, f"apache-airflow=={airflow}", "hatchling", "editables"], check=True, cwd=ROOT)
        subprocess.run([*pip, "-c", constraints, "--no-build-isolation", "-e", ".[dev]"], check=True, cwd=ROOT)
        stamp.write_text(wanted)
    return 0


def _fingerprint(constraints: Path) -> str:
    import tomllib  # not in the Pythons that the check above turns away

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = [constraints.read_text(), str(project["project"]), str(project["build-system"]), sys.version, str(ROOT)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"The set-up failed: pip ended with status {error.returncode}; what it said stands above.")
