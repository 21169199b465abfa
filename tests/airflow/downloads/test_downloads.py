"""Downloads on a whole Airflow: through lost connections and an ended link, and with Airflow's own transfer.

Slow: ``make test-airflow`` runs it on both Airflows.
"""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.guarantees import Proof, guarantee
from tests.real_airflow import RealAirflow

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@guarantee("files", "the connection is lost three times, and the link expires")
def test_a_deferred_wait_a_broken_download_and_airflows_own_transfer_bring_every_byte(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path, proven: Proof
) -> None:
    data = os.urandom(16 * MIB)
    sha256 = hashlib.sha256(data).hexdigest()
    run_id = airflow.trigger("downloads", folder=str(tmp_path), sha256=sha256)
    airflow.until("it waits", lambda: airflow.states(run_id).get(("download", -1)) == "deferred", 180)
    for after in (3 * MIB, 5 * MIB, 1):
        emulator.fault("drop_body", operation="download", after=after)
    emulator.fault("status", operation="download", status=403)
    emulator.put_file(data, "f1")
    assert airflow.finish(run_id) == {("download", -1): "success", ("transfer", -1): "success"}
    tokens = [token["token"] for token in emulator.state()["tokens"]]
    requests = emulator.state()["requests"]
    texts = [text for source in (airflow.logs(), airflow.consoles()) for _, text in source]
    rows = "\n".join(str(row) for _, row in airflow.tables())
    (stored,) = airflow.rows("select value from xcom where task_id = 'download' and key = 'return_value'")
    lost = [one.name for one in tmp_path.iterdir() if hashlib.sha256(one.read_bytes()).hexdigest() != sha256]
    assert {one.name for one in tmp_path.iterdir()} == {"downloaded", "transferred"}
    assert requests["download"] >= 6  # three lost, one refused, one to the end, and the transfer's own
    assert sha256 in str(stored[0])
    assert len(tokens) >= 3
    assert any("the download host rejected the link" in text for text in texts)
    for token in tokens:
        assert token not in rows
        assert not [text for text in texts if token in text]
    proven(requests=requests["download"], lost=len(lost))


def test_the_retry_of_a_killed_download_leaves_no_part(airflow: RealAirflow, emulator: Emulator, tmp_path: Path) -> None:
    data = os.urandom(4 * MIB)
    emulator.put_file(data, "f1")
    emulator.fault("drop_body", operation="download", after=MIB, times=2)
    emulator.fault("delay", operation="download", seconds=600, times=0)
    run_id = airflow.trigger("killed_downloads", folder=str(tmp_path))
    parts = airflow.until(
        "both have received a part",
        lambda: emulator.state()["requests"].get("download") == 4 and [*tmp_path.glob("*/.f1.*-1.part")],
    )
    emulator.call(lambda service: service.faults.script.clear())
    for pid in tmp_path.glob("*.pid"):
        os.kill(int(pid.read_text()), signal.SIGKILL)
        pid.unlink()
    assert set(airflow.finish(run_id).values()) == {"success"}
    assert airflow.rows("select distinct try_number from task_instance where run_id = ?", run_id) == [(2,)]
    left = [one for one in tmp_path.rglob("*") if one.is_file() and one.suffix != ".pid"]
    assert sorted(str(one.relative_to(tmp_path)) for one in left) == ["operator/f1", "taskflow/f1"]
    assert all(one.read_bytes() == data for one in left)
    assert not any(part.exists() for part in parts)
