"""One open file in many threads, and in other processes."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.fs.cloudstore import CloudStoreFile, CloudStoreFileSystem
from tests.support import eventually

WORD = 8
DATA = b"".join(struct.pack(">Q", number) for number in range(50_000))  # every word is another
CACHES = ["readahead", "background", "none"]


@pytest.fixture
def fs(emulator: Emulator) -> CloudStoreFileSystem:
    emulator.put_file(DATA, "f1")
    return CloudStoreFileSystem()


@pytest.fixture
def opened(fs: CloudStoreFileSystem) -> Iterator[CloudStoreFile]:
    with fs.open("f1", block_size=10_000) as file:
        yield file


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work`` returns in each of as many threads that start together; the first error is raised."""
    together = threading.Barrier(count)

    def run(number: int) -> Any:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def open_connections(emulator: Emulator) -> int:
    return emulator.call(lambda service: len(service.connections()))


def reads(file: Any, number: int, count: int = 30) -> list[tuple[int, int]]:
    """The wrong ones of ``count`` reads at random places."""
    wrong, choose = [], random.Random(number)
    for _ in range(count):
        start, length = choose.randrange(len(DATA)), choose.randrange(1, 5_000)
        file.seek(start)
        if file.read(length) != DATA[start : start + length]:
            wrong.append((start, length))
    return wrong


@pytest.mark.parametrize("cache_type", CACHES)
def test_threads_that_seek_and_read_get_the_bytes_that_they_sought(fs: CloudStoreFileSystem, cache_type: str) -> None:
    with fs.open("f1", block_size=10_000, cache_type=cache_type) as file:
        assert in_threads(8, lambda number: reads(file, number)) == [[]] * 8


def test_ranges_are_read_by_many_threads_at_once_over_one_connection_each(emulator: Emulator, opened: CloudStoreFile) -> None:
    emulator.fault("delay", operation="download", seconds=0.2, times=16)

    def fetch(number: int) -> bool:
        starts = range(number, number + 5)
        return all(opened._fetch_range(start, start + 50_000) == DATA[start : start + 50_000] for start in starts)

    assert all(in_threads(16, fetch))
    assert emulator.state()["requests"]["link"] == 1
    assert emulator.state()["connections"]["opened"] <= 1 + 16  # one for each thread
    opened.close()
    eventually(lambda: not open_connections(emulator))


def test_threads_that_only_read_share_one_position(opened: CloudStoreFile) -> None:
    def rest(number: int) -> list[bytes]:
        return list(iter(lambda: opened.read(100 * WORD), b""))

    found = [piece for pieces in in_threads(8, rest) for piece in pieces]
    assert b"".join(sorted(found)) == DATA


def test_a_position_passes_from_thread_to_thread(opened: CloudStoreFile) -> None:
    """As asyncio.to_thread does, whose calls may each run in another thread."""

    def elsewhere(work: Callable[..., Any], *arguments: Any) -> Any:
        return in_threads(1, lambda number: work(*arguments))[0]

    assert elsewhere(opened.seek, 0, 2) == opened.tell() == len(DATA)
    assert opened.seek(0) == 0
    assert elsewhere(opened.read, 10) == DATA[:10]
    assert elsewhere(opened.tell) == opened.tell() == 10
    assert opened.read(10) == DATA[10:20]
    assert elsewhere(opened.seek, 5, 1) == 25
    assert opened.read(5) == DATA[25:30]
    assert elsewhere(opened.seek, -10, 2) == len(DATA) - 10
    assert opened.readline() == DATA[-10:]
    assert (opened.seek(7), opened.seek(5, 1)) == (7, 12)
    assert opened.read(3) == DATA[12:15]


def test_an_expired_link_is_replaced_in_every_thread(emulator: Emulator, opened: CloudStoreFile) -> None:
    emulator.expire_links()
    assert in_threads(4, lambda number: opened._fetch_range(number, 1_000) == DATA[number:1_000]) == [True] * 4
    assert opened._fetch_range(1, 10) == DATA[1:10]
    assert 2 <= emulator.state()["requests"]["link"] <= 5


def test_a_file_that_is_replaced_fails_in_every_thread_and_is_never_mixed(emulator: Emulator, opened: CloudStoreFile) -> None:
    opened.read(10)
    emulator.put_file(DATA[::-1], "f1")

    def fails(number: int) -> bool:
        with pytest.raises(exceptions.FileChangedError):
            opened._fetch_range(number, 1_000)
        return True

    assert all(in_threads(4, fails))
    with pytest.raises(exceptions.FileChangedError):
        opened._fetch_range(0, 10)
    with pytest.raises(exceptions.FileChangedError):  # a copy for another process must not mix versions, either
        pickle.loads(pickle.dumps(opened))


def test_a_pickled_file_continues_at_its_position(emulator: Emulator, fs: CloudStoreFileSystem, opened: CloudStoreFile) -> None:
    opened.seek(100)
    with pickle.loads(pickle.dumps(opened)) as copy:
        assert copy.read(10) == DATA[100:110]
        assert copy.blocksize == opened.blocksize
    assert opened.read(10) == DATA[100:110]
    emulator.put_file(b"", "empty")
    with fs.open("empty") as empty, pickle.loads(pickle.dumps(empty)) as copy:
        assert copy.read() == b""
    assert pickle.loads(pickle.dumps(fs)).cat("f1") == DATA


def _in_child(file: Any, results: Any) -> None:
    failures = []
    for work in (lambda: file.seek(0), lambda: file.read(10), file.readline):
        try:
            work()
        except OSError as error:
            failures.append(str(error))
    with file.fs.open("f1") as own, pickle.loads(pickle.dumps(file)) as copy:
        results.put((failures, own.read(10), copy.read(10)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_cannot_read_an_open_file_but_can_open_it(opened: CloudStoreFile) -> None:
    context: Any = multiprocessing.get_context("fork")
    results = context.Queue()
    opened.seek(100)
    with opened._exclusive():  # as a thread may that does not exist in the other process
        process = context.Process(target=_in_child, args=(opened, results))
        process.start()
        failures, own, copy = results.get(timeout=60)
        process.join(30)
    assert len(failures) == 3
    assert all("forked process" in failure for failure in failures)
    assert (own, copy) == (DATA[:10], DATA[100:110])
    assert opened.read(10) == DATA[100:110]
