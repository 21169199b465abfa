"""Measures what receipts cost: a retry reads all of them, and each checkpoint writes the current part anew.

Reading: full parts are read from a folder whose every read takes a while, into the table that a retry keeps, in a process of
its own for its memory. Writing: a local folder gets the lines of each second at once, as fast as it takes them.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from airflow_provider_cloudstore.batch.folder import PathFolder
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.recording import PART_SIZE, Receipts, Status, Try

RATES = (10, 100, 1_000)
_SPREAD = 2_654_435_761  # odd, so that each number of a part becomes another one of 32 bits


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("all", "read", "write", "child"), default="all")
    parser.add_argument("--parts", type=int, default=300, help="full parts to read, of 1 MiB each")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that each read takes")
    parser.add_argument("--seconds", type=int, default=120, help="checkpoints to write, one for each second of sending")
    given = parser.parse_args()
    if given.part == "child":
        print(json.dumps(read(given.parts, given.latency)))
    if given.part in ("all", "read"):
        report_reading(given.parts, given.latency)
    if given.part in ("all", "write"):
        report_writing(given.seconds)


def lines_from(first: int) -> Iterator[str]:
    """Receipts as a batch writes them."""
    ledger = Ledger()
    for number in range(first, first + 100_000_000):
        url = f"https://source.example/path/to/file-{number}.csv?***"
        file_id = f"f{number:08d}"
        response = {"status": "ok", "data": {"file_id": file_id, "state": "queued"}}
        ledger.record(Entry(number + 2, url), Status.QUEUED, url=url, file_id=file_id, response=response)
        yield from ledger.drain_receipts()


class Slow:
    """A folder of full parts, each of which is made when it is read: the folder itself costs no memory.

    :param parts: how many.
    :param latency: seconds for each read.
    """

    def __init__(self, parts: int, latency: float) -> None:
        self._parts, self._latency = parts, latency
        self.is_local = False
        sample = bytearray()
        self.lines = 0
        for line in lines_from(0):
            sample += f"{line}\n".encode()
            self.lines += 1
            if len(sample) >= PART_SIZE:
                break
        self._sample = bytes(sample)
        self.making = 0.0
        """CPU seconds in which parts were made, which a real folder does not need."""

    def read(self, name: str) -> bytes | None:
        """A full part. The first digits of its digests are its own. There is no mark."""
        if name.startswith("batch-"):
            return None
        time.sleep(self._latency)
        began = time.thread_time()
        part = re.sub(rb'"digest": "[0-9a-f]{8}', b'"digest": "%08x' % (int(name.split("-")[3]) * _SPREAD % 2**32), self._sample)
        self.making += time.thread_time() - began
        return part

    def write(self, name: str, content: bytes) -> None:
        """Nothing is written."""

    def names(self) -> list[str]:
        """The names of the parts."""
        return [f"part-{Try().batch}-0001-{number:08d}-aa.jsonl" for number in range(self._parts)]


def read(parts: int, latency: float) -> dict[str, float]:
    """Read parts into the table of a retry."""
    folder = Slow(parts, latency)
    ledger = Ledger()
    before, began, spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter(), time.process_time()
    receipts = Receipts(folder, Try(number=2))
    receipts.begin()
    for part in receipts.parts:
        ledger.note_earlier(receipts.read(part))
    return {
        "lines": folder.lines * parts,
        "seconds": time.perf_counter() - began - folder.making,
        "cpu": time.process_time() - spent - folder.making,
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def report_reading(parts: int, latency: float) -> None:
    """Time, CPU and memory of reading."""
    arguments = [sys.executable, __file__, "child", "--parts", str(parts), "--latency", str(latency)]
    own = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    print(f"\nreading {parts:,} parts of 1 MiB ({own['lines']:,} URLs), {latency * 1000:g} ms for each read\n")
    print(f"{'seconds':>12}{'CPU s':>12}{'waiting s':>12}{'µs a URL':>12}{'MiB more':>12}{'bytes a URL':>14}")
    per_url = own["cpu"] / own["lines"] * 1e6, own["memory"] * 2**20 / own["lines"]
    waiting = own["seconds"] - own["cpu"]
    print(f"{own['seconds']:12.1f}{own['cpu']:12.1f}{waiting:12.1f}{per_url[0]:12.1f}{own['memory']:12.1f}{per_url[1]:14.1f}")


def report_writing(seconds: int) -> None:
    """What the checkpoints of some seconds of sending cost on a local folder."""
    print(f"\nwriting {seconds:,} checkpoints to a local folder\n")
    heads = ("URLs/s", "files", "MiB kept", "MiB written", "CPU ms", "ms", "ms at most")
    print("".join(f"{head:>12}" for head in heads) + "   (the last three for each checkpoint)")
    for rate in RATES:
        with tempfile.TemporaryDirectory() as name:
            folder = Counting(Path(name))
            receipts = Receipts(folder, Try())
            receipts.begin()
            lines, took, cpu = lines_from(0), [], 0.0
            for _ in range(seconds):
                batch = [next(lines) for _ in range(rate)]
                began, spent = time.perf_counter(), time.process_time()
                receipts.write(batch)
                took.append(time.perf_counter() - began)
                cpu += time.process_time() - spent
            files = list(Path(name).glob("part-*"))
            kept = sum(file.stat().st_size for file in files) / 2**20
            mean = sum(took) / seconds * 1000
            print(
                f"{rate:12,}{len(files):12,}{kept:12.1f}{folder.written / 2**20:12.1f}"
                f"{cpu / seconds * 1000:12.2f}{mean:12.2f}{max(took) * 1000:12.2f}",
                flush=True,
            )


class Counting(PathFolder):
    """A folder that counts the bytes written.

    :param path: the folder.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.written = 0

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        super().write(name, content)
        self.written += len(content)


if __name__ == "__main__":
    main()
