"""What a try resumes from: loads what earlier tries settled, and checks it against the manifest before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_cloudstore.batch.ledger import Ledger, locate
from airflow_provider_cloudstore.batch.manifest import Manifest
from airflow_provider_cloudstore.batch.receipts import RESTORE, Receipts, to_line, unusable
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.batch.state import Positions, State
from airflow_provider_cloudstore.batch.tries import WAYS_OUT, Try
from airflow_provider_cloudstore.protocol.errors import BatchStoppedError, InvalidInputError
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url

_LINES_AT_ONCE = 4_000


@dataclass(eq=False)
class Resume:
    """The progress of earlier tries. All methods block.

    :param secrets: what receipts must not hold.
    """

    options: Options
    writer: Try
    secrets: Callable[[], tuple[Secret, ...]] = field(repr=False)
    state: State | None
    receipts: Receipts | None
    _positions: Positions | None = field(default=None, init=False)
    _ledger: Ledger = field(default_factory=Ledger, init=False)

    def load(self) -> Ledger:
        """Leave the mark of this try, which stops any older one, and load what earlier tries settled.

        :raises BatchInterruptedError: if a newer try has left its mark.
        :raises BatchStoppedError: if what is stored is missing, damaged, or of another format.
        """
        self._positions = self.state.claim() if self.state else None
        is_in_receipts = self.state is not None and self.state.is_in_receipts
        if self.receipts:
            self.receipts.begin(expects_earlier=is_in_receipts)
        elif is_in_receipts:
            raise unusable("earlier tries kept the batch's progress in receipts, and this task has none", RESTORE)
        self._ledger = Ledger(
            (self._positions or Positions()) if self.state and not self.receipts else None,
            retry_unknown=self.options.retry_unknown_outcome,
            writes_receipts=self.receipts is not None,
            try_number=self.writer.number,
            secrets=self.secrets,
        )
        if self.receipts:
            self.receipts.read(self._ledger.note_earlier)
        return self._ledger

    def survey(self, manifest: Manifest, *, allow_empty: bool) -> None:
        """Count the manifest, and check that what is settled by position is still there.

        :raises InvalidInputError: if it is empty or cannot be read to its end.
        :raises BatchStoppedError: if it changed where it was already sent.
        """
        if not allow_empty and next(manifest(), None) is None:
            raise InvalidInputError("the manifest holds no URL: set allow_empty=True if it may be empty; nothing was sent")
        earlier, found = self._positions, Positions()
        for entry in locate(manifest(), self.options.shard):
            before = earlier.status(entry.position) if earlier else None
            if before:
                found.add(entry.position, entry.digest)
            self._ledger.survey(entry, before)
        if earlier and not earlier.matches(found):
            raise BatchStoppedError(
                "the manifest changed where it was already sent: only failed lines may be corrected, and new lines added at its "
                "end; nothing was sent",
                operation="batch upload",
                cause="manifest",
                advice=f"Restore the manifest and clear the task. {WAYS_OUT} A run with `receipts` may change its manifest.",
            )

    def take_over(self, manifest: Manifest) -> None:
        """Write receipts for what earlier tries settled without them. The state store has it until the first checkpoint."""
        if not (self._positions and self.receipts):
            return
        lines: list[str] = []
        for found in locate(manifest(), self.options.shard):
            if status := self._positions.status(found.position):
                url = redact_url(str(found.entry.url))
                lines.append(to_line(found.entry, found.digest, status, self.writer.number, url=url, secrets=self.secrets()))
            if len(lines) >= _LINES_AT_ONCE:
                self.receipts.write(lines)
                lines = []
        self.receipts.write(lines)
