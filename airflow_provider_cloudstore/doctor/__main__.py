"""The command line: ``python -m airflow_provider_cloudstore.doctor --conn-id ID``."""

from __future__ import annotations

import argparse
import sys

from airflow_provider_cloudstore.doctor.command import DESCRIPTION, EPILOG, OPTIONS, run


def main(arguments: list[str] | None = None) -> int:
    """Run the doctor and print its report.

    :param arguments: the command line, without the program's name.
    :returns: the exit status, as :func:`~airflow_provider_cloudstore.doctor.command.run`.
    """
    parser = argparse.ArgumentParser("python -m airflow_provider_cloudstore.doctor", description=DESCRIPTION, epilog=EPILOG)
    for flag, more in OPTIONS:
        parser.add_argument(flag, **more)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error("unknown arguments")  # not which: a URL after a mistyped flag may hold credentials
    return run(given)


if __name__ == "__main__":
    sys.exit(main())
