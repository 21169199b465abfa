"""The command line: ``python -m airflow_provider_cloudstore.emulator`` serves on loopback until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from pathlib import Path
from urllib.parse import quote

from airflow_provider_cloudstore.emulator.app import SOURCES_PATH
from airflow_provider_cloudstore.emulator.runner import HOST, Options, airflow_connection, running
from airflow_provider_cloudstore.emulator.store import EXAMPLE


def main(arguments: list[str] | None = None) -> int:
    """Run the emulator and print its address.

    :param arguments: the command line, without the program name.
    :returns: the exit status: 0 after Ctrl-C or SIGTERM, 1 if the port is taken or a file cannot be read.
    """
    given = vars(_parser().parse_args(arguments))
    port, files = given["port"], given.pop("serve")
    try:
        asyncio.run(_serve(Options(**given), {file.name: file.read_bytes() for file in files}))
    except OSError as error:
        problem = f"read {error.filename}" if error.filename else f"listen on {HOST}:{port}"
        advice = "" if error.filename else " Use --port 0 for a free port."
        print(f"Cannot {problem}: {error.strerror}.{advice}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_cloudstore.emulator",
        description=f"The cloud file storage service (API version 2) on {HOST}, for demos and tests. Ctrl-C stops it.",
        epilog="GET /_emulator/state returns its state and counters; POST /_emulator/faults injects a fault.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; default: 0, a free one")
    parser.add_argument(
        "--access-token",
        default=os.environ.get("CLOUDSTORE_EMULATOR_TOKEN", ""),
        help="token to accept; default: $CLOUDSTORE_EMULATOR_TOKEN, else a random one",
    )
    parser.add_argument("--token-ttl", type=float, default=Options.token_ttl, help="seconds until a download token expires")
    parser.add_argument("--fetch-delay", type=float, default=Options.fetch_delay, help="seconds an upload waits in the queue")
    parser.add_argument(
        "--serve", metavar="FILE", type=Path, action="append", default=[], help="a file to upload from, by its name"
    )
    return parser


async def _serve(options: Options, sources: dict[str, bytes]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(options) as (service, url):
        service.store.sources |= sources
        connection = shlex.quote(airflow_connection(url, service.access_token))
        names = [quote(name) for name in (*sources, "ANY_NAME")]
        print(f"Listening on {url} (Ctrl-C stops it). To connect Airflow:", flush=True)
        print(f"export AIRFLOW_CONN_CLOUDSTORE_DEFAULT={connection}", flush=True)
        print(f"To upload: https://{EXAMPLE}/ANY_NAME, {', '.join(f'{url}{SOURCES_PATH}/{name}' for name in names)}", flush=True)
        await stop.wait()
    print("Stopped.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
