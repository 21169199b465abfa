"""The command line: ``python -m airflow_provider_cloudstore.doctor --conn-id ID``."""

from __future__ import annotations

import argparse
import json
import os
import sys

from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

_USABLE, _NOT_USABLE, _REFUSED = 0, 1, 2
_CONFIRM = "This deletes folder '{}' with everything in it, permanently. Type its id to confirm: "


def main(arguments: list[str] | None = None) -> int:
    """Run the doctor and print its report.

    :param arguments: the command line, without the program's name.
    :returns: the exit status: 0 if tasks can rely on the connection, as far as tried; 1 if not; 2 if nothing was sent, because
        an argument was refused or a deletion was not confirmed.
    """
    parser = _parser()
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error("unknown arguments")  # not which: a URL after a mistyped flag may hold credentials
    # What `airflow connections` does: without it, Airflow 3 reads connections from the environment and secrets backends only.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    output, sys.stdout = sys.stdout, sys.stderr  # for prompts, and Airflow's logs, of which the last comes when the process ends
    from airflow_provider_cloudstore.doctor import diagnose
    from airflow_provider_cloudstore.exceptions import InvalidInputError

    try:
        upload = input("URL to upload: ") if given.upload == "-" else given.upload
        folder_id = given.delete_folder
        if folder_id is not None and input(_CONFIRM.format(folder_id)) != folder_id:
            raise InvalidInputError("the ids differ")
        report = diagnose(given.conn_id, wrong_token=given.wrong_token, upload=upload, delete_folder=folder_id, wait=given.wait)
    except (InvalidInputError, EOFError, KeyboardInterrupt) as error:
        print(error if isinstance(error, InvalidInputError) else "Nothing was sent.")
        return _REFUSED
    print(json.dumps(report.to_dict(), indent=2) if given.json else report, file=output)
    return _USABLE if report.usable else _NOT_USABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_cloudstore.doctor",
        description="Checks an Airflow connection against the service. Without the flags for more, it only reads.",
        epilog="Exit status: 0 if tasks can rely on it, as far as tried; 1 if not; 2 if an argument or confirmation was refused.",
    )
    add = parser.add_argument
    add("--conn-id", default=DEFAULT_CONN_ID, help="the Airflow connection; default: %(default)s")
    add("--wrong-token", action="store_true", help="also send a wrong token, which may lock an account")
    add("--upload", metavar="URL", help="upload this file and download it; it stays in the service. - reads the URL from stdin")
    add("--wait", metavar="SECONDS", type=float, default=300.0, help="how long to wait for the file; default: 300")
    add("--delete-folder", metavar="ID", help="delete this folder with its contents, permanently; asks for the ID again on stdin")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
