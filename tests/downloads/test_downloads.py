"""Downloads on a whole Airflow: through lost connections and an ended link, and with Airflow's own transfer.

Slow: it starts an Airflow. ``make test-downloads`` runs it on both Airflows.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.guarantees import Proof, guarantee
from tests.real_airflow import RealAirflow
from tests.support import eventually

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
MIB = 1024 * 1024


@guarantee("files", "the connection is lost three times, and the link expires")
def test_a_deferred_wait_a_broken_download_and_airflows_own_transfer_bring_every_byte(tmp_path: Path, proven: Proof) -> None:
    data = os.urandom(16 * MIB)
    sha256 = hashlib.sha256(data).hexdigest()
    folder = tmp_path / "files"
    env = {"DOWNLOADS_FOLDER": str(folder), "DOWNLOADS_SHA256": sha256, "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG"}
    with Emulator() as emulator, RealAirflow(tmp_path / "home", DAGS, **env) as airflow:
        env_connection = {
            "cloudstore_default": {"conn_type": "cloudstore", "host": emulator.url, "password": emulator.access_token}
        }
        airflow.store(env_connection, {})
        airflow.start_all()
        run_id = airflow.trigger("downloads")
        eventually(lambda: airflow.states(run_id).get(("download", -1)) == "deferred", 180)
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
    lost = [one.name for one in folder.iterdir() if hashlib.sha256(one.read_bytes()).hexdigest() != sha256]
    assert {one.name for one in folder.iterdir()} == {"downloaded", "transferred"}
    assert requests["download"] >= 6  # three lost, one refused, one to the end, and the transfer's own
    assert sha256 in str(stored[0])
    assert len(tokens) >= 3
    assert any("the download host rejected the link" in text for text in texts)
    for token in tokens:
        assert token not in rows
        assert not [text for text in texts if token in text]
    proven(requests=requests["download"], lost=len(lost))
