"""One open file in many threads, forked and spawned processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
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
CACHES = ["readahead", "background", "none", "bytes", "blockcache", "mmap", "first", "all"]


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


def test_a_file_that_is_closed_while_it_is_read_leaves_no_connection(emulator: Emulator, opened: CloudStoreFile) -> None:
    emulator.fault("delay", operation="download", seconds=0.3)
    before = emulator.state()["requests"]["download"]
    reading = threading.Thread(target=opened._fetch_range, args=(0, 10))
    reading.start()
    while emulator.state()["requests"]["download"] == before:
        threading.Event().wait(0.01)
    opened.close()
    reading.join()
    eventually(lambda: not open_connections(emulator))


def test_threads_that_only_read_share_one_position(opened: CloudStoreFile) -> None:
    def rest(number: int) -> list[bytes]:
        return list(iter(lambda: opened.read(100 * WORD), b""))

    found = [piece for pieces in in_threads(8, rest) for piece in pieces]
    assert b"".join(sorted(found)) == DATA


def test_threads_share_the_lines(emulator: Emulator, fs: CloudStoreFileSystem) -> None:
    lines = [b"%d\n" % number for number in range(2_000)]
    emulator.put_file(b"".join(lines), "lines")
    with fs.open("lines", block_size=1_000) as file:
        found = [line for of_thread in in_threads(4, lambda number: list(file)) for line in of_thread]
    assert sorted(found, key=int) == lines


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


@pytest.fixture
def no_logs() -> Iterator[None]:
    """A process that is forked while a thread flushes a log file finds the file's lock held, for ever: CPython's, not ours."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def _child(file: Any, number: int, results: Any) -> None:
    try:
        results.put((os.getpid(), in_threads(3, lambda thread: reads(file, 10 * number + thread, 10)), file.read(0)))
    except BaseException as error:
        results.put(repr(error))
        raise


@pytest.mark.parametrize(
    ("method", "cache_type"),
    [("fork", "readahead"), ("fork", "background"), pytest.param("spawn", "readahead", marks=pytest.mark.slow)],
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("no_logs")
def test_processes_read_an_open_file_while_its_threads_do(fs: CloudStoreFileSystem, method: str, cache_type: str) -> None:
    context: Any = multiprocessing.get_context(method)
    results, done = context.Queue(), threading.Event()
    with fs.open("f1", block_size=10_000, cache_type=cache_type) as file:

        def busy(number: int) -> list[tuple[int, int]]:
            wrong = reads(file, number)
            while not done.is_set():  # the processes are made while a thread may hold the file's lock
                wrong += reads(file, number, 1)
            return wrong

        with ThreadPoolExecutor(2) as pool:
            threads = [pool.submit(busy, number) for number in range(2)]
            processes = [context.Process(target=_child, args=(file, number, results)) for number in range(2)]
            for process in processes:
                process.start()
            found = [results.get(timeout=60) for _ in processes]
            for process in processes:
                process.join(30)
            done.set()
        assert [thread.result() for thread in threads] == [[], []]
    assert [one[1:] for one in found] == [([[]] * 3, b"")] * 2
    assert len({one[0] for one in found} | {os.getpid()}) == 3
