"""A batch of remote uploads in one task, beside what one would write instead, against the same server in the same run.

Four contenders: the engine of ``RemoteUrlBatchUploadOperator``, a bare aiohttp loop, a bare requests loop over threads, and the
HTTP provider's ``HttpOperator`` in a Python loop, which sends one at a time. The server answers every request after a fixed
time, so the most that a contender can reach is concurrency / latency. Each contender has a process of its own. Figures of a
shared machine move; compare those of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

CONTENDERS = ("batch", "aiohttp", "batch-fresh", "requests", "http-operator")
API = "/cloud/api/v2/file/url_upload_add"


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds that the server takes")
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long each contender is given work for")
    parser.add_argument("--memory-urls", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for concurrency in (16, 64):
            limit = concurrency / given.latency
            print(f"\nconcurrency {concurrency}, latency {given.latency * 1000:g} ms: at most {limit:,.0f} URLs a second\n")
            print(f"{'':16}{'URLs':>8}{'URLs/s':>10}{'of limit':>10}{'CPU ms/URL':>12}")
            for name in CONTENDERS:
                count = int((limit if name != "http-operator" else 1 / given.latency) * given.seconds)
                own = measure(folder, name, concurrency, given.latency, count)
                rate = count / own["seconds"]
                print(f"{name:16}{count:8,}{rate:10,.0f}{rate / limit:10.1%}{own['cpu'] / count * 1000:12.3f}", flush=True)
        print("\nCPU at no latency, 16 in flight (ms a URL)\n")
        for name in ("batch", "aiohttp"):
            print(f"  {name:16}{measure(folder, name, 16, 0.0, 20_000)['cpu'] / 20_000 * 1000:8.3f}", flush=True)
        print("\nmemory of the batch above an empty run, from a gzip manifest (MiB)\n")
        empty = measure(folder, "batch", 64, 0.0, 0)["memory"]
        for skip in (True, False):
            for count in (given.memory_urls // 10, given.memory_urls):
                used = (measure(folder, "batch", 64, 0.0, count, skip)["memory"] - empty) / 1024
                print(f"  skip_duplicates={skip!s:6} {count:8,} URLs {used:8.1f}", flush=True)


def measure(folder: str, name: str, concurrency: int, latency: float, count: int, skip: bool = True) -> dict[str, float]:
    """Run one contender against a fresh server.

    :returns: its seconds, CPU seconds and peak memory in KiB.
    """
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", str(latency)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    manifest = Path(folder) / f"urls-{count}.txt.gz"
    if not manifest.exists():
        with gzip.open(manifest, "wt") as sink:
            sink.writelines(f"https://source.example/path/to/file-{number}.csv?sig={number:032x}\n" for number in range(count))
    env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(Path(folder) / "home"),
        "AIRFLOW_CONN_THEIRS": json.dumps({"conn_type": "http", "host": url}),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "NO_PROXY": "127.0.0.1",
    }
    arguments = [name, url, str(manifest), str(concurrency), str(int(skip))]
    done = subprocess.run([sys.executable, __file__, "send", *arguments], env=env, stdout=subprocess.PIPE, text=True, check=True)
    out, _ = server.communicate("stop\n", timeout=60)
    assert int(out.split()[-1]) == count, f"{name}: {out.split()[-1]} of {count} arrived"
    return dict(json.loads(done.stdout.splitlines()[-1]))


async def serve(latency: float) -> None:
    """A server that answers every request after ``latency``, until a line comes in; then its count."""
    from aiohttp import web

    count = 0

    async def answer(request: web.BaseRequest) -> web.Response:
        nonlocal count
        count += 1
        await request.read()
        await asyncio.sleep(latency)
        return web.json_response({"_status": "success", "data": {"file_id": count}})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(count, flush=True)


def urls_of(manifest: str) -> Iterator[str]:
    """The URLs of the manifest."""
    with gzip.open(manifest, "rt") as lines:
        yield from (line.strip() for line in lines)


def send(name: str, url: str, manifest: str, concurrency: int, skip: bool) -> None:
    """One contender, and what it cost; what is imported once is not counted."""
    contenders: dict[str, Callable[..., Any]] = {
        "batch": batch,
        "batch-fresh": partial(batch, fresh=True),
        "aiohttp": bare_aiohttp,
        "requests": bare_requests,
        "http-operator": http_operator,
    }
    run = contenders[name](url, manifest, concurrency, skip)
    began, cpu = time.perf_counter(), time.process_time()
    run()
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "cpu": spent, "memory": memory}))


def batch(url: str, manifest: str, concurrency: int, skip: bool, fresh: bool = False) -> Any:
    """The engine of the operator, with a checkpoint every second."""
    from contextlib import contextmanager

    from airflow_provider_cloudstore.batch.job import Job
    from airflow_provider_cloudstore.batch.manifest import entries_of_file
    from airflow_provider_cloudstore.batch.sending import Options
    from airflow_provider_cloudstore.protocol.secrets import Secret
    from airflow_provider_cloudstore.protocol.settings import Settings

    settings = Settings(url, Secret("token"))

    class Store:
        stored = "null"

        def load(self) -> Any:
            return json.loads(self.stored)

        def save(self, state: dict[str, Any]) -> None:
            self.stored = json.dumps(state)

    @contextmanager
    def entries() -> Iterator[Any]:
        with Path(manifest).open("rb") as stream:
            yield entries_of_file(stream, manifest, "url")

    def run() -> None:
        options = Options(concurrency, skip_duplicates=skip, fresh_connections=fresh)
        report = asyncio.run(Job(entries, settings, lambda: settings, options, store=Store()).run())
        assert report.error is None, report.error

    return run


def bare_aiohttp(url: str, manifest: str, concurrency: int, skip: bool) -> Any:
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


def bare_requests(url: str, manifest: str, concurrency: int, skip: bool) -> Any:
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


def http_operator(url: str, manifest: str, concurrency: int, skip: bool) -> Any:
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
            send(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6] == "1")
        case _:
            main()
