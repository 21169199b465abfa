"""``python -m airflow_provider_cloudstore.emulator``: the service on loopback, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import sys

from airflow_provider_cloudstore.emulator.faults import Fault, Kind
from airflow_provider_cloudstore.emulator.responses import Shape
from airflow_provider_cloudstore.emulator.runner import HOST, Options, airflow_connection, running


def main(arguments: list[str] | None = None) -> int:
    """Run the emulator and print where it listens.

    :param arguments: the command line, without the program's name.
    :returns: the exit status: 0 after Ctrl-C or SIGTERM, 1 if the port is taken.
    """
    given = _parser().parse_args(arguments)
    options = Options(
        access_token=given.access_token or os.environ.get("CLOUDSTORE_EMULATOR_TOKEN", ""),
        answers=given.answers,
        token_ttl=given.token_ttl,
        upload_folder=given.upload_folder,
        fetch_delay=given.fetch_delay,
        port=given.port,
        faults=tuple(given.fault),
    )
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        print(f"Cannot listen on {HOST}:{given.port}: {error.strerror}. Take --port 0 for a free one.", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_cloudstore.emulator",
        description=f"The cloud file storage service (API version 2) on {HOST}, for demos and tests. Ctrl-C stops it.",
        epilog="GET /_emulator/state tells what it keeps and has counted.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0, the default, takes a free one")
    parser.add_argument(
        "--access-token", default="", help="token to accept; default: $CLOUDSTORE_EMULATOR_TOKEN, else a random one"
    )
    parser.add_argument(
        "--answers", choices=[shape.value for shape in Shape], default=Options.answers, help="shape of the answers"
    )
    parser.add_argument("--token-ttl", type=float, default=Options.token_ttl, help="seconds until a download token ends")
    parser.add_argument("--upload-folder", default=Options.upload_folder, help="id of the folder that uploads land in")
    parser.add_argument("--fetch-delay", type=float, default=Options.fetch_delay, help="seconds an upload waits in the queue")
    parser.add_argument(
        "--fault",
        type=_fault,
        action="append",
        default=[],
        metavar="JSON",
        help='what goes wrong, such as {"kind": "status", "operation": "upload", "status": 503, "times": 2}; '
        f"kinds: {', '.join(kind.value for kind in Kind)}; may be given more than once",
    )
    return parser


def _fault(text: str) -> Fault:
    try:
        return Fault.parse(json.loads(text))
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _serve(options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(options) as (service, url):
        connection = shlex.quote(airflow_connection(url, service.access_token))
        print(f"Listening on {url} (Ctrl-C stops it). Airflow finds it with:", flush=True)
        print(f"export AIRFLOW_CONN_CLOUDSTORE_DEFAULT={connection}", flush=True)
        await stop.wait()
    print("Stopped.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
