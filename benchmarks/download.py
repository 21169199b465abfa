"""Compares downloads of 64 MiB to a local file with a bare loop over ``requests``: time and memory.

Both write the same file and compute the same SHA-256. The emulator and each run have processes of their own, so that the peak of
resident memory is that of the run. On a shared machine, compare only figures of one run.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
SIZE = 64 * MIB
ROUNDS = 9


def bare(url: str, target: Path) -> str:
    """What people write without this package: no retry, no check, the target half-written when it breaks."""
    import requests

    digest = hashlib.sha256()
    with requests.get(url, stream=True, timeout=30) as response, target.open("wb") as file:
        response.raise_for_status()
        for piece in response.iter_content(MIB):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def ours(url: str, target: Path) -> str:
    """The hook's client, without the Airflow around it."""
    import pendulum

    from airflow_provider_cloudstore.clients.blocking import BlockingClient
    from airflow_provider_cloudstore.clients.streaming import stream
    from airflow_provider_cloudstore.protocol.download_requests import Download
    from airflow_provider_cloudstore.protocol.secrets import Secret
    from airflow_provider_cloudstore.protocol.settings import Settings
    from airflow_provider_cloudstore.results import DownloadLink
    from airflow_provider_cloudstore.stores import atomic_write

    settings = Settings("http://127.0.0.1", Secret("token"))
    download = Download("f1", settings)
    link = DownloadLink("f1", "token", url, pendulum.now("UTC"), None)
    with BlockingClient(settings) as client, atomic_write(target) as file:
        return stream(client, download, file, "", lambda _: link).sha256


def run_once(name: str, urls: list[str], target: Path) -> None:
    """One run in this process: a small download first, so that imports and the first connection are not counted."""
    work = {"bare": bare, "ours": ours}[name]
    work(urls[0], target)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    digest = work(urls[1], target)
    seconds = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": seconds, "grown": grown * 1024, "sha256": digest}))


def serve() -> None:
    """The emulator, until its standard input ends: the small file's link and the large one's are printed."""
    from airflow_provider_cloudstore.emulator.runner import Emulator

    with Emulator() as emulator:
        urls = []
        for file_id, size in (("small", MIB), ("large", SIZE)):
            emulator.put_file(os.urandom(size), file_id)
            token = emulator.call(lambda service, file_id=file_id: service.store.create_token(file_id))  # type: ignore[misc]
            urls.append(f"{emulator.url}/download?download_token={token.token}")
        print(json.dumps(urls), flush=True)
        sys.stdin.read()


def run() -> int:
    """Run all and print their times.

    :returns: 0 if throughput is within 10 % of the bare loop's, and memory grew by less than 8 MiB.
    """
    program = [sys.executable, __file__]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout
        assert server.stdin
        urls = server.stdout.readline()
        found: dict[str, list[dict[str, Any]]] = {"bare": [], "ours": []}
        for number in range(ROUNDS):
            for name in ("bare", "ours") if number % 2 else ("ours", "bare"):
                command = [*program, name, urls, str(Path(folder) / name)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[name].append(json.loads(done.stdout))
        server.stdin.close()
    assert len({one["sha256"] for ones in found.values() for one in ones}) == 1, "the bytes differ"
    # The fastest runs: other load on the machine only ever adds to the time.
    rates = {name: SIZE / MIB / min(one["seconds"] for one in ones) for name, ones in found.items()}
    medians = {name: SIZE / MIB / statistics.median(one["seconds"] for one in ones) for name, ones in found.items()}
    grown = {name: max(one["grown"] for one in ones) / MIB for name, ones in found.items()}
    for name, rate in rates.items():
        speed = f"{rate:5.0f} MiB/s (best of {ROUNDS}; median {medians[name]:.0f})"
        print(f"{name}: {speed}, at most {grown[name]:.1f} MiB more memory than for 1 MiB")
    ratio = rates["ours"] / rates["bare"]
    print(f"ours is at {ratio:.0%} of the bare loop")
    return 0 if ratio >= 0.9 and grown["ours"] < 8 else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case [name, given, path]:
            run_once(name, json.loads(given), Path(path))
        case _:
            sys.exit(run())
