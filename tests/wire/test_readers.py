"""pandas, pyarrow, polars and DuckDB read files, some of them in several threads. ``make test-readers`` runs it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.fs.cloudstore import CloudStoreFileSystem

pytestmark = pytest.mark.slow

ROWS = 400_000
TOTAL = sum(range(ROWS))
URL = "cloudstore://cloudstore_default@/"
CSV, PARQUET = "table%2Fof.csv", "table%2Fof.parquet"


@pytest.fixture(scope="module")
def contents() -> tuple[bytes, bytes]:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table({"a": range(ROWS), "b": [str(number) * 3 for number in range(ROWS)]})
    in_csv, in_parquet = io.BytesIO(), io.BytesIO()
    csv.write_csv(table, in_csv)
    parquet.write_table(table, in_parquet, row_group_size=10_000)  # forty groups, which readers fetch in parallel
    return in_csv.getvalue(), in_parquet.getvalue()


@pytest.fixture
def fs(emulator: Emulator, contents: tuple[bytes, bytes]) -> CloudStoreFileSystem:
    for file_id, content in zip(("table/of.csv", "table/of.parquet"), contents, strict=True):
        emulator.put_file(content, file_id)
    return CloudStoreFileSystem()


def with_pandas(fs: CloudStoreFileSystem, path: str) -> Any:
    import pandas

    read = pandas.read_csv if path == CSV else pandas.read_parquet
    return read(URL + path)["a"].sum()


def with_pyarrow(fs: CloudStoreFileSystem, path: str) -> Any:
    from pyarrow import compute, dataset

    return compute.sum(dataset.dataset(path, filesystem=fs, format=path.rpartition(".")[2]).to_table()["a"]).as_py()


def with_pyarrows_stream(fs: CloudStoreFileSystem, path: str) -> Any:
    import pyarrow as pa
    from pyarrow import compute, csv, parquet

    with pa.PythonFile(fs.open(path, block_size=50_000), mode="r") as file:
        table = csv.open_csv(file).read_all() if path == CSV else parquet.ParquetFile(file, pre_buffer=True).read()
        return compute.sum(table["a"]).as_py()


def with_polars(fs: CloudStoreFileSystem, path: str) -> Any:
    import polars

    with fs.open(path) as file:
        return (polars.read_csv if path == CSV else polars.read_parquet)(file)["a"].sum()


@pytest.mark.parametrize("path", [CSV, PARQUET])
@pytest.mark.parametrize("read", [with_pandas, with_pyarrow, with_pyarrows_stream, with_polars])
def test_a_reader_gets_every_row(fs: CloudStoreFileSystem, read: Callable[[CloudStoreFileSystem, str], Any], path: str) -> None:
    assert read(fs, path) == TOTAL


@pytest.mark.parametrize("path", [CSV, PARQUET])
def test_duckdb_reads_every_row_in_several_threads(fs: CloudStoreFileSystem, path: str) -> None:
    import duckdb

    read = "read_csv" if path == CSV else "read_parquet"
    with duckdb.connect() as connection:
        connection.execute("SET threads=4")
        connection.register_filesystem(fs)
        for _ in range(5):  # its threads seek and read one file, without a lock of their own
            assert connection.execute(f"SELECT sum(a), count(*) FROM {read}('{URL}{path}')").fetchall() == [(TOTAL, ROWS)]


@pytest.mark.parametrize("read", [with_pandas, with_polars, with_pyarrow])
def test_a_missing_file_is_not_found(fs: CloudStoreFileSystem, read: Callable[[CloudStoreFileSystem, str], Any]) -> None:
    with pytest.raises(FileNotFoundError):
        read(fs, "nope.parquet")
