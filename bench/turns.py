"""Sides that take turns, and what is made of their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Pace:
    """How long one side is measured at a time, and how often.

    Parameters:
        seconds: length of a round of one side.
        rounds: how many.
    """

    seconds: float
    rounds: int


def take_turns(
    sides: Sequence[str], rounds: int, measure: Callable[[str], float], tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Measure every side once a round; the order alternates from round to round.

    Parameters:
        sides: what is compared.
        rounds: how many rounds.
        measure: measures one side once.
        tell: is told how far it is.

    Returns: what was measured of each side, in the order of the rounds.
    """
    figures: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds):
        tell(f"round {turn + 1} of {rounds}")
        for side in sides[:: 1 if turn % 2 else -1]:
            figures[side].append(measure(side))
    return figures


def ratio(figures: Mapping[str, Sequence[float]], side: str, other: str) -> float:
    """The median of what one side did beside what the other did in the same round, so that a machine that is busy for
    a while is busy for both."""
    return median(one / two for one, two in zip(figures[side], figures[other], strict=True))


def telling(tell: Callable[[str], None], what: str) -> Callable[[str], None]:
    """Tells what is measured besides how far it is."""
    return lambda progress: tell(f"{what}, {progress}")
