from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath

from airflow_provider_cloudstore.batch.receipts import Receipts


@pytest.mark.parametrize("kind", [Path, ObjectStoragePath])
def test_receipts_are_parts_of_json_lines_that_go_on_where_they_stopped(tmp_path: Path, kind: type) -> None:
    folder = tmp_path / "a" / "b"
    first = Receipts(kind(str(folder)))
    for number in range(3):
        first.add({"position": number, "url": "é"})
    first.write(first.take())
    first.write(first.take())  # nothing new: no part
    second = Receipts(kind(str(folder)))
    second.add({"position": 3})
    second.write(second.take())
    assert [receipt["position"] for receipt in Receipts(kind(str(folder)))] == [0, 1, 2, 3]
    assert sorted(path.name for path in folder.iterdir()) == ["part-00000000.jsonl", "part-00000001.jsonl"]
    assert [json.loads(line) for line in (folder / "part-00000001.jsonl").read_text().splitlines()] == [{"position": 3}]


def test_a_part_that_was_not_finished_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = Receipts(tmp_path)
    receipts.add({"position": 0})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        receipts.write(receipts.take())
    assert list(Receipts(tmp_path)) == []


def test_parts_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    for name in ("part-00000-abc.parquet", "part-00000000.jsonl.gz", "part-x.jsonl", "_SUCCESS"):
        (tmp_path / name).write_text("{}")
    receipts = Receipts(tmp_path)
    receipts.add({"position": 0})
    receipts.write(receipts.take())
    assert [receipt["position"] for receipt in Receipts(tmp_path)] == [0]
