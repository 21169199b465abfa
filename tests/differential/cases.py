"""What is played: responses in turn, to calls of the API or to one download; the same ones for the same seed and number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Self

from tests.differential.responses import RawResponse, generate, generate_for_download


@dataclass(frozen=True, slots=True)
class Case:
    """What the service responds to the first request of each call, to the second, ...; the last response is repeated.

    :param way: how the clients reach it: ``direct``, ``proxied`` or ``hurried``.
    """

    number: int | str
    responses: tuple[RawResponse, ...]
    way: str

    @classmethod
    def generate(cls, seed: str, number: int) -> Self:
        """The case of that number.

        :param seed: of all cases.
        """
        rng = Random(f"{seed}:{number}")
        responses = [generate(rng) for _ in range(rng.choice([1, 1, 1, 1, 2]))]
        way = "hurried" if any(one.stalls for one in responses) else rng.choice(["direct", "direct", "proxied"])
        return cls(number, tuple(responses), way)

    @property
    def hostile(self) -> bool:
        """Whether a response aims at memory or time."""
        return any(one.hostile for one in self.responses)

    def response(self, attempt: int, start: int | None = None) -> RawResponse:
        """The response to a request.

        :param attempt: which request of the call, from 0.
        """
        return self.responses[min(attempt, len(self.responses) - 1)]


@dataclass(frozen=True, slots=True)
class DownloadCase:
    """One file, and for each request a response at random that frames what was requested of it.

    :param way: ``plain`` for the whole file, ``checked`` for the same with its SHA-256, ``part`` for a range.
    :param etag: the file's entity tag, with which a download resumes; empty for none.
    :param stalls: whether a response may make the client wait for its time limit, or aim at its memory.
    :param fixed: the response to every request, in place of those at random.
    :ivar played: the responses so far.
    """

    number: int | str
    seed: str
    content: bytes = field(repr=False)
    way: str
    etag: str
    stalls: bool
    fixed: RawResponse | None = None
    played: list[RawResponse] = field(default_factory=list, repr=False)

    @classmethod
    def generate(cls, seed: str, number: int) -> Self:
        """The case of that number.

        :param seed: of all cases.
        """
        rng = Random(f"{seed}:{number}:download")
        content = rng.randbytes(rng.choice([1, 5, 30, 500, 500, 3000, 100_000]))
        way, etag = rng.choice(["plain", "plain", "checked", "part"]), rng.choice(["", '"v1"'])
        return cls(number, seed, content, way, etag, rng.random() < 0.05)

    @property
    def hostile(self) -> bool:
        """Whether a response aims at memory or time."""
        return self.stalls

    @property
    def responses(self) -> list[RawResponse]:
        """The responses so far."""
        return self.played

    def response(self, attempt: int, start: int | None = None) -> RawResponse:
        """The response to a request.

        :param attempt: which request of the download, from 0.
        :param start: the first byte of its range; None for the whole file.
        """
        rng = Random(f"{self.seed}:{self.number}:download:{attempt}")
        while True:
            response = self.fixed or generate_for_download(rng, self.content, start, self.etag)
            if self.fixed or self.stalls or not (response.stalls or response.hostile):
                self.played.append(response)
                return response


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that must not be.

    :param who: the client and the operation.
    """

    case: Case | DownloadCase
    who: str
    kind: str
    what: str


def summary(found: list[Mismatch]) -> str:
    """How often each kind of mismatch was found, and the first of each; ``CLOUDSTORE_CASE`` plays its number again."""
    kinds = Counter(f"{one.who}: {one.kind}" for one in found)
    lines = [f"{len(found)} mismatches in {len({one.case.number for one in found})} cases"]
    lines += [f"  {count:6} {kind}" for kind, count in kinds.most_common(40)]
    for kind in dict.fromkeys(one.kind for one in found):
        first = next(one for one in found if one.kind == kind)
        lines.append(f"case {first.case.number}, {first.who} ({first.case.way}): {kind}: {first.what}")
        lines += [f"    response {number}: {one.shown()}" for number, one in enumerate(first.case.responses, 1)]
    return "\n".join(lines)
