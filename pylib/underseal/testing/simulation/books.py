"""What the audit of runs looks at, after a run of the simulation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from underseal.testing.audit import Books
from underseal.testing.simulation.stage import Stage
from underseal.testing.simulation.world import Simulation

Row = dict[str, Any]


def books_of(simulation: Simulation, stage: Stage, **noted: Iterable[Row]) -> Books:
    """The books of a run. Instants are replaced by the witness's numbers, since clocks may have been set.

    Parameters:
        simulation: the run.
        stage: where it took place.
        noted: what the scenario's nodes noted, as `Books.read` takes it: `sent`, `runs`.
    """
    effects = [
        {
            "effect": one.number, "execution": one.execution, "step": one.step, "attempt": one.attempt,
            "name": one.name, "process": one.who, "began": one.order,
        }
        for one in simulation.effects
        if one.execution is not None
    ]  # fmt: skip
    books = Books.read(stage.conninfo, effects=effects, excused=simulation.hit, **noted)
    for row in (*books.written, *books.fences):
        row["at"] = row["number"]
    return books
