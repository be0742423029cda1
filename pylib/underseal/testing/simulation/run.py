"""One run of a scenario: drawn, played, audited."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from underseal.testing.entropy import SeededEntropy, deterministic
from underseal.testing.simulation import faults
from underseal.testing.simulation.faults import Plan
from underseal.testing.simulation.server import Server
from underseal.testing.simulation.stage import Stage
from underseal.testing.simulation.trace import Trace
from underseal.testing.simulation.world import Effect, Simulation

_LOGGER: Final = "underseal"


@dataclass(frozen=True)
class Scenario:
    """What is simulated.

    Attributes:
        name: its name.
        build: adds the nodes to a simulation.
        prepare: registers in the database what nodes expect there.
        audit: what is wrong after a run.
        rest: what is still to be done in the database, or None.
        calls: among how many calls of a node faults are spread.
        most: faults of a run at most.
        longest: seconds that a fault lasts at most: longer than a lease.
        calm_after: seconds after which nothing goes wrong any more.
        at_most: seconds after which all must be at rest.
        optional: nodes that may stay away while a failing plan is made smaller.
    """

    name: str
    build: Callable[[Simulation], None]
    audit: Callable[[Simulation, Stage], list[str]]
    prepare: Callable[[Stage], None] = lambda _: None
    rest: Callable[[Server], str | None] = field(default=lambda server: at_rest(server))
    nodes: tuple[str, ...] = ()
    calls: int = 80
    most: int = 6
    longest: float = 6.0
    calm_after: float = 40.0
    at_most: float = 200.0
    optional: tuple[str, ...] = ()

    def plan(self, seed: int) -> Plan:
        """What a seed says."""
        return Plan.draw(seed, self.nodes, calls=self.calls, most=self.most, longest=self.longest)


@dataclass
class Report:
    """What came of a run.

    Attributes:
        scenario, plan: what was played.
        faults: what is wrong; nothing, one hopes.
        trace: who did what, when.
        calls: how many calls were made.
        seconds: of the simulation.
        effects: what nodes did outside the database.
    """

    scenario: str
    plan: Plan
    faults: list[str]
    trace: Trace
    calls: int
    seconds: float
    effects: list[Effect] = field(default_factory=list)

    def __str__(self) -> str:
        """What a person needs to see what went wrong, and to see it again."""
        lines = [f"{self.scenario}, seed {self.plan.seed}: {_counted(len(self.faults))}"]
        lines += [f"  {fault}" for fault in self.faults]
        lines += [f"weather: {self.plan.weather}", "what went wrong on purpose:"]
        lines += [f"  {fault}" for fault in self.plan.faults] or ["  nothing"]
        lines += [f"without: {', '.join(sorted(self.plan.without))}"] if self.plan.without else []
        return "\n".join([*lines, "", str(self.trace)])


def _counted(findings: int) -> str:
    return {0: "nothing is wrong", 1: "1 thing is wrong"}.get(findings, f"{findings} things are wrong")


def simulate(scenario: Scenario, stage: Stage, plan: Plan | int) -> Report:
    """Play a scenario once. The same plan gives the same trace, logs and tables again.

    Parameters:
        scenario: what.
        stage: where; it is emptied before.
        plan: what goes wrong; a seed, for what that says.
    """
    if isinstance(plan, int):
        plan = scenario.plan(plan)
    stage.empty(plan.seed)
    scenario.prepare(stage)
    simulation = Simulation(plan, stage.server, scenario.calm_after)
    with deterministic(SeededEntropy(plan.seed)), _no_collector(), _told(simulation):
        try:
            scenario.build(simulation)
            simulation.run(scenario.rest, at_most=scenario.at_most)
        finally:
            simulation.close()
    found = [*simulation.faults, *scenario.audit(simulation, stage)]
    return Report(
        scenario.name,
        plan,
        found,
        simulation.trace,
        simulation.calls,
        simulation.loop.now,
        simulation.effects,
    )


def shrink(scenario: Scenario, stage: Stage, plan: Plan) -> Report:
    """Make a plan that fails smaller, and play what is left.

    Parameters:
        scenario, stage: as `simulate` has them.
        plan: one that fails.
    """
    smaller = faults.shrink(plan, lambda one: bool(simulate(scenario, stage, one).faults), scenario.optional)
    return simulate(scenario, stage, smaller)


def at_rest(server: Server) -> str | None:
    """What executions are still to do; None when each has ended, or waits for what nobody has sent.

    Parameters:
        server: the database.
    """
    (row,) = server.ask("""
        select
          (select count(*) from underseal.execution e where e.status in ('pending', 'running')) as going,
          (select count(*) from underseal.wake w where w.wake_at <= underseal.clock()) as due,
          (select count(*) from underseal.held_operation o where o.state in ('APPROVED', 'EXECUTING')) as held""")
    left = [f"{row[name]} {what}" for name, what in _LEFT.items() if row[name]]
    return f"there were {', '.join(left)}" if left else None


_LEFT: Final = {"going": "executions under way", "due": "wakes due", "held": "operations to be run"}


@contextmanager
def _no_collector() -> Iterator[None]:
    """When the collector comes, and what it ends, would depend on what ran before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _IntoTrace(logging.Handler):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.WARNING)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        self._simulation.note(self._simulation.who, f"logs {record.levelname.lower()}", record.getMessage())


@contextmanager
def _told(simulation: Simulation) -> Iterator[None]:
    """Warnings go into the trace, and nowhere else."""
    handler = _IntoTrace(simulation)
    logger = logging.getLogger(_LOGGER)
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
