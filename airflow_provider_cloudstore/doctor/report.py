"""What the doctor saw and what follows from it, as text of 80 columns and as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

WIDTH = 80
_MAX_LEAVES = 20
_FLAGS = {
    "wrong token": "--wrong-token",
    "upload": "--upload URL",
    "deletion": "--delete-folder ID",
}
_UNRECOGNIZED = (
    "This service's errors are not recognized: a rejected upload or deletion would count as success. No setting changes that: "
    "the service must mark its errors with an HTTP status or a usual field."
)


@dataclass(frozen=True, slots=True)
class Step:
    """One request and its response.

    :param name: what was tried, such as ``missing file``.
    :param request: method and path.
    :param seen: what a task makes of the response, in words.
    :param leaves: the dotted path and the redacted value of every leaf of the response.
    """

    name: str
    request: str
    seen: str
    leaves: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What was seen of one service.

    :ivar conn_id: the Airflow connection.
    :ivar steps: what was sent and answered, in order.
    :ivar problems: why tasks cannot rely on the connection; empty if they can.
    :ivar extras: the settings that it needs, proven to work.
    :ivar candidates: for each setting that only a human can choose, the values that could be meant.
    :ivar notes: what differs and does no harm.
    :ivar unrecognized: whether the service reports errors in a way that nothing recognizes.
    """

    conn_id: str
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    extras: dict[str, str] = field(default_factory=dict)
    candidates: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unrecognized: bool = False

    @property
    def usable(self) -> bool:
        """Whether tasks can rely on the connection as it is, as far as tried."""
        return not (self.unrecognized or self.problems or self.extras or self.candidates)

    @property
    def verdict(self) -> str:
        """The report in a sentence."""
        if self.unrecognized:
            return _UNRECOGNIZED
        if self.problems:
            return f"Tasks cannot rely on connection '{self.conn_id}', because {self.problems[0]}."
        if self.extras or self.candidates:
            return f"Tasks can rely on connection '{self.conn_id}' with other settings: see below, then run the doctor again."
        return f"Tasks can rely on connection '{self.conn_id}', as far as tried."

    @property
    def not_tried(self) -> list[str]:
        """The flags of what was not tried."""
        tried = {step.name for step in self.steps}
        return [flag for name, flag in _FLAGS.items() if name not in tried]

    def to_dict(self) -> dict[str, Any]:
        """The report as data, for ``--json``."""
        return {"usable": self.usable, "verdict": self.verdict, **asdict(self), "not_tried": self.not_tried}

    def __str__(self) -> str:
        return "\n".join(_fitting(self._lines()))

    def _lines(self) -> Iterator[str]:
        yield self.verdict
        if self.extras:
            yield 'Put this under "extra" of the connection:'
            yield json.dumps(self.extras)
        for name, values in self.candidates.items():
            yield f"Set extra '{name}' by hand; it could be: {', '.join(values) or 'none of the fields below'}."
        yield from (f"- {problem}." for problem in self.problems[1:])
        yield from (f"- {note}." for note in self.notes)
        for step in self.steps:
            yield ""
            yield f"{step.name}: {step.request}"
            yield f"  {step.seen}"
            yield from (f"    {path}: {value}"[:WIDTH] for path, value in step.leaves[:_MAX_LEAVES])
            if len(step.leaves) > _MAX_LEAVES:
                yield f"    ... and {len(step.leaves) - _MAX_LEAVES} more"
        if self.not_tried:
            yield ""
            yield f"Not tried: {', '.join(self.not_tried)}."


def _fitting(lines: Iterator[str]) -> Iterator[str]:
    """The lines, wrapped between words; what is to be pasted and has no space stays whole."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        text = line
        while len(text) > WIDTH and not text.startswith("{"):
            at = text.rfind(" ", len(indent) + 1, WIDTH + 1)
            at = WIDTH if at < 0 else at
            yield text[:at]
            text = f"{indent}{text[at:].lstrip()}"
        yield text
