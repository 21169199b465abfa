"""What a try resumes from: loads what earlier tries stored, decides how much of it still applies, and explains why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_cloudstore.batch.ledger import STATE_FORMAT, Match, RecordedOutcomes, State
from airflow_provider_cloudstore.batch.receipts import Receipts, Try
from airflow_provider_cloudstore.protocol.errors import CloudStoreError, InvalidInputError
from airflow_provider_cloudstore.protocol.storable import checksum_of


class StateStore(Protocol):
    """Keeps the state of a batch between tries; both methods block."""

    def load(self) -> Any:
        """The stored state, or None."""

    def save(self, state: dict[str, Any]) -> None:
        """Store the state.

        :raises BatchSupersededError: if the store refuses this try.
        """


@dataclass(frozen=True, slots=True)
class Progress:
    """What earlier tries stored.

    :param state: what the state store holds, by position.
    :param recorded: what the receipts hold, by digest.
    :param unused: why nothing is resumed if neither holds anything.
    """

    state: State | None
    recorded: RecordedOutcomes | None
    unused: str

    def matching(self, match: Match) -> State | None:
        """The part of the state that applies to the manifest as it is now."""
        if self.state is None:
            return None
        settled = self.state.settled.within(match.unchanged)
        unknown = self.state.unknown.within(match.unchanged)
        return State(self.state.survey, settled, unknown, self.state.failures) if len(settled) else None

    def explain(self, match: Match, total: int, *, resends_unknown: bool) -> Iterator[str]:
        """Log lines: why this try does or does not resume, and from what."""
        recorded = self.recorded.finished if self.recorded else 0
        if self.state:
            unknown = _unknown(len(self.state.unknown), resends_unknown)
            yield self._explain_state(self.state, match, total, recorded, unknown)
        if recorded:
            unknown = _unknown(self.recorded.unknown if self.recorded else 0, resends_unknown)
            yield f"Resuming from the receipts: {recorded:,} URLs are finished{unknown}, wherever they are in the manifest."
        elif not self.state:
            yield f"Starting at the first URL: {self.unused}."

    def _explain_state(self, state: State, match: Match, total: int, recorded: int, unknown: str) -> str:
        finished, kept = len(state.settled), len(state.settled.within(match.unchanged))
        if match.changed_line is None:
            change = "only grew" if total > state.survey.total else "is unchanged"
            return (
                f"Resuming from the state store: the manifest {change}, and {finished:,} of {total:,} URLs are finished{unknown}."
            )
        if kept:
            return (
                f"Resuming from the state store: the manifest changed at or after line {match.changed_line:,}; "
                f"kept {kept:,} of {finished:,} finished URLs."
            )
        return f"The manifest changed since the last try; {'its state no longer applies' if recorded else 'starting over'}."


def _unknown(count: int, resends: bool) -> str:
    return f", {count:,} of them unknown{' and resent' if resends else ''}" if count else ""


def load_progress(store: StateStore | None, receipts: Receipts | None, writer: Try, since: int) -> Progress:
    """Leave the mark of this try, which stops any older one, and load what earlier tries stored.

    :param store: the state store, if there is one.
    :param receipts: the receipts, if the task has any.
    :param writer: this try.
    :param since: the first try whose progress counts.
    :raises BatchSupersededError: if a newer try has left its mark.
    :raises InvalidInputError: if there cannot be receipts at their place, or what is stored is damaged or of another format.
    """
    unused = f"resume=False ignores what was stored before try {since}" if since > 1 else "no finished URL of this run is stored"
    state, recorded, missing, problem = None, None, False, ""
    if store:
        stored = _claim_state(store, writer, since)
        found = stored.get("version")
        if found == STATE_FORMAT:
            state = State.from_dict(stored)
        elif found is not None:
            problem = f"the batch's state has format {found}, written by another release; this one reads format {STATE_FORMAT}"
    if receipts:
        recorded = RecordedOutcomes()
        try:
            receipts.begin()
            receipts.read(recorded.add, since)
        except CloudStoreError:
            raise
        except Exception as error:
            if not _is_missing_bucket(error):
                raise
            missing = True
    if missing:
        raise InvalidInputError("the receipts folder is in a bucket or container that does not exist; nothing was sent")
    if problem and not (recorded and recorded.finished):
        raise InvalidInputError(
            f"{problem}; nothing was sent",
            advice="Finish the run with that release, or clear the task with resume=False, which resends every URL.",
        )
    return Progress(state if state and len(state.settled) else None, recorded, unused)


def _claim_state(store: StateStore, writer: Try, since: int) -> dict[str, Any]:
    """Leave the mark before reading: what an older try writes when it thaws in between would be lost otherwise."""
    stored = store.load()
    mark = _mark_of(stored)
    writer.validate(mark, begins=True)
    if stored is None or mark.get("number", 0) < since:
        store.save({"writer": writer.to_mark()})
        return {}
    _validate_state(stored)
    store.save({**stored, "writer": writer.to_mark()})
    stored = store.load()
    _validate_state(stored)
    return dict(stored)


def save_state(store: StateStore, writer: Try, state: dict[str, Any]) -> None:
    """Store the state with the mark of this try.

    :raises BatchSupersededError: if a newer try has left its mark.
    """
    writer.validate(_mark_of(store.load()))
    store.save({**state, "checksum": checksum_of(state), "writer": writer.to_mark()})


def _mark_of(stored: Any) -> dict[str, Any]:
    mark = stored.get("writer") if isinstance(stored, dict) else None
    return mark if isinstance(mark, dict) and type(mark.get("number")) is int else {}


def _validate_state(stored: Any) -> None:
    """Check what the store returned: a mark alone, or a state with its checksum. What another format holds is not known.

    :raises InvalidInputError: if it is neither.
    """
    if isinstance(stored, dict):
        state = {name: value for name, value in stored.items() if name not in ("checksum", "writer")}
        version = state.get("version")
        is_mark = not state and _mark_of(stored)
        if is_mark or (type(version) is int and (version != STATE_FORMAT or stored.get("checksum") == checksum_of(state))):
            return
    raise InvalidInputError(
        "the batch's state in Airflow's state store is damaged; nothing was sent",
        advice="Delete it and clear the task, which resends every URL that no receipts have.",
    )


def _is_missing_bucket(error: BaseException | None) -> bool:
    """Whether a store reports that the bucket does not exist; adlfs wraps Azure's own error in a ``RuntimeError``."""
    while error is not None:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)) or type(error).__name__ == "ResourceNotFoundError":
            return True
        error = error.__cause__ or error.__context__
    return False
