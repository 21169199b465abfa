"""Compares thousands of waits in one process: ``FileAvailableTrigger`` and the HTTP provider's ``HttpSensorTrigger``.

Both wait for files that do not come, against the emulator on loopback, over TLS or with ``--plain`` without, one after the
other in the same run; the table has the medians of ``--rounds``. The emulator and each contender have a process of their own,
so that CPU seconds are the contender's alone. Figures of a shared machine move; compare those of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme

from airflow_provider_cloudstore.emulator.runner import Emulator

OURS, THEIRS = "FileAvailableTrigger", "HttpSensorTrigger"


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two polls of a waiter")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each contender waits")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each contender")
    parser.add_argument("--only", choices=[OURS, THEIRS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(Path(folder) / "ca.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(Path(folder) / "server.pem")
        contenders = [given.only] if given.only else [OURS, THEIRS]
        rounds = [[measure(name, folder, given) for name in contenders] for _ in range(given.rounds)]
    results: list[dict[str, Any]] = [
        {"name": name} | {key: statistics.median(each[at][key] for each in rounds) for key in ROWS}
        for at, name in enumerate(contenders)
    ]
    over = "without TLS" if given.plain else "over TLS"
    print(f"{given.waiters} waiters, a poll every {given.interval:g} s each, for {given.seconds:g} s, {over} on loopback\n")
    print(f"{'':44}" + "".join(f"{result['name']:>22}" for result in results) + (f"{'ratio':>9}" if len(results) > 1 else ""))
    for key, words in ROWS.items():
        cells = [result[key] for result in results]
        ratio = f"{cells[0] / cells[1]:9.3f}" if len(cells) > 1 and cells[1] else ""
        print(f"{words:44}" + "".join(f"{cell:22.2f}" for cell in cells) + ratio)


ROWS = {
    "polls": "polls that arrived",
    "cpu": "CPU seconds per 1,000 polls",
}


def measure(name: str, folder: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one contender against a fresh emulator.

    :returns: its figures.
    """
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", "" if given.plain else folder],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    home = Path(folder) / "home"
    env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_CONN_OURS": json.dumps(
            {"conn_type": "cloudstore", "host": url, "password": "token", "extra": {"verify": str(Path(folder) / "ca.pem")}}
            if not given.plain
            else {"conn_type": "cloudstore", "host": url, "password": "token"}
        ),
        "AIRFLOW_CONN_THEIRS": json.dumps({"conn_type": "http", "host": url}),
        "SSL_CERT_FILE": str(Path(folder) / "ca.pem"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    }
    arguments = [name, str(given.waiters), str(given.interval), str(given.seconds)]
    done = subprocess.run([sys.executable, __file__, "wait", *arguments], env=env, stdout=subprocess.PIPE, text=True, check=True)
    own = json.loads(done.stdout.splitlines()[-1])
    out, _ = server.communicate("stop\n", timeout=60)
    state = json.loads(out.splitlines()[-1])
    thousands = state["requests"]["link"] / 1000
    return {
        "name": name,
        "polls": state["requests"]["link"],
        "cpu": own["cpu"] / thousands,
    }


def serve(folder: str) -> None:
    """The emulator, until a line comes in; then its counters.

    :param folder: where its certificate is; empty for no TLS.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if folder else None
    if tls:
        tls.load_cert_chain(Path(folder) / "server.pem")
    with Emulator(access_token="token", tls=tls) as emulator:
        print(emulator.url, flush=True)
        sys.stdin.readline()
        print(json.dumps(emulator.state()), flush=True)


async def wait(name: str, waiters: int, interval: float, seconds: float) -> None:
    """One contender: so many triggers, for so long; then what it cost."""
    triggers = [_trigger(name, number, interval, seconds) for number in range(waiters)]
    warm_up = asyncio.create_task(_run(_trigger(name, waiters, 0.1, seconds)))  # what is imported once is not what a poll costs
    await asyncio.sleep(3)
    warm_up.cancel()
    before = time.process_time()
    tasks = [asyncio.create_task(_run(trigger)) for trigger in triggers]
    await asyncio.sleep(seconds)
    spent = time.process_time() - before
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps({"cpu": spent}), flush=True)


def _trigger(name: str, number: int, interval: float, seconds: float) -> Any:
    if name == OURS:
        from airflow_provider_cloudstore.clients import asynchronous  # noqa: F401  (imported before the clock starts)
        from airflow_provider_cloudstore.protocol import file_wait
        from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger

        file_wait.SETTLE_SECONDS = 0.0  # the other contender polls at once, too

        began = datetime.now(UTC).isoformat()
        return FileAvailableTrigger("ours", f"f{number}", interval, seconds + 3600, began, not_before=began)
    from airflow.providers.http.triggers.http import HttpSensorTrigger

    endpoint = f"cloud/api/v2/file/download?access_token=token&file_id=f{number}"
    return HttpSensorTrigger(endpoint=endpoint, http_conn_id="theirs", poke_interval=interval, method="GET")


async def _run(trigger: Any) -> None:
    async for _ in trigger.run():
        raise AssertionError("the file came, which it should not")


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["serve"]:
            serve(sys.argv[2])
        case ["wait"]:
            asyncio.run(wait(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])))
        case _:
            main()
