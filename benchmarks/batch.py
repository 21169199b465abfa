"""Compares a batch of remote uploads in one task with the alternatives, against the same server in the same run.

The contenders: the engine of ``RemoteUrlBatchUploadOperator`` with receipts, a bare aiohttp loop, a bare
requests loop over threads, and the HTTP provider's ``HttpOperator`` in a Python loop, which sends one at a time. The server
answers every request after a fixed time, so the most that a contender can reach is concurrency / latency. Each contender has a
process of its own, and those that are compared alternate. On a shared machine, compare only figures of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

API = "/cloud/api/v2/file/url_upload_add"
BARE = "aiohttp"
OURS = "batch"
RIVALS = (OURS, BARE)
OTHERS = ("requests", "http-operator")


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("all", "speed", "cpu"), default="all")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds that the server takes")
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long each contender is given work for")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each of the two that are compared")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.part in ("all", "speed"):
            for concurrency in (16, 64):
                compare_speed(folder, concurrency, given.latency, given.seconds, given.rounds)
        if given.part in ("all", "cpu"):
            compare_cpu(folder, given.rounds)


def compare_speed(folder: str, concurrency: int, latency: float, seconds: float, rounds: int) -> None:
    """How fast each contender is, and how far the batch is behind the bare loop."""
    limit = concurrency / latency
    print(f"\nconcurrency {concurrency}, latency {latency * 1000:g} ms: at most {limit:,.0f} URLs a second\n")
    print(f"{'':16}{'URLs':>8}{'URLs/s':>10}{'of limit':>10}{'CPU ms/URL':>12}")
    rates: dict[str, list[float]] = {}
    for name in (*RIVALS * rounds, *OTHERS):
        count = int((limit if name != "http-operator" else 1 / latency) * seconds)
        own = measure(folder, name, concurrency, latency, count)
        rates.setdefault(name, []).append(count / own["seconds"])
        print(
            f"{name:16}{count:8,}{rates[name][-1]:10,.1f}{rates[name][-1] / limit:10.1%}{own['cpu'] / count * 1000:12.3f}",
            flush=True,
        )
    ratio = statistics.median(rates[OURS]) / statistics.median(rates[BARE])
    print(f"{OURS}: {1 - ratio:.1%} behind the bare loop (medians)")


def compare_cpu(folder: str, rounds: int, count: int = 10_000) -> None:
    """CPU per URL where nothing else takes time."""
    print("\nCPU at no latency, 16 in flight (ms a URL; user and system, user alone)\n")
    spent: dict[str, list[dict[str, float]]] = {}
    for name in RIVALS * rounds:
        own = measure(folder, name, 16, 0.0, count)
        spent.setdefault(name, []).append(own)
        print(f"  {name:16}{own['cpu'] / count * 1000:8.3f}{own['user'] / count * 1000:8.3f}", flush=True)
    for kind in ("cpu", "user"):
        ours, bare = ([own[kind] for own in spent[one]] for one in RIVALS)
        ratio, least = statistics.median(ours) / statistics.median(bare), min(ours) / min(bare)
        print(f"{OURS}: {ratio:.2f} times the bare loop's ({kind}) by the medians, {least:.2f} by the least")


def measure(folder: str, name: str, concurrency: int, latency: float, count: int) -> dict[str, float]:
    """Run one contender against a fresh server.

    :returns: its seconds and CPU seconds (all and user).
    """
    manifest = Path(folder) / f"urls-{count}.txt.gz"
    if not manifest.exists():
        with gzip.open(manifest, "wt") as sink:
            sink.writelines(f"https://source.example/path/to/file-{number}.csv?sig={number:032x}\n" for number in range(count))
    with server(latency) as (url, finish):
        own = in_own_process("send", name, url, str(manifest), str(concurrency), home=folder, url=url)
        arrived = finish()
    assert arrived == count, f"{name}: {arrived} of {count} arrived"
    return own


def in_own_process(*arguments: str, home: str = "", url: str = "") -> dict[str, float]:
    """Run a part of this file in a process of its own, and return what it measured."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(Path(home or tempfile.gettempdir()) / "home"),
        "AIRFLOW_CONN_THEIRS": json.dumps({"conn_type": "http", "host": url}),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run([sys.executable, __file__, *arguments], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def server(latency: float) -> Iterator[tuple[str, Callable[[], int]]]:
    """A server in a process of its own: its address, and what ends it and returns how many requests came."""
    process = subprocess.Popen(
        [sys.executable, __file__, "serve", str(latency)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), lambda: int(process.communicate("stop\n", timeout=60)[0].split()[-1])
    finally:
        process.kill()
        process.wait()


class Service(asyncio.Protocol):
    """Answers every request after a while, as cheaply as Python can: the contenders are measured, and not their server."""

    count = 0
    latency = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin a connection."""
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request; a client sends the next one after the answer."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        self._received = b""
        Service.count += 1
        content = b'{"_status": "success", "data": {"file_id": %d}}' % Service.count
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)
        if self.latency:
            asyncio.get_running_loop().call_later(self.latency, self._transport.write, answer)
        else:
            self._transport.write(answer)


async def serve(latency: float) -> None:
    """Serve until a line comes in; then print how many requests came."""
    Service.latency = latency
    listening = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(Service.count, flush=True)


def urls_of(manifest: str) -> Iterator[str]:
    """The URLs of the manifest."""
    with gzip.open(manifest, "rt") as lines:
        yield from (line.strip() for line in lines)


def send(name: str, url: str, manifest: str, concurrency: int) -> None:
    """One contender, and what it cost; what is imported once is not counted."""
    contenders: dict[str, Callable[..., Any]] = {
        "batch": batch,
        "aiohttp": bare_aiohttp,
        "requests": bare_requests,
        "http-operator": http_operator,
    }
    run = contenders[name](url, manifest, concurrency)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    run()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": user + system, "user": user}))


def batch(url: str, manifest: str, concurrency: int) -> Any:
    """The engine of the operator, with a checkpoint every second."""
    from airflow_provider_cloudstore.batch.job import Job
    from airflow_provider_cloudstore.batch.manifest import FileManifest
    from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Try
    from airflow_provider_cloudstore.batch.sender import Options
    from airflow_provider_cloudstore.clients import asynchronous
    from airflow_provider_cloudstore.protocol.secrets import Secret
    from airflow_provider_cloudstore.protocol.settings import Settings

    assert asynchronous, "imported here, so that it is not counted"
    settings = Settings(url, Secret("token"))

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            receipts = Receipts(Folder(Path(folder)), Try())
            read = lambda: FileManifest(Path(manifest), manifest, "url")  # noqa: E731
            report = asyncio.run(Job(read, lambda: settings, Options(concurrency), receipts).run())
        assert report.error is None, report.error

    return run


def bare_aiohttp(url: str, manifest: str, concurrency: int) -> Any:
    """The shortest loop over aiohttp."""
    import aiohttp

    async def main() -> None:
        todo = urls_of(manifest)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

            async def work() -> None:
                for source in todo:
                    async with session.post(url + API, data={"url": source}, headers={"Authorization": "Bearer token"}) as answer:
                        await answer.json()

            await asyncio.gather(*(work() for _ in range(concurrency)))

    return lambda: asyncio.run(main())


def bare_requests(url: str, manifest: str, concurrency: int) -> Any:
    """The shortest loop over requests, on threads with a session each."""
    import threading
    from concurrent.futures import ThreadPoolExecutor

    import requests

    local = threading.local()

    def one(source: str) -> None:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        local.session.post(url + API, data={"url": source}, headers={"Authorization": "Bearer token"}, timeout=30).json()

    def run() -> None:
        with ThreadPoolExecutor(concurrency) as pool:
            list(pool.map(one, urls_of(manifest)))

    return run


def http_operator(url: str, manifest: str, concurrency: int) -> Any:
    """The HTTP provider's operator in a loop: it sends one at a time."""
    from airflow.providers.http.operators.http import HttpOperator

    def run() -> None:
        for number, source in enumerate(urls_of(manifest)):
            operator = HttpOperator(
                task_id=f"t{number}",
                http_conn_id="theirs",
                endpoint=API,
                data={"url": source},
                headers={"Authorization": "Bearer token"},
                log_response=False,
            )
            operator.execute({})

    return run


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["serve"]:
            asyncio.run(serve(float(sys.argv[2])))
        case ["send"]:
            send(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
        case _:
            main()
