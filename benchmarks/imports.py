"""What importing the operators costs on top of Airflow, next to the HTTP provider's ``HttpOperator``.

Each import runs in a process of its own, alternating, with bytecode present. CPU time, because it does not depend on what else
the machine does.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

RUNS = 7
OURS, THEIRS = "airflow_provider_cloudstore.operators.cloudstore", "airflow.providers.http.operators.http"
_CODE = """
import importlib, sys, time
import airflow.sdk
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, conf
began = time.process_time()
importlib.import_module(sys.argv[1])
print(time.process_time() - began)
"""


def main() -> None:
    """Run the benchmark and print both medians."""
    seconds: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for run in range(-1, RUNS):
        for module, found in seconds.items():
            done = subprocess.run([sys.executable, "-c", _CODE, module], capture_output=True, text=True, check=True)
            if run >= 0:  # the one before writes bytecode
                found.append(float(done.stdout.splitlines()[-1]))
    medians = {module: statistics.median(found) for module, found in seconds.items()}
    for module, median in medians.items():
        print(f"{module:55} {median * 1000:7.1f} ms")
    print(f"ours costs {medians[OURS] / medians[THEIRS]:.1%} of theirs")


if __name__ == "__main__":
    main()
