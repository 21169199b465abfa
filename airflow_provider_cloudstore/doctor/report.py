"""What the doctor saw and what follows from it, as text of 80 columns and as data."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

WIDTH = 80
_MAX_LEAVES = 20
_FLAGS = {"wrong token": "--wrong-token", "upload": "--upload URL"}


@dataclass(frozen=True, slots=True)
class Step:
    """One request and its response.

    :param name: what was tried, such as ``missing file``.
    :param request: method and path.
    :param seen: the HTTP status, and what a task makes of the response.
    :param leaves: the dotted path and the redacted value of every leaf of the response.
    """

    name: str
    request: str
    seen: str
    leaves: list[tuple[str, str]]


@dataclass(slots=True)
class Report:
    """What was seen of one service.

    :ivar conn_id: the Airflow connection.
    :ivar steps: what was sent and answered, in order.
    :ivar problems: why tasks cannot rely on the connection; empty if they can.
    :ivar extras: the settings to add to it.
    :ivar candidates: for each setting that a human must choose, the values that it could have.
    :ivar notes: what differs and does no harm.
    """

    conn_id: str
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    extras: dict[str, str] = field(default_factory=dict)
    candidates: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether tasks can rely on the connection as it is, as far as tried."""
        return not (self.problems or self.extras or self.candidates)

    @property
    def verdict(self) -> str:
        """The report in a sentence."""
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
        lines = textwrap.wrap(self.verdict, WIDTH)
        if self.extras:  # in one line of any length: it is to be pasted
            lines += ['Add this to "extra" of the connection:', json.dumps(self.extras)]
        for line in self._details():
            lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]
        return "\n".join(lines)

    def _details(self) -> Iterator[str]:
        for name, values in self.candidates.items():
            yield f"Set extra '{name}' by hand; it could be: {', '.join(values)}."
        yield from (f"- {text}." for text in [*self.problems[1:], *self.notes])
        for step in self.steps:
            yield ""
            yield f"{step.name}: {step.request}: {step.seen}"
            yield from (f"  {path}: {value}"[:WIDTH] for path, value in step.leaves[:_MAX_LEAVES])
            if len(step.leaves) > _MAX_LEAVES:
                yield f"  ... and {len(step.leaves) - _MAX_LEAVES} more"
        if self.not_tried:
            yield ""
            yield f"Not tried: {', '.join(self.not_tried)}."
