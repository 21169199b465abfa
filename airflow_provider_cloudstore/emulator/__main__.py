"""The command line: ``python -m airflow_provider_cloudstore.emulator`` serves on loopback until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading

from airflow_provider_cloudstore.emulator.api_v2 import SOURCES_PATH
from airflow_provider_cloudstore.emulator.runner import HOST, SERVICES, Emulator
from airflow_provider_cloudstore.emulator.store import EXAMPLE


def main(arguments: list[str] | None = None) -> int:
    """Run the emulator and print its address.

    :returns: the exit status.
    :raises OSError: if the port is taken.
    """
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_cloudstore.emulator",
        description=f"The cloud file storage service on {HOST}, for demos and tests. Ctrl-C stops it.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; default: 0, a free one")
    parser.add_argument("--service", choices=SERVICES, help="which service to answer as; default: api-v2")
    parser.add_argument("--access-token", help="token to accept as api-v2; default: a random one")
    parser.add_argument("--token-ttl", type=float, help="seconds until a download token expires")
    parser.add_argument("--fetch-delay", type=float, help="seconds an upload waits in the queue")
    options = vars(parser.parse_args(arguments))
    try:
        with Emulator(**options) as emulator:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has it ignored
            print(f"Listening on {emulator.url} (Ctrl-C stops it)")
            print(f"Connection: AIRFLOW_CONN_CLOUDSTORE_DEFAULT={shlex.quote(emulator.connection)}")
            print(f"To upload: https://{EXAMPLE}/ANY_NAME, {emulator.url}{SOURCES_PATH}/ANY_NAME", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        print("Stopped.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
