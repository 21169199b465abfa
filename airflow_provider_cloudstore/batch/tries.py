"""Which try of a batch may write: each checkpoint names the try that wrote it, and an older one that finds a newer name stops."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, BatchStoppedError

FORMAT = 5
"""Of what a batch stores: receipts and state."""
STATE_KEY = "cloudstore_batch"
"""The key of a batch's state in the task's state store."""
WAYS_OUT = (
    f"To send every URL, start a new DAG run, or delete the key '{STATE_KEY}' from this task's state (in Airflow's UI or by its "
    "REST API) and clear the task."
)


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a batch, in one process.

    :param scope: identifies the batch: DAG, run, task and map index.
    :param number: the try, counted from 1.
    :param process: differs if the same try runs twice.
    """

    scope: tuple[str, ...] = ()
    number: int = 1
    process: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def batch(self) -> str:
        """A short id of the batch for file names."""
        return hashlib.blake2b("\0".join(self.scope).encode(), digest_size=6).hexdigest()

    def to_mark(self) -> dict[str, Any]:
        """The mark that each checkpoint carries, as JSON."""
        return {"format": FORMAT, "scope": list(self.scope), "number": self.number, "process": self.process}

    def validate(self, mark: Any, place: str, *, begins: bool = False) -> None:
        """Check that no newer try has left its mark.

        :param mark: the mark that was found, or None.
        :param place: where it was found, for the error.
        :param begins: whether this process is starting: then it takes over from another process of the same try.
        :raises BatchInterruptedError: if a newer try, or another process of this one, has written since.
        :raises BatchStoppedError: if it is no mark of this format.
        """
        if mark is None:
            return
        number = mark.get("number") if isinstance(mark, dict) else None
        if type(number) is not int or mark.get("format") != FORMAT:
            raise BatchStoppedError(
                f"{place} holds progress of this batch in a format that this release does not read; nothing was sent",
                operation="batch upload",
                cause="format",
                advice="Remove it and clear the task, which then sends every URL, or start a new DAG run.",
            )
        if number > self.number or (number == self.number and mark.get("process") != self.process and not begins):
            raise BatchInterruptedError(
                f"try {self.number} found the mark of try {number}, which has taken over",
                operation="batch upload",
                cause="superseded",
            )
