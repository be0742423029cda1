"""Plays scenarios in a process of its own and prints what came of them: `python -m tests.simulation.replayed`.

Arguments: the server as JSON (host, port, user, password), the database, and seeds.
"""

from __future__ import annotations

import json
import sys

import pytest

from tests.simulation.operations import PAYOUTS
from tests.simulation.scenes.messages import MESSAGES
from underseal.foundation.server import Server
from underseal.testing import TestDatabase
from underseal.testing.simulation import Stage, simulate


def digests(stage: Stage, seeds: list[int]) -> list[list[str]]:
    """Of each scenario and seed the digests of its trace and of its tables.

    Parameters:
        stage: where.
        seeds: which.
    """
    found = []
    for scenario in (PAYOUTS, MESSAGES):
        for seed in seeds:
            report = simulate(scenario, stage, seed)
            found.append([scenario.name, str(seed), report.trace.digest, stage.digest()])
    return found


if __name__ == "__main__":
    # the seam of entropy asks for a test run: its variable is inherited from the test that plays this, pytest is not
    assert pytest.__version__
    server, name, *seeds = sys.argv[1:]
    database = TestDatabase(Server(**json.loads(server)), name)
    stage = Stage(database)
    sys.stdout.write(json.dumps(digests(stage, [int(seed) for seed in seeds])))
    stage.change(f"drop owned by {stage.login}")
    stage.server.close()
    database.close_connections()
    database.drop_roles()
