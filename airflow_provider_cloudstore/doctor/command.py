"""The doctor as a command: ``airflow cloudstore doctor`` where Airflow has commands of providers, and its module everywhere."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import GroupCommand

DESCRIPTION = "Shows what a service answers, and how an Airflow connection reads it. By default it only reads; it never deletes."
EPILOG = "Exit status: 0 if tasks can rely on it, as far as tried; 1 if not; 2 if an argument was refused."
OPTIONS: dict[str, dict[str, Any]] = {
    "--conn-id": {"default": DEFAULT_CONN_ID, "help": f"the Airflow connection; default: {DEFAULT_CONN_ID}"},
    "--wrong-token": {"action": "store_true", "help": "also send a wrong token, which may lock an account"},
    "--upload": {"metavar": "URL", "help": "upload this file, which stays, and download it. - reads the URL from stdin"},
    "--file-id": {"metavar": "ID", "help": "ask for the link of this file, which exists"},
    "--wait": {"metavar": "SECONDS", "type": float, "default": 300.0, "help": "how long to wait for the file; default: 300"},
    "--set": {"metavar": "EXTRA=VALUE", "action": "append", "default": [], "help": "a setting for this run; repeatable"},
    "--json": {"action": "store_true", "help": "print the report as JSON"},
}
"""Each flag, as ``argparse`` takes it."""


def run(given: argparse.Namespace) -> int:
    """Run the doctor, print its report, and return the exit status that :data:`EPILOG` describes."""
    # What `airflow connections` does: without it, Airflow 3 reads connections from the environment and secrets backends only.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    output, sys.stdout = sys.stdout, sys.stderr  # for prompts, and Airflow's logs, of which the last comes when the process ends
    from airflow_provider_cloudstore.doctor import diagnose
    from airflow_provider_cloudstore.exceptions import InvalidInputError

    asked = {name: getattr(given, name) for name in ("wrong_token", "upload", "file_id", "wait")}
    try:
        asked |= {"upload": input("URL to upload: ")} if given.upload == "-" else {}
        report = diagnose(given.conn_id, extras=dict(text.partition("=")[::2] for text in given.set), **asked)
    except (InvalidInputError, EOFError, KeyboardInterrupt) as error:
        print(error if isinstance(error, InvalidInputError) else "Nothing was sent.")
        return 2
    print(json.dumps(report.to_dict(), indent=2) if given.json else report, file=output)
    return 0 if report.usable else 1


def main(arguments: list[str] | None = None) -> int:
    """As :func:`run`, for ``python -m``; the arguments are those after the program's name."""
    parser = argparse.ArgumentParser("python -m airflow_provider_cloudstore.doctor", description=DESCRIPTION, epilog=EPILOG)
    for flag, more in OPTIONS.items():
        parser.add_argument(flag, **more)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error("unknown arguments")  # not which: a URL after a mistyped flag may hold credentials
    return run(given)


def run_and_exit(given: argparse.Namespace) -> None:
    """As :func:`run`, for ``airflow``, which ignores what a command returns, and whose log handlers write to standard output."""
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = report
    sys.exit(run(given))


def commands() -> list[GroupCommand]:
    """The commands of ``airflow``, which ``provider_info`` declares."""
    from airflow_provider_cloudstore.compat import ActionCommand, Arg, GroupCommand

    arguments = tuple(Arg((flag,), **more) for flag, more in OPTIONS.items())  # type: ignore[no-untyped-call]
    doctor = ActionCommand("doctor", "Check a connection against the service", run_and_exit, arguments, DESCRIPTION, EPILOG)
    return [GroupCommand("cloudstore", "Check a cloud file storage service", [doctor])]
