"""The simulated restart of the database is like a real one: with that, the same run gives the same trace and tables.

A backend of a server of the test's own is killed; Postgres then ends all others, forgets what was not committed and
replays its log, as after a power cut.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.simulation.scenes.messages import MESSAGES
from tests.simulation.scenes.steps import STEPS
from underseal.foundation.server import embedded_server
from underseal.testing import OWNER, TestDatabase, install, wait_until
from underseal.testing.simulation import Fault, Plan, Scenario, Stage, Weather, simulate
from underseal.testing.simulation.server import Server, wait_for_its_end

_SETTINGS: Final = {"fsync": "off", "full_page_writes": "off"}  # the machine itself goes on
_DRAWN: Final = """
select format('%I.%I', schemaname, sequencename) as name, coalesce(last_value, start_value) as value,
  last_value is not null as called
from pg_sequences"""
_AT_WORK: Final = """
select from pg_stat_activity where usename = %s and (state <> 'idle' or wait_event_type = 'Lock')"""
_OPEN: Final = Weather(late=20, longest=1.0, open=100)


@dataclass
class Cluster:
    """A stage on a server of its own.

    Parameters:
        database: the database.
        stage: the stage in it.
        cut_off: how many backends were at work when it was restarted.
    """

    database: TestDatabase
    stage: Stage
    cut_off: int = 0

    def restart(self, until: float) -> None:
        """Restart the server, in the place of `Server.restart`.

        Parameters:
            until: until when nobody reaches it; 0 at the end of a run.
        """
        server = self.stage.server
        if not until:
            Server.restart(server, until)
            return
        # a crash skips numbers that were drawn ahead; those are no part of what is compared
        drawn = server.ask(_DRAWN)
        self.cut_off += len(server.ask(_AT_WORK, [self.stage.login]))
        server.brake.release_all()
        os.kill(server._control.info.backend_pid, signal.SIGKILL)
        for pgconn in (*server._lent, *server._idle):
            if pgconn.status == psycopg.pq.ConnStatus.OK:
                wait_for_its_end(pgconn)
            pgconn.finish()
        server._idle.clear()
        server._waiting.clear()
        self.database.close_connections()
        wait_until(self._is_back, timeout=30)
        server._control = self.stage._control = self.database.connect()
        self.stage.owner = self.database.connect(OWNER)
        for one in drawn:
            server._control.execute("select setval(%s, %s, %s)", [one["name"], one["value"], one["called"]])
        server.away_until = until

    def _is_back(self) -> bool:
        try:
            psycopg.connect(self.database.conninfo).close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server of these tests' own; not below pytest's directories, which only their owner may enter."""
    with (
        tempfile.TemporaryDirectory(prefix="underseal-crash-") as directory,
        embedded_server(Path(directory) / "data", _SETTINGS) as server,
    ):
        install(server, "postgres")
        database = TestDatabase(server, "postgres")
        cluster = Cluster(database, Stage(database))
        # what a node was told is committed must be there after a crash
        cluster.stage.change("alter database postgres set synchronous_commit = on")
        yield cluster
        cluster.stage.server.close()
        database.close_connections()


@pytest.mark.clause("T2b")
@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        pytest.param(scenario, seed, id=f"{scenario.name}-{seed}", marks=[] if quick else pytest.mark.soak)
        for scenario, seed, quick in [
            (STEPS, 1, True),
            *((STEPS, seed, False) for seed in range(2, 7)),
            (MESSAGES, 2, True),
            *((MESSAGES, seed, False) for seed in (1, 3, 4, 6)),
        ]
    ],
)
def test_a_run_with_a_real_restart_gives_what_one_with_a_simulated_restart_gives(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, scenario: Scenario, seed: int
) -> None:
    restart = Fault("database-restart", "", 20 + 7 * seed, 1.0)
    plan = Plan(seed, (Fault("slow-commit", "a", 10, 1.5), restart), _OPEN)
    simulated = simulate(scenario, cluster.stage, plan)
    tables = cluster.stage.digest()

    monkeypatch.setattr(cluster.stage.server, "restart", cluster.restart)
    cluster.cut_off = 0
    real = simulate(scenario, cluster.stage, plan)

    assert cluster.cut_off > 0, "somebody was at work"
    assert str(real) == str(simulated)
    assert cluster.stage.digest() == tables
    assert real.faults == []
