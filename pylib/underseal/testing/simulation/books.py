"""What the audit of runs looks at, after a run of the simulation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from underseal.testing.audit import Books
from underseal.testing.simulation.stage import Stage
from underseal.testing.simulation.world import Simulation

Row = dict[str, Any]


def books_of(
    simulation: Simulation,
    stage: Stage,
    *,
    sent: Iterable[Row] = (),
    asked: Iterable[Row] = (),
    runs: Iterable[Row] | None = None,
) -> Books:
    """The books of a run. Instants are the witness's numbers, since clocks may have been set.

    Parameters:
        simulation: the run.
        stage: where it took place.
        sent, asked, runs: what the scenario's nodes noted, see `Books`.
    """
    effects = [
        {
            "effect": one.number, "execution": one.execution, "step": one.step, "attempt": one.attempt,
            "name": one.name, "process": one.who, "began": one.order,
        }
        for one in simulation.effects
        if one.execution is not None
    ]  # fmt: skip
    books = Books.read(
        stage.conninfo,
        numbered=True,
        effects=effects,
        sent=sent,
        asked=asked,
        runs=runs,
        # under clocks that were set, a lease may be over for the database and not for who holds it
        excused=simulation.lives if simulation.clocks_set else simulation.hit,
    )
    books.clocks_agree = not simulation.clocks_set
    return books
