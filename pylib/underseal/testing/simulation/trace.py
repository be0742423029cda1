"""What happened in a run: who did what, when, and what came of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a trace.

    Attributes:
        at: seconds of the simulation.
        who: a life, as `node#number`; "-" for the world outside.
        what: what it did.
        outcome: what came of it.
    """

    at: float
    who: str
    what: str
    outcome: str = ""

    def __str__(self) -> str:
        """As it is printed."""
        return f"{self.at:10.4f}  {self.who:<12} {self.what:<60} {self.outcome}".rstrip()


@dataclass
class Trace:
    """All of them, in the order in which they happened."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, at: float, who: str, what: str, outcome: str = "") -> None:
        """Note something."""
        self.entries.append(Entry(at, who, what, outcome))

    def __str__(self) -> str:
        """As it is printed."""
        return "\n".join(map(str, self.entries))

    @property
    def digest(self) -> str:
        """The same for the same trace."""
        return hashlib.sha256(str(self).encode()).hexdigest()
