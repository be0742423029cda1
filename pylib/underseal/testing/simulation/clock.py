"""Clocks that go wrong on purpose: each node's, and the database's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """What somebody takes for the time, when so many seconds of the simulation have gone by.

    Attributes:
        offset: what it shows at the beginning, in seconds.
        rate: seconds that it goes on in a second.
    """

    offset: float = 0.0
    rate: float = 1.0

    def shows(self, true: float) -> float:
        """What it shows at an instant of the simulation."""
        return self.offset + true * self.rate

    def when(self, shown: float) -> float:
        """At which instant of the simulation it shows this, if nobody sets it."""
        return (shown - self.offset) / self.rate

    def step(self, seconds: float) -> None:
        """Set it forward, or back."""
        self.offset += seconds
