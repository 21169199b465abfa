"""A whole batch in virtual time, over several tries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry, Manifest, list_manifest
from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Try
from airflow_provider_cloudstore.batch.sender import Options
from tests.support import settings
from tests.unit.batch.virtual import VirtualService, run_virtually, settle

SETTINGS = settings(max_attempts=3, timeout=1e6)
HANGS = 1e6


def urls(count: int) -> list[str]:
    return [f"https://source.example/{number}?sig=hunter2" for number in range(count)]


class Batch:
    """A batch over several tries, with a service and stores in memory.

    :param wanted: the manifest: URLs or entries.
    :param folder: the receipts' folder; None for a batch without memory.
    :ivar delay: how long blocking work takes from now on, in seconds.
    :ivar kill_at: when the task is terminated, in seconds after the begin of the try.
    :ivar took: for how long the last try ran.
    :ivar left: how many of its tasks still ran after it.
    """

    def __init__(self, wanted: list[Any], service: VirtualService | None = None, folder: Folder | None = None) -> None:
        self.wanted, self.folder = wanted, folder
        self.service = service or VirtualService()
        self.delay: Callable[[], float] = lambda: 0.0
        self.kill_at = float("inf")
        self.took, self.tries, self.left = 0.0, 0, 0

    @property
    def requests(self) -> int:
        return self.service.requests

    def run(self, *, during: Callable[[], Awaitable[None]] | None = None, **more: Any) -> Ledger:
        """Run the next try, and let ``during`` run at the same time."""
        self.tries += 1
        return run_virtually(self._run(during, more))

    async def _run(self, during: Any, more: dict[str, Any]) -> Ledger:
        loop = asyncio.get_running_loop()
        receipts = Receipts(self.folder, Try(("batch",), self.tries)) if self.folder is not None else None
        options = Options(**{name: more.pop(name) for name in list(more) if name in Options.__dataclass_fields__})
        defaults: dict[str, Any] = {
            "must_end": lambda: "the task was terminated" if loop.time() >= self.kill_at else "",
            "connect": self.service.connect,
            "clock": loop.time,
            "in_thread": self.in_thread,
        }
        read = more.pop("read", self._read)
        job = Job(read, more.pop("settings", lambda: SETTINGS), options, receipts, **(defaults | more))
        before = asyncio.all_tasks()
        try:
            running = asyncio.create_task(job.run())
            if during:
                await during()
            return await running
        finally:
            self.took = loop.time()
            await settle()
            self.left = len(asyncio.all_tasks() - before)

    def _read(self) -> Manifest:
        has_entries = bool(self.wanted) and isinstance(self.wanted[0], Entry)
        return (lambda: iter(self.wanted)) if has_entries else list_manifest(self.wanted)

    def in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        async def run() -> Any:
            await asyncio.sleep(self.delay())
            return work()

        return asyncio.get_running_loop().create_task(run())


def counts(counted: Ledger) -> dict[str, int]:
    assert sum(counted.counts.values()) == counted.total
    return {status.value: count for status, count in counted.counts.items() if count}
