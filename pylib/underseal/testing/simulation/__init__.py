"""Several nodes on one made-up clock over a real Postgres, with what goes wrong drawn from a seed."""

from underseal.testing.simulation.books import books_of
from underseal.testing.simulation.faults import CALM, Fault, Plan, Weather
from underseal.testing.simulation.run import Report, Scenario, at_rest, shrink, simulate
from underseal.testing.simulation.stage import Stage
from underseal.testing.simulation.world import Effect, Node, Simulation

__all__ = [
    "CALM",
    "Effect",
    "Fault",
    "Node",
    "Plan",
    "Report",
    "Scenario",
    "Simulation",
    "Stage",
    "Weather",
    "at_rest",
    "books_of",
    "shrink",
    "simulate",
]
