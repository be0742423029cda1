"""A simulated world: nodes that are the real runtime, one real database, and what goes wrong between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from underseal.errors import FlowError
from underseal.flow.batches import AWAY
from underseal.flow.step import current_step
from underseal.held.async_client import AsyncUnderseal
from underseal.testing.simulation.clock import Clock
from underseal.testing.simulation.faults import CALM, Fault, Plan
from underseal.testing.simulation.loop import Life, SimLoop, SimulationStuck, current_life
from underseal.testing.simulation.network import Call, SimPool
from underseal.testing.simulation.server import Server
from underseal.testing.simulation.trace import Trace

T = TypeVar("T")
Main: TypeAlias = "Callable[[Node], Coroutine[Any, Any, None]]"

_LOOK: Final = 0.5
"""Seconds between two looks whether all is at rest."""
_ANEW: Final = 1.0
"""Seconds after which a node comes back that ended by an error of its own."""
_LATE: Final = 1.0
"""Seconds that a call takes, in bad weather or behind a lock, by which its life is hit: it may be a renewal."""
_FAR_APART: Final = 1000.0
"""Seconds between the clocks of two nodes: nobody may compare them."""


class Node:
    """A process of the simulated world, which may die and come back under its name.

    Attributes:
        name: what it is called.
        serves: whether it goes on for ever, and nobody waits for its end.
        lives: how often it has begun.
        calls: how many calls it has made, in all its lives.
        clock: its own.
        cut_until: until when it reaches no database.
        life: the one it lives; None while it is down.
    """

    def __init__(self, simulation: Simulation, name: str, main: Main, number: int, serves: bool) -> None:
        self.simulation = simulation
        self.name = name
        self.main = main
        self.lives = 0
        self.calls = 0
        self.serves = serves
        self.clock = Clock(offset=_FAR_APART * number)
        self.cut_until = 0.0
        self.life: Life | None = None
        self.pool: SimPool | None = None
        self.over = False

    def client(self, **options: Any) -> AsyncUnderseal:
        """A client over this life's connections.

        Parameters:
            options: as `AsyncUnderseal` has them; the worker's name is the node's.
        """
        assert self.pool is not None
        return AsyncUnderseal(self.pool, **{"worker_name": self.name, **options})

    async def patiently(self, act: Callable[[], Awaitable[T]], pause: float = 0.2) -> T:
        """Do something, again while the database is away: what was sent may have been done.

        Parameters:
            act: what.
            pause: seconds before it is tried again.
        """
        while True:
            try:
                return await act()
            except AWAY:
                await asyncio.sleep(pause)


@dataclass
class Effect:
    """Something that a node did outside the database.

    Attributes:
        number: its place among all effects of a run.
        order: what the witness of the database had noted by then, a number that only grows.
        who: the life.
        name: what it was.
        value: what with.
        execution, step, attempt: the step that did it; None outside steps.
    """

    number: int
    order: int
    who: str
    name: str
    value: Any
    execution: str | None = None
    step: int | None = None
    attempt: int | None = None


@dataclass
class Simulation:
    """One run: its nodes, its database, its trace.

    Attributes:
        plan: what was decided before.
        server: the database.
        calm_after: seconds after which nothing goes wrong any more.
        loop, trace, nodes: what runs, what happened, who is there.
        effects: what nodes did outside the database.
        faults: what was found to be wrong.
        hit: lives that something went wrong with, or whose calls took very long.
        lives: all there were.
        clocks_set: whether a clock was set while it ran.
        under_way: calls that are in the database.
        calls: how many were made.
    """

    plan: Plan
    server: Server
    calm_after: float = 60.0
    loop: SimLoop = field(init=False)
    trace: Trace = field(default_factory=Trace)
    nodes: dict[str, Node] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    hit: set[str] = field(default_factory=set)
    lives: list[str] = field(default_factory=list)
    clocks_set: bool = False
    under_way: list[Call] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        """Sort the faults by whom they hit, and let the database go by this time."""
        self.loop = SimLoop(
            lambda life, what: self.wrong(f"{life.title} left an error that nobody waited for: {what}"[:300])
        )
        self.server.now = lambda: self.loop.now
        self._waiting: dict[tuple[str, int], list[Fault]] = {}
        for fault in self.plan.faults:
            self._waiting.setdefault((fault.node, fault.call), []).append(fault)

    # -- what scenarios use ------------------------------------------------------------------------

    def node(self, name: str, main: Main, *, serves: bool = False, after: float = 0.0) -> Node:
        """Let there be a node.

        Parameters:
            name: its name.
            main: what it does in each of its lives, from the beginning; when it returns, the node has done its part.
            serves: it goes on for ever, as a worker does, and nobody waits for its end.
            after: seconds until it begins.
        """
        node = Node(self, name, main, len(self.nodes) + 1, serves)
        self.nodes[name] = node
        if name in self.plan.without:
            node.over = True
        else:
            self.loop.at(after, lambda: self._begin(node))
        return node

    def effect(self, name: str, value: Any = None) -> dict[str, Any]:
        """Note that something was done outside the database; what a step should return, so that the audit finds it.

        Parameters:
            name: what it was.
            value: what with.

        Returns: `{"effect": its number, "value": value}`.
        """
        life = current_life()
        if life is not None and life.gone:
            return {"effect": 0, "value": value}
        try:
            step = current_step()
        except FlowError:
            step = None
        self.effects.append(
            Effect(
                len(self.effects) + 1, self.server.noted(), self.who, name, value,
                *((None, None, None) if step is None else (step.execution_id, step.number, step.attempt)),
            )
        )  # fmt: skip
        self.note(self.who, f"does {name}", "" if step is None else f"{step.execution_id} step {step.number}")
        return {"effect": len(self.effects), "value": value}

    def wrong(self, what: str) -> None:
        """Note a finding: the run has failed."""
        life = current_life()
        if life is not None and life.gone:
            return
        self.faults.append(what)
        self.note("-", "FOUND", what)

    def note(self, who: str, what: str, outcome: str = "") -> None:
        """Put something into the trace. What the dead say is not heard."""
        life = current_life()
        if life is not None and life.gone:
            return
        self.trace.add(self.loop.now, who, what, outcome)

    # -- lives -------------------------------------------------------------------------------------

    @property
    def who(self) -> str:
        """The life whose code is running."""
        life = current_life()
        return "-" if life is None else life.title

    def _begin(self, node: Node) -> None:
        node.lives += 1
        node.life = life = Life(node.name, node.lives, node.clock)
        node.pool = SimPool(self, node, life)
        self.lives.append(life.title)
        self.note(life.title, "begins")
        task = self.loop.begin(life, node.main(node))
        task.add_done_callback(lambda done: self._ended(node, life, done), context=self.loop.base.context)

    def _ended(self, node: Node, life: Life, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self.note(life.title, "ends", "" if error is None else f"{type(error).__name__}: {error}"[:200])
        if node.life is not life:
            return
        self.loop.forget_ended()
        self._bury(node)
        if error is None:
            node.over = True
        else:
            if not isinstance(error, AWAY):
                self.wrong(f"{life.title} ended with {type(error).__name__}: {error}"[:300])
            self.loop.at(self.loop.now + _ANEW, lambda: self._begin(node))

    def _bury(self, node: Node) -> None:
        assert node.life is not None
        assert node.pool is not None
        self.loop.kill(node.life)
        node.pool.abandon()
        node.life = node.pool = None

    def crash(self, node: Node, seconds: float) -> None:
        """Kill it where it stands; it comes back under its name."""
        if node.life is None:
            return
        self.note(node.life.title, "is killed", f"back in {seconds:g} s")
        self._bury(node)
        self.loop.at(self.loop.now + seconds, lambda: self._begin(node))

    # -- what goes wrong ---------------------------------------------------------------------------

    def departs(self, call: Call) -> tuple[float, float | None, float]:
        """A call is made: what happens to it, and how long it takes there, before its commit, and back."""
        node = call.node
        node.calls += 1
        self.calls += 1
        if self.loop.now >= self.calm_after:
            return Plan(self.plan.seed, weather=CALM).latencies(node.name, node.calls)
        there, held, back = self.plan.latencies(node.name, node.calls)
        if max(there, held or 0.0, back) >= _LATE:
            self.hit.add(call.life.title)
        for fault in [
            *self._waiting.pop((node.name, node.calls), ()),
            *self._waiting.pop(("", self.calls), ()),
        ]:
            self.note(
                call.life.title if fault.node else "database",
                fault.kind.upper(),
                f"{fault.seconds:g} s, {call.what}",
            )
            if fault.node:
                self.hit.add(call.life.title)
            if fault.kind == "slow-call":
                there += fault.seconds
            elif fault.kind == "slow-commit":
                held = (held or 0.0) + fault.seconds
            elif fault.kind == "slow-reply":
                back += fault.seconds
            else:
                self._strike(fault, call)
        return there, held, back

    def waited(self, life: Life, seconds: float) -> None:
        """A call of a life has waited so long for a lock that another held."""
        if seconds >= _LATE:
            self.hit.add(life.title)

    def _strike(self, fault: Fault, call: Call) -> None:
        node, life, now = call.node, call.life, self.loop.now
        if fault.kind == "crash-before":
            self.loop.at(now, lambda: self.crash(node, fault.seconds) if node.life is life else None)
        elif fault.kind == "crash-after":
            call.despite, call.dies_with_it = True, fault.seconds
        elif fault.kind == "lost-call":
            call.lost_call = True
        elif fault.kind == "lost-reply":
            call.lost_reply = True
        elif fault.kind == "stall":
            self.loop.stall(life, fault.seconds, lambda: self.note(life.title, "goes on"))
        elif fault.kind == "partition":
            node.cut_until = max(node.cut_until, now + fault.seconds)
        elif fault.kind == "node-clock":
            node.clock.step(fault.seconds)
            self.clocks_set = True
        elif fault.kind == "database-clock":
            self.server.clock.step(fault.seconds)
            self.clocks_set = True
        elif fault.kind == "database-restart":
            self.loop.at(now, lambda: self._restart_database(fault.seconds))

    def _restart_database(self, seconds: float) -> None:
        self.note("database", "is restarted", f"back in {seconds:g} s")
        self.hit.update(node.life.title for node in self.nodes.values() if node.life is not None)
        self.server.restart(self.loop.now + seconds)
        for call in list(self.under_way):
            call.cut_off()
        for node in self.nodes.values():
            if node.pool is not None:
                node.pool.cut_off()

    def give_back(self, pgconn: Any) -> None:
        """Nobody uses a connection any more; whoever waited for what it had open goes on next.

        Parameters:
            pgconn: the connection.
        """
        if self.server.give_back(pgconn):
            self.loop.at(self.loop.now, self.server.settle)

    # -- running -----------------------------------------------------------------------------------

    def run(self, rest: Callable[[Server], str | None], *, at_most: float) -> None:
        """Let it run until every node that ends has ended, and the database has come to rest.

        Parameters:
            rest: says what is still to be done there, or None.
            at_most: seconds of the simulation from the beginning.
        """
        done = self.loop.create_future()

        def look() -> None:
            left = self._left() or rest(self.server)
            if left is not None and self.loop.now < at_most:
                self.loop.at(self.loop.now + _LOOK, look)
                return
            if left is not None:
                self.wrong(f"expected rest after {at_most:g} s, found that {left}")
            if not done.done():
                done.set_result(None)

        self.loop.at(_LOOK, look)
        try:
            self.loop.run_until_complete(done)
        except SimulationStuck as stuck:
            self.wrong(str(stuck))

    def _left(self) -> str | None:
        names = [node.name for node in self.nodes.values() if not (node.over or node.serves)]
        return f"{', '.join(names)} had not ended" if names else None

    def close(self) -> None:
        """End all that runs."""
        self.server.restart(0.0)
        for node in self.nodes.values():
            if node.life is not None:
                self._bury(node)
        for call in list(self.under_way):
            call.cut_off()
        self.loop.close()
