"""Upgrades an environment to the newest of everything, with pre-releases of our own dependencies, and prints these.

It is what who installs without constraints gets.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def main(airflow: str) -> int:
    """Upgrade the environment of the running interpreter, but for Airflow, and return the exit status."""
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[<>=]", requirement)[0] for requirement in requirements]
    names.remove("apache-airflow")
    upgrades = ["--upgrade", *(option for name in names for option in ("--prerelease-package", f"{name}=allow"))]
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--python", sys.executable, "--no-build-isolation"]
    done = subprocess.run([*uv, *upgrades, f"apache-airflow=={airflow}", "-e", ".[test]"], check=False, cwd=ROOT)
    for name in names:
        installed = version(name)
        print(f"NEWEST: {name} {installed}{' (pre-release)' if Version(installed).is_prerelease else ''}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
