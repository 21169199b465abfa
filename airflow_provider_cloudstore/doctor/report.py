"""What was answered and what follows from it, as text of 80 columns and as data."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any

WIDTH = 80


@dataclass(frozen=True, slots=True)
class Step:
    """One request and its response.

    :param request: what was tried, the method and the path.
    :param status: the HTTP status, or why there was none.
    :param fields: every field of the response: its path as an extra has it, its redacted value, and what it was read as.
    :param not_found: what was not found in the response, and the extra that says where it is.
    :param outcome: the error that a task would raise, or its result.
    """

    request: str
    status: str
    fields: list[tuple[str, str, str]]
    not_found: list[str]
    outcome: str


@dataclass(slots=True)
class Report:
    """What was seen of one service.

    :ivar problems: why tasks cannot rely on the connection; empty if they can.
    :ivar notes: what does no harm.
    :ivar steps: what was sent and answered, in order.
    """

    conn_id: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether tasks can rely on the connection as it is, as far as tried."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """The report as data, for ``--json``."""
        return {"usable": self.usable, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"Tasks {'can' if self.usable else 'cannot'} rely on connection '{self.conn_id}', as far as tried."]
        lines += [f"- {text.rstrip('.')}." for text in [*self.problems, *self.notes]]
        for step in self.steps:
            lines += ["", f"{step.request}: {step.status}"]
            for path, value, read_as in step.fields:
                mark = f"  <- {read_as}" if read_as else ""
                lines.append(f"  {path or '(body)'}: {value}"[: WIDTH - len(mark)] + mark)
            lines += [f"  {text}" for text in [*step.not_found, f"=> {step.outcome}"]]
        return "\n".join("\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="  ")) for line in lines)
