"""Flows of the storm."""
from tests.crash.witness import Effects
from underseal.flow.definition import Flow


def make(effects: Effects) -> list[Flow]:
    return []
