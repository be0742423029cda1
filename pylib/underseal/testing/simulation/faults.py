"""What goes wrong: drawn from a seed, or written down by whoever wants to see just that."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

FaultKind = Literal[
    "crash-before", "crash-after", "lost-call", "lost-reply", "slow-call", "slow-commit", "slow-reply",
    "stall", "partition", "node-clock", "database-clock", "database-restart",
]  # fmt: skip
"""`crash-before`: the node dies before its call reaches the database. `crash-after`: it dies, and the call is carried
out all the same. `lost-call`, `lost-reply`: the connection breaks, before or after. `slow-call`, `slow-commit`,
`slow-reply`: the call waits on its way there, in the database between its work and its commit, or on its way back.
`stall`: the node stands still, as under SIGSTOP. `partition`: it reaches no database. `node-clock`, `database-clock`: a
step forward or back. `database-restart`: every connection ends, and what was not committed with it."""

_OF_THE_DATABASE: Final = ("database-clock", "database-restart")
_WEIGHTS: Final[dict[FaultKind, int]] = {
    "crash-before": 3, "crash-after": 4, "lost-call": 2, "lost-reply": 4, "slow-call": 3, "slow-commit": 4,
    "slow-reply": 3, "stall": 4, "partition": 2, "node-clock": 1, "database-clock": 1, "database-restart": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: what.
        node: whose call or life; "" for what is the database's.
        call: at which of the node's calls, counted from 1 over all its lives.
        seconds: how long it lasts; how far a clock steps; after how long a node that crashed comes back.
    """

    kind: FaultKind
    node: str
    call: int
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no simulation knows."""
        if self.kind not in get_args(FaultKind):
            raise ValueError(f"expected a kind of fault, found {self.kind!r}: one of {get_args(FaultKind)}")
        if (self.node == "") != (self.kind in _OF_THE_DATABASE):
            raise ValueError(
                f"expected {self.kind} to {'have no' if self.node else 'have a'} node, found other"
            )

    def __str__(self) -> str:
        """As a trace shows it."""
        whose = self.node or "the database"
        return f"{self.kind} of {whose} at call {self.call}, {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Weather:
    """How long calls take where nothing is wrong.

    Attributes:
        late: of 100 calls, how many are late on their way, up to `longest` seconds.
        longest: seconds.
        open: of 100 calls, how many leave others a moment between their work and their commit.
    """

    late: int = 5
    longest: float = 0.2
    open: int = 25


CALM: Final = Weather(0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before a run.

    Attributes:
        seed: of every draw that is left.
        faults: what goes wrong.
        weather: how long calls take.
        without: nodes that stay away.
    """

    seed: int
    faults: tuple[Fault, ...] = ()
    weather: Weather = field(default_factory=Weather)
    without: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """As Python, to be pasted into a test."""
        lines = [f"    {fault!r}," for fault in self.faults]
        faults = "\n".join(["(", *lines, ")"]) if lines else "()"
        without = f", without=frozenset({sorted(self.without)!r})" if self.without else ""
        return f"Plan({self.seed}, {faults}, {self.weather!r}{without})"

    @classmethod
    def draw(cls, seed: int, nodes: Sequence[str], *, calls: int, most: int, longest: float) -> Plan:
        """What a seed says.

        Parameters:
            seed: any number.
            nodes: which may be hit.
            calls: among how many calls of a node they are spread.
            most: at most so many faults.
            longest: seconds that one lasts at most.
        """
        drawn = random.Random(f"plan {seed}")
        kinds = list(_WEIGHTS)
        faults = []
        for _ in range(drawn.randint(0, most)):
            (kind,) = drawn.choices(kinds, [_WEIGHTS[one] for one in kinds])
            node = "" if kind in _OF_THE_DATABASE else drawn.choice(list(nodes))
            # half of them early, where most of it happens
            call = drawn.randint(1, calls if drawn.random() < 0.5 else max(1, calls // 4))
            # some longer than any lease, most shorter
            seconds = drawn.choice([0.05, 0.5, 1.0]) * drawn.uniform(0.1, 1.0) * longest
            if kind in ("node-clock", "database-clock"):
                seconds *= drawn.choice([1, -1])
            faults.append(Fault(kind, node, call, round(seconds, 3)))
        weather = drawn.choice([Weather(), Weather(20, 1.0, 50), Weather(0, 0.0, 100), Weather(2, 5.0, 10)])
        return cls(seed, tuple(faults), weather)

    def latencies(self, node: str, call: int) -> tuple[float, float | None, float]:
        """How long one call takes there, between its work and its commit (None: at once), and back.

        They follow from the seed, the node and the number alone, so that a fault less changes nothing but itself.
        """
        drawn = random.Random(f"{self.seed} {node} {call}")
        there, back = drawn.uniform(0.0002, 0.002), drawn.uniform(0.0002, 0.002)
        weather = self.weather
        held = drawn.uniform(0.0, 0.02) if drawn.random() * 100 < weather.open else None
        if drawn.random() * 100 < weather.late:
            there += drawn.random() ** 2 * weather.longest
        if drawn.random() * 100 < weather.late:
            back += drawn.random() ** 2 * weather.longest
        if held is not None and drawn.random() * 100 < weather.late:
            held += drawn.random() ** 2 * weather.longest
        return there, held, back


def shrink(plan: Plan, fails: Callable[[Plan], bool], nodes: Sequence[str] = ()) -> Plan:
    """A smaller plan that fails still: fewer faults, fewer nodes, calmer weather.

    Parameters:
        plan: one that fails.
        fails: runs a plan, and says whether it fails.
        nodes: which may stay away.

    Returns: a plan from which nothing more can be left out by itself.
    """
    smaller: Plan | None = plan
    while smaller is not None:
        plan = smaller
        smaller = next((one for one in _smaller(plan, nodes) if fails(one)), None)
    return plan


def _smaller(plan: Plan, nodes: Sequence[str]) -> list[Plan]:
    halves = len(plan.faults) // 2
    found = []
    if halves > 1:
        found += [replace(plan, faults=plan.faults[:halves]), replace(plan, faults=plan.faults[halves:])]
    found += [
        replace(plan, faults=plan.faults[:place] + plan.faults[place + 1 :])
        for place in range(len(plan.faults))
    ]
    found += [replace(plan, without=plan.without | {node}) for node in nodes if node not in plan.without]
    if plan.weather != CALM:
        found += [replace(plan, weather=CALM)]
        found += [replace(plan, weather=replace(plan.weather, late=0))] if plan.weather.late else []
        found += [replace(plan, weather=replace(plan.weather, open=0))] if plan.weather.open else []
    return found
