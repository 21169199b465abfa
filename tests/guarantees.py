"""Checks the figures of system tests whose promises ``docs/operate/guarantees.md`` lists."""

from __future__ import annotations

import pytest


def guarantee(promise: str, fault: str) -> pytest.MarkDecorator:
    """Mark a test as the proof of a promise.

    :param promise: the promise.
    :param fault: what is killed, frozen or away.
    """
    return pytest.mark.guarantee(promise, fault)


class Proof:
    """Takes the figures of one test, and fails those that break a promise."""

    given = False
    """Whether the test has handed in its figures."""

    def __call__(
        self, *, twice: int | None = None, at_most: int | None = None, lost: int | None = None, **seen: float | None
    ) -> None:
        """Check the figures, and print them.

        :param seen: other figures, which are only printed.
        """
        self.given = True
        print({"twice": twice, "at_most": at_most, "lost": lost, **seen})
        assert not lost
        assert (twice or 0) <= (at_most or 0)
