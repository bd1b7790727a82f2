"""How much a child puts into one statement: few jobs at a time after one that failed, until it goes
well again; and never so many large outcomes that the server would be busy with them for long.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from . import outcomes
from .hand import Hand

#: Jobs, and characters of outcomes, that go into one statement at the most.
MOST, SIZE = 1000, 1_000_000
#: A large outcome that takes longer than the patience of its session is tried alone so often.
TRIES = 3


class Portion:
    """The portion of one session; ``most`` is how many jobs."""

    def __init__(self) -> None:
        self.most = MOST

    def split(self, hands: Sequence[Hand]) -> tuple[list[Hand], list[Hand]]:
        """Divide endings into those that go out now and the rest; what has failed alone goes last.
        Of large ones there is one at least."""
        ordered = hands if self.most == MOST else sorted(hands, key=lambda hand: hand.tries)
        size = count = 0
        for hand in ordered[: self.most]:
            size += _size(hand)
            if size > SIZE and count:
                break
            count += 1
        return list(ordered[:count]), list(ordered[count:])

    def failed(self, count: int) -> None:
        """A statement about so many jobs has failed."""
        self.most = max(min(count, self.most) // 2, 1)

    def went_well(self) -> None:
        """A statement has not."""
        self.most = min(2 * self.most, MOST)


def give_up(hand: Hand, error: Exception) -> None:
    """Count a try of an ending alone. One that is large, and cannot be stored in the time that a
    statement may take, is a failed attempt in the end."""
    hand.tries += 1
    slow = isinstance(error, psycopg.errors.QueryCanceled) and _size(hand) > SIZE
    if slow and hand.tries >= TRIES:
        hand.outcome = outcomes.unstorable("it takes too long")


def _size(hand: Hand) -> int:
    outcome = hand.outcome
    return 0 if outcome is None else len(outcome.result or "") + len(outcome.data or "")
