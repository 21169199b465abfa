"""Gives a script an Airflow of its own: SQLite, the example DAGs, and nothing of the machine's other Airflows."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(home: Path, **extra: str) -> dict[str, str]:
    """The environment of an Airflow whose home is ``home``; what the caller's own says of Airflow is left out.

    :param home: its ``AIRFLOW_HOME``.
    :param extra: more variables.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags_examples"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # SQLite gives up after five seconds by default, which a busy machine needs for one write.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=120",
        # The bin folder of this virtual environment first: Airflow starts itself by name.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}",
    }
    return {**inherited, **own, **extra}


def migrate(home: Path) -> None:
    """Bring the database in ``home`` into being; done already, it costs nothing.

    :param home: the ``AIRFLOW_HOME``; two callers at once do it once.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = home / "migrated"
        stamp = str((Path(sys.prefix) / "stamp").stat().st_mtime_ns) if (Path(sys.prefix) / "stamp").exists() else ""
        if done.exists() and done.read_text() == stamp:
            return
        (home / "airflow.db").unlink(missing_ok=True)
        with (home / "migrate.log").open("w") as log:
            subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"], env=environment(home), stdout=log, stderr=log, check=True
            )
        done.write_text(stamp)


def copy_of(home: Path, target: Path) -> Path:
    """A second home with a database of its own, so that two runs at once do not meet.

    :param home: a migrated home.
    :param target: where the copy goes.
    """
    target.mkdir(parents=True)
    shutil.copy(home / "airflow.db", target / "airflow.db")
    return target
