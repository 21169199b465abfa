"""The command line: ``python -m airflow_provider_cloudstore.emulator`` serves on loopback until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_provider_cloudstore.emulator.app import SOURCES_PATH
from airflow_provider_cloudstore.emulator.runner import HOST, SERVICES, airflow_connection, running
from airflow_provider_cloudstore.emulator.store import EXAMPLE


def main(arguments: list[str] | None = None) -> int:
    """Run the emulator and print its address.

    :returns: the exit status: 0 after Ctrl-C or SIGTERM, 1 if the port is taken or a file cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_cloudstore.emulator",
        description=f"The cloud file storage service (API version 2) on {HOST}, for demos and tests. Ctrl-C stops it.",
        epilog="GET /_emulator/state returns its state and counters.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; default: 0, a free one")
    parser.add_argument("--service", choices=SERVICES, help=f"which service to answer as; default: {SERVICES[0]}")
    parser.add_argument("--access-token", help="token to accept as api-v2; default: a random one")
    parser.add_argument("--token-idle", type=float, help="seconds until an unused access token ends as yetishare")
    parser.add_argument("--token-ttl", type=float, help="seconds until a download token expires")
    parser.add_argument("--fetch-delay", type=float, help="seconds an upload waits in the queue")
    parser.add_argument("--serve", metavar="FILE", type=Path, action="append", help="a file to upload from, by its name")
    options = vars(parser.parse_args(arguments))
    files = options.pop("serve", [])
    try:
        asyncio.run(_serve(options, {file.name: file.read_bytes() for file in files}))
    except OSError as error:
        problem = f"read {error.filename}" if error.filename else f"listen on {HOST}:{options['port']}"
        advice = "" if error.filename else " Use --port 0 for a free port."
        print(f"Cannot {problem}: {error.strerror}.{advice}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: dict[str, Any], sources: dict[str, bytes]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(**options) as (service, url):
        service.store.sources |= sources
        names = [quote(name) for name in (*sources, "ANY_NAME")]
        connection = shlex.quote(airflow_connection(url, **service.credentials))
        print(f"Listening on {url} (Ctrl-C stops it). To connect Airflow:", flush=True)
        print(f"export AIRFLOW_CONN_CLOUDSTORE_DEFAULT={connection}", flush=True)
        print(f"To upload: https://{EXAMPLE}/ANY_NAME, {', '.join(f'{url}{SOURCES_PATH}/{name}' for name in names)}", flush=True)
        await stop.wait()
    print("Stopped.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
