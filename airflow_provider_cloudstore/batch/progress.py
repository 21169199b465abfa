"""How far a batch has come: what is finished, counted and small enough to be stored once a second."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

FAILURES_TOLD = 20
_VERSION = 2
_DIGEST_SIZE = 16
_SHORT_DIGEST = 16  # characters: of at most a thousand entries, each at a known place


class Status(Enum):
    """What became of a URL."""

    QUEUED = "queued"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


def digest_of(text: str, before: bytes = b"") -> bytes:
    """A digest of ``text``, chained to the digest of what came before it.

    :param text: a URL.
    :param before: the digest of the entries before.
    """
    return hashlib.blake2b(before + text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_SIZE).digest()


@dataclass(slots=True)
class Progress:
    """Which entries of a manifest are finished: all before a watermark, and some after it.

    :param watermark: every entry before this position is finished.
    :param chain: the digest of all entries before the watermark: by it a manifest that has changed is known.
    :param ahead: the finished positions after the watermark, with the digest of each entry.
    :param counts: how many entries ended in which status.
    :param failures: the first failures, redacted.
    """

    watermark: int = 0
    chain: bytes = b""
    ahead: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    _chains: dict[int, bytes] = field(default_factory=dict)

    def begin(self, position: int, chain: bytes) -> None:
        """Note that an entry is on its way.

        :param position: the entry.
        :param chain: the digest of all entries up to and with it.
        """
        self._chains[position] = chain
        self._advance()

    def finish(self, position: int, digest: str, status: Status, failure: dict[str, Any] | None = None) -> None:
        """Note that an entry is finished.

        :param position: the entry.
        :param digest: the digest of the entry.
        :param status: what became of it.
        :param failure: what to tell of it, redacted.
        """
        self.counts[status.value] += 1
        if failure and len(self.failures) < FAILURES_TOLD:
            self.failures.append(failure)
        self.ahead[position] = digest[:_SHORT_DIGEST]
        self._advance()

    def _advance(self) -> None:
        while self.watermark in self.ahead and self.watermark in self._chains:
            del self.ahead[self.watermark]
            self.chain = self._chains.pop(self.watermark)
            self.watermark += 1

    @property
    def finished(self) -> int:
        """How many entries are finished."""
        return sum(self.counts.values())

    def to_state(self) -> dict[str, Any]:
        """As JSON can hold it. It is small: no more than a thousand entries are ahead of the watermark."""
        return {
            "version": _VERSION,
            "watermark": self.watermark,
            "chain": self.chain.hex(),
            "ahead": {str(position): digest for position, digest in self.ahead.items()},
            "counts": dict(self.counts),
            "failures": self.failures,
        }

    @classmethod
    def from_state(cls, state: Any) -> Progress | None:
        """The progress that :meth:`to_state` told of, or None where the state is not of this version.

        :param state: what was stored.
        """
        if not isinstance(state, dict) or state.get("version") != _VERSION:
            return None
        ahead = {int(position): str(digest) for position, digest in state["ahead"].items()}
        counts = Counter({str(key): int(value) for key, value in state["counts"].items()})
        return cls(state["watermark"], bytes.fromhex(state["chain"]), ahead, counts, list(state["failures"]))

    def fits(self, urls: Iterable[str]) -> bool:
        """Whether all that is finished is of this manifest.

        :param urls: the manifest, from its start.
        """
        chain, position, ahead = b"", -1, dict(self.ahead)
        for position, url in enumerate(urls):
            if position < self.watermark:
                chain = digest_of(url, chain)
            elif ahead and ahead.pop(position, "") not in ("", digest_of(url).hex()[:_SHORT_DIGEST]):
                return False
            elif not ahead:
                break
        return position + 1 >= self.watermark and chain == self.chain and not ahead
