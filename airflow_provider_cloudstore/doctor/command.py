"""The doctor as a command: ``airflow cloudstore doctor`` where Airflow has commands of providers, and its module everywhere."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, NoReturn

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

DESCRIPTION = "Shows what a service answers, and how an Airflow connection reads it. By default it only reads; it never deletes."
EPILOG = "Exit status: 0 if tasks can rely on it, as far as tried; 1 if not; 2 if the connection or an argument is invalid."
OPTIONS: dict[str, dict[str, Any]] = {  # each flag, as argparse takes it
    "--conn-id": {"default": DEFAULT_CONN_ID, "help": f"the Airflow connection; default: {DEFAULT_CONN_ID}"},
    "--wrong-token": {"action": "store_true", "help": "also send a wrong token, which may lock an account"},
    "--upload": {"metavar": "URL", "help": "upload this file, which stays, and wait for its link"},
    "--file-id": {"metavar": "ID", "help": "ask for the link of this file, which exists"},
    "--wait": {"metavar": "SECONDS", "type": float, "default": 300.0, "help": "how long to wait for the link; default: 300"},
    "--set": {"metavar": "EXTRA=VALUE", "action": "append", "default": [], "help": "a setting for this run; repeatable"},
    "--json": {"action": "store_true", "help": "print the report as JSON"},
}


def run(given: argparse.Namespace) -> NoReturn:
    """Print the report, and exit with the status that :data:`EPILOG` describes: ``airflow`` ignores what a command returns."""
    # What `airflow connections` does: without it, Airflow 3 reads connections from the environment and secrets backends only.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    stdout = os.dup(1)
    os.dup2(2, 1)  # where Airflow's log handlers write, also when the process ends
    from airflow_provider_cloudstore.compat import AirflowException
    from airflow_provider_cloudstore.doctor import diagnose

    asked = {name: getattr(given, name) for name in ("wrong_token", "upload", "file_id", "wait")}
    try:
        report = diagnose(given.conn_id, extras=dict(text.partition("=")[::2] for text in given.set), **asked)
    except AirflowException as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    with os.fdopen(stdout, "w") as output:
        print(json.dumps(report.to_dict(), indent=2) if given.json else report, file=output)
    sys.exit(0 if report.usable else 1)


def main(arguments: list[str] | None = None) -> NoReturn:
    """As :func:`run`, for ``python -m``; the arguments are those after the program's name."""
    parser = argparse.ArgumentParser("python -m airflow_provider_cloudstore.doctor", description=DESCRIPTION, epilog=EPILOG)
    for flag, more in OPTIONS.items():
        parser.add_argument(flag, **more)
    run(parser.parse_args(arguments))


def commands() -> list[Any]:
    """The commands of ``airflow``, which ``provider_info`` declares."""
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    arguments = tuple(Arg((flag,), **more) for flag, more in OPTIONS.items())  # type: ignore[no-untyped-call]
    doctor = ActionCommand("doctor", "Check a connection against the service", run, arguments, DESCRIPTION, EPILOG)
    return [GroupCommand("cloudstore", "Check a cloud file storage service", [doctor])]
