"""The command line: ``python -m airflow_provider_cloudstore.doctor --conn-id ID``."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import sys
from typing import NoReturn, TextIO

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

_USABLE, _NOT_USABLE, _REFUSED = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the doctor and print its report.

    :param arguments: the command line, without the program's name.
    :returns: the exit status: 0 if tasks can rely on the connection, as far as tried; 1 if not; 2 if nothing was sent, because
        an argument was refused or a deletion was not confirmed.
    """
    given = _parser().parse_args(arguments)
    # What `airflow connections` does: without it, Airflow 3 reads connections from the environment and secrets backends only.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    output, sys.stdout = sys.stdout, sys.stderr  # for Airflow's logs, of which the last comes when the process ends
    return _run(given, output)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As every parser, but for URLs in the arguments: they may hold credentials."""
        super().error(re.sub(r"\S+://\S+", "***", message))


def _run(given: argparse.Namespace, output: TextIO) -> int:
    from airflow_provider_cloudstore.doctor.checks import Checks
    from airflow_provider_cloudstore.exceptions import InvalidInputError

    checks = Checks(given.conn_id, _say)
    try:
        upload = _read_url() if given.upload == "-" else given.upload
        is_readable = checks.prepare(upload, given.delete_folder, given.wait)
        if is_readable and given.delete_folder is not None and not given.yes and not _is_confirmed(given.delete_folder):
            return _REFUSED
    except InvalidInputError as error:
        _say(str(error))
        return _REFUSED
    except (KeyboardInterrupt, EOFError):
        _say("Interrupted. Nothing was sent.")
        return _REFUSED
    report = checks.report
    try:
        if is_readable:
            checks.run(wrong_token=given.wrong_token)
    except KeyboardInterrupt:
        report.problems.append("the doctor was interrupted; the report has what was seen so far")
    print(json.dumps(report.to_dict(), indent=2) if given.json else report, file=output)
    return _USABLE if report.usable else _NOT_USABLE


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m airflow_provider_cloudstore.doctor",
        allow_abbrev=False,
        description="Checks an Airflow connection against the service. Without the flags for more, it only reads.",
        epilog="Exit status: 0 if tasks can rely on the connection, as far as tried; 1 if not; 2 if an argument was refused.",
    )
    add = parser.add_argument
    add("--conn-id", default=DEFAULT_CONN_ID, help="the Airflow connection; default: %(default)s")
    add("--wrong-token", action="store_true", help="also send a wrong token, which may lock an account")
    add("--upload", metavar="URL", help="upload this file and download it; it stays in the service. - reads the URL from stdin")
    add("--wait", metavar="SECONDS", type=float, default=300.0, help="how long to wait for the file; default: 300")
    add("--delete-folder", metavar="ID", help="delete this folder with its contents, permanently, and once more")
    add("--yes", action="store_true", help="delete the folder without asking, where there is no terminal")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


def _read_url() -> str:
    """The URL from standard input; not echoed on a terminal."""
    return (getpass.getpass("URL to upload: ", sys.stderr) if sys.stdin.isatty() else sys.stdin.readline()).strip()


def _is_confirmed(folder_id: str) -> bool:
    if not sys.stdin.isatty():
        _say("--delete-folder deletes permanently: confirm it with --yes where there is no terminal. Nothing was sent.")
        return False
    _say(f"This deletes folder '{folder_id}' with everything in it, permanently.")
    if input("Type its id to confirm: ").strip() == folder_id.strip():
        return True
    _say("The ids differ. Nothing was sent.")
    return False


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
