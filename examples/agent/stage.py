"""What the demo stands on: a Postgres, a shop, and Underseal beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from examples.agent.shop import TABLES
from underseal import Executions, FileKeyRing, Underseal
from underseal.foundation.install import migrate
from underseal.foundation.server import Server
from underseal.seal import restricted

REPOSITORY = Path(__file__).parent.parent.parent
APP = "examples.agent.service:agent"
LEASE = 2
"""Seconds until another worker may take over from one that is gone; short, so that nobody waits for the demo."""

_UNDERSEAL = (sys.executable, "-c", "from underseal.cli import main; main()")
_ROLES = """
create role agent_service login;
create role nina login;
create role underseal_owner login;
"""
_ACCESS = """
select underseal.grant_access('agent_service', 'client');
select underseal.grant_access('agent_service', 'worker');
select underseal.grant_access('nina', 'approver');
select underseal.map_login('nina', 'nina');
"""


@dataclass
class Stage:
    """Everything the demo needs.

    Attributes:
        server: the Postgres.
        home: directory of the keys.
        executions: what the shop's web server has, beside the workers.
        db: a superuser's connection, to look at what has happened.
        workers: processes that were started.
    """

    server: Server
    home: Path
    executions: Executions
    db: psycopg.Connection[dict[str, Any]]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def dsn(self, login: str) -> str:
        """Connection string of a login."""
        return make_conninfo("", host=self.server.host, port=self.server.port, user=login, dbname="shop")

    def environment(self) -> dict[str, str]:
        """What a process of the service finds in its environment."""
        return {
            **os.environ,
            "AGENT_DSN": self.dsn("agent_service"),
            "AGENT_KEYS": str(self.home / "keys"),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "pylib")]),
        }

    def register(self) -> None:
        """What a deployment does: tell the database what may be held."""
        arguments = ["types", "register", "--app", APP, "--dsn", self.dsn("underseal_owner")]
        subprocess.run(
            [*_UNDERSEAL, *arguments], env=self.environment(), check=True, stdout=subprocess.DEVNULL
        )

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start `underseal worker` as a process of its own."""
        worker = subprocess.Popen(
            [*_UNDERSEAL, "worker", APP, "--lease", f"{LEASE}s", "--json", "--verbose"],
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=(self.home / "worker.log").open("ab"),
            start_new_session=True,
        )
        self.workers.append(worker)
        return worker

    def types(self, execution_id: str) -> list[str]:
        """The types of an execution's events."""
        rows = self.db.execute(
            "select type from underseal.event where chain_id = %s order by seq", [execution_id]
        )
        return [row["type"] for row in rows]

    def waits_for(self, execution_id: str) -> str | None:
        """The topic that an execution is parked on."""
        row = self.db.execute(
            "select waits -> 0 -> 'arms' -> 0 ->> 'topic' as topic from underseal.execution"
            " where chain_id = %s and status = 'suspended'",
            [execution_id],
        ).fetchone()
        return None if row is None else row["topic"]

    def approver(self) -> Underseal:
        """A client as an approver has it: her own login, and the `decision` key alone."""
        ring = restricted(FileKeyRing(self.home / "keys"), ["decision"])
        return Underseal(self.dsn("nina"), keys=ring, max_connections=2)


def until(holds: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Look again and again until something holds.

    Errors:
        TimeoutError: it did not, in time.
    """
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"expected that {what} within {seconds} s")
        time.sleep(0.02)


@contextmanager
def stage(server: Server, home: Path) -> Iterator[Stage]:
    """Set everything up on an empty server, and take it down afterwards.

    Parameters:
        server: the Postgres.
        home: an empty private directory.
    """
    with psycopg.connect(server.conninfo(), autocommit=True) as root:
        root.execute(_ROLES)
        root.execute("create database shop")
        root.execute("grant create on database shop to underseal_owner")

    def dsn(login: str) -> str:
        return make_conninfo("", host=server.host, port=server.port, user=login, dbname="shop")

    migrate(dsn("underseal_owner"))
    keys = FileKeyRing(home / "keys")
    for purpose in ("payload", "decision", "fingerprint"):
        keys.generate(purpose)
    with (
        psycopg.connect(dsn("underseal_owner"), autocommit=True) as owner,
        psycopg.connect(server.conninfo("shop"), autocommit=True, row_factory=dict_row) as db,
    ):
        owner.execute(_ACCESS)
        db.execute(TABLES)
        on = Stage(server, home, Executions(dsn("agent_service")), db)
        on.register()
        try:
            yield on
        finally:
            for worker in on.workers:
                with suppress(ProcessLookupError):
                    worker.kill()
                worker.wait()
            on.executions.close()
