"""Plots of what the benchmarks printed, drawn like the drawings; with ``run``, runs the benchmarks first.

The benchmarks' own output is kept next to the plots, in ``docs/plots``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from scripts.airflow_home import ROOT
from scripts.drawings import both

PLOTS = ROOT / "docs" / "plots"
COMMANDS = {
    "imports": [["benchmarks/imports.py"]],
    "waits": [
        ["benchmarks/waiting.py"],
        ["benchmarks/waiting.py", "--plain", "--rounds", "7", "--waiters", "500", "--interval", "1", "--seconds", "6"],
    ],
    "batch": [["benchmarks/mapped.py"]],
}
WIDEST = 340
"""Pixels of the longest bar."""


def main(*arguments: str) -> int:
    """Write the plots.

    :param arguments: ``run`` to run the benchmarks first.
    """
    if "run" in arguments:
        for name, commands in COMMANDS.items():
            printed = [
                subprocess.run([sys.executable, *one], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
                for one in commands
            ]
            (PLOTS / f"{name}.txt").write_text("\n".join(one.stdout for one in printed))
    for path, drawn in plots().items():
        path.write_text(drawn)
    return 0


def plots() -> dict[Path, str]:
    """What the benchmarks' output looks like, by the files that it belongs to."""
    drawn: dict[Path, str] = {}
    for name, describe in (("imports", imports), ("waits", waits), ("batch", batch)):
        drawn |= both(PLOTS / name, describe((PLOTS / f"{name}.txt").read_text()))
    return drawn


def imports(printed: str) -> str:
    """Import time of the operators, in addition to Airflow's.

    :param printed: by ``benchmarks/imports.py``.
    """
    ours, theirs = (float(found) for found in re.findall(r" ([\d.]+) ms$", printed, re.MULTILINE))
    rows = [("this package", ours, f"{ours:.0f} ms"), ("HttpOperator", theirs, f"{theirs:.0f} ms")]
    return bars("Import time on top of Airflow (CPU)", [("", rows)])


def waits(printed: str) -> str:
    """What a thousand polls of a deferred wait cost.

    :param printed: by ``benchmarks/waiting.py``, over TLS and then without.
    """
    found = re.findall(r"^CPU seconds per 1,000 polls +([\d.]+) +([\d.]+)", printed, re.MULTILINE)
    groups = []
    for title, figures in zip(("over TLS", "plain HTTP"), found, strict=True):
        names = zip(("FileAvailableTrigger", "HttpSensorTrigger"), map(float, figures), strict=True)
        groups.append((title, [(name, value, f"{value:.2f} s") for name, value in names]))
    return bars("CPU time of 1,000 polls in the triggerer", groups)


def batch(printed: str) -> str:
    """How long uploads take as one batch task and as mapped tasks.

    :param printed: by ``benchmarks/mapped.py``.
    """
    count, mapped, batched = re.findall(r"^(\d+) URLs: ([\d.]+) s as mapped .*, ([\d.]+) s as one", printed, re.MULTILINE)[0]
    rows = [("one batch task", float(batched), f"{batched} s"), ("mapped tasks", float(mapped), f"{mapped} s")]
    return bars(f"{count} uploads on a real scheduler", [("", rows)])


def bars(title: str, groups: list[tuple[str, list[tuple[str, float, str]]]]) -> str:
    """The description of horizontal bars; ours is the first of each group.

    :param title: what is compared.
    :param groups: a heading, and rows of a name, a figure and how it is written.
    """
    longest = max(value for _, rows in groups for _, value, _ in rows)
    lines, y = [f"title | {title}", f"head 10 30 | {title}"], 50
    for heading, rows in groups:
        if heading:
            lines.append(f"note 10 {y + 18} | {heading}")
            y += 30
        for number, (name, value, written) in enumerate(rows):
            length = max(2, round(WIDEST * value / longest))
            lines.append(f"left 10 {y + 20} | {name}")
            lines.append(f"{'bar' if number else 'keybar'} 205 {y + 3} {length} 22")
            lines.append(f"left {215 + length} {y + 20} | {written}")
            y += 34
        y += 8
    said = "; ".join(f"{heading} {name}: {written}" for heading, rows in groups for name, _, written in rows)
    return "\n".join([*lines, f"desc | {said}", f"size | 640 {y}"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
