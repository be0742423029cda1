"""What the demo stands on: a Postgres, the service's database, and Underseal installed on it as its owner would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from alembic import command
from alembic.config import Config
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from examples.accounts.bank import Bank
from examples.accounts.service import APPROVERS, Accounts, CloseParams
from underseal import FileKeyRing, Held, Policy, Principal, Underseal
from underseal.foundation.install import migrate
from underseal.foundation.server import Server
from underseal.seal import restricted

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent

_ROLES = """
create role accounts_owner login;
create role accounts_service login;
create role teller_north;
create role teller_south;
grant teller_north, teller_south to accounts_service;
create role underseal_owner login;
create role fred login;
create role gina login;
"""

# Who may do what in Underseal: the service asserts its callers, an approver is its login.
_ACCESS = """
select underseal.grant_access('accounts_service', 'client');
select underseal.grant_access('accounts_service', 'worker');
select underseal.grant_access('fred', 'approver');
select underseal.grant_access('gina', 'approver');
select underseal.map_login('fred', 'fred');
select underseal.map_login('gina', 'gina');
select underseal.map_role('dana', 'teller_north');
"""

# Days pass in a moment: the demo's own database adds an offset to the server's clock. No installed schema can do this.
_CLOCK = """
create sequence underseal.demo_offset minvalue 0 start 0;
grant select on sequence underseal.demo_offset to public;
create or replace function underseal.clock() returns timestamptz language sql volatile parallel safe as $$
  select pg_catalog.clock_timestamp() + o.last_value * interval '1 second' from underseal.demo_offset o
$$;
"""


@dataclass
class Stage:
    """Everything a scene needs.

    Attributes:
        server: the Postgres.
        admin: a superuser's connection to the service's database: whoever meddles uses it.
        accounts: the service, whose approvals are left to workers.
        bank: the world outside.
        home: directory of keys and spent register.
    """

    server: Server
    admin: psycopg.Connection[dict[str, Any]]
    accounts: Accounts
    bank: Bank
    home: Path

    def dsn(self, login: str) -> str:
        """Connection string of a login to the service's database."""
        return make_conninfo("", host=self.server.host, port=self.server.port, user=login, dbname="accounts")

    def environment(self) -> dict[str, str]:
        """What a process of the service finds in its environment."""
        return {
            **os.environ,
            "ACCOUNTS_DSN": self.dsn("accounts_service"),
            "ACCOUNTS_KEYS": str(self.home / "keys"),
            "ACCOUNTS_SPENT": str(self.home / "spent"),
            "ACCOUNTS_BANK": self.bank.url,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "pylib")]),
        }

    def request(self, name: str) -> tuple[Held, Principal]:
        """Send a request file, as its requester."""
        content = json.loads((HERE / "requests" / f"{name}.json").read_text())
        requester = Principal(content["requester"])
        return self.accounts.us.request(content["type"], requester, content["params"]), requester

    def approver(self, name: str) -> Underseal:
        """A client as an approver has it: their own login, and the `decision` key alone."""
        ring = restricted(FileKeyRing(self.home / "keys"), ["decision"])
        return Underseal(self.dsn(name), keys=ring, max_connections=2)

    def later(self, **span: float) -> None:
        """Let time pass for the database: hours=…, minutes=…."""
        seconds = int(span.get("hours", 0) * 3600 + span.get("minutes", 0) * 60)
        self.admin.execute(
            "select setval('underseal.demo_offset', (select last_value from underseal.demo_offset) + %s)",
            [seconds],
        )

    @contextmanager
    def meddling(self) -> Iterator[psycopg.Connection[dict[str, Any]]]:
        """Write the tables as a superuser who has switched every trigger off."""
        triggers = self.admin.execute(
            "select tgrelid::regclass::text as table, tgname as name, tgenabled as enabled from pg_trigger"
            " where tgrelid::regclass::text like 'underseal.%' and not tgisinternal"
        ).fetchall()
        for one in triggers:
            self._alter(one, "disable")
        try:
            yield self.admin
        finally:
            for one in triggers:
                self._alter(one, {"A": "enable always", "O": "enable"}[one["enabled"]])

    def _alter(self, trigger: dict[str, Any], how: str) -> None:
        self.admin.execute(
            sql.SQL("alter table {} {} trigger {}").format(
                sql.SQL(trigger["table"]), sql.SQL(how), sql.Identifier(trigger["name"])
            )
        )

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start `underseal worker` as a process of its own."""
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from underseal.cli import main; main()",
                "worker",
                "--app",
                "examples.accounts.service:underseal",
            ],
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill it as the kernel would: without a word."""
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def row(self, operation_id: UUID) -> dict[str, Any]:
        """The operation's row, as a superuser reads it."""
        row = self.admin.execute(
            "select * from underseal.held_operation where operation_id = %s", [operation_id]
        ).fetchone()
        assert row is not None
        return row


@contextmanager
def stage(server: Server, home: Path) -> Iterator[Stage]:
    """Set everything up on an empty server, and take the client and the bank down afterwards.

    Parameters:
        server: the Postgres.
        home: an empty private directory.
    """
    with psycopg.connect(server.conninfo(), autocommit=True) as root:
        for role in ("accounts_owner", "accounts_service", "underseal_owner", "fred", "gina"):
            assert root.execute("select from pg_roles where rolname = %s", [role]).fetchone() is None
        root.execute(_ROLES)
        root.execute("create database accounts owner accounts_owner")
        root.execute("grant create on database accounts to underseal_owner")

    def dsn(login: str) -> str:
        return make_conninfo("", host=server.host, port=server.port, user=login, dbname="accounts")

    # First the service's own history; Underseal comes later, to a database that somebody runs already.
    config = Config()
    config.set_main_option("script_location", str(HERE / "migrations"))
    config.set_main_option(
        "sqlalchemy.url",
        f"postgresql+psycopg://accounts_owner@/accounts?host={server.host}&port={server.port}",
    )
    command.upgrade(config, "head")
    migrate(dsn("underseal_owner"))
    with psycopg.connect(dsn("accounts_owner"), autocommit=True) as service:
        # so that Underseal's owner can name the service's functions; it never calls them
        service.execute("grant usage on schema app to underseal_owner")

    bank = Bank()
    keys = FileKeyRing(home / "keys")
    for purpose in ("payload", "decision", "fingerprint"):
        keys.generate(purpose)
    accounts = Accounts(
        dsn("accounts_service"),
        str(home / "keys"),
        str(home / "spent"),
        bank.url,
        run_on_approval=False,
        worker_name="the-service",
    )
    with (
        psycopg.connect(dsn("underseal_owner"), autocommit=True) as owner,
        psycopg.connect(server.conninfo("accounts"), autocommit=True, row_factory=dict_row) as admin,
    ):
        owner.execute(_ACCESS)
        owner.execute(_CLOCK)
        accounts.us.register(connection=owner)
        accounts.us.register_sql_operation(
            "account.close",
            1,
            CloseParams,
            Policy(approvers=APPROVERS),
            estimate="app.close_estimate(jsonb,text)",
            check_run="app.close_check(jsonb,text)",
            run="app.close_run(jsonb,text)",
            connection=owner,
        )
        try:
            yield Stage(server, admin, accounts, bank, home)
        finally:
            accounts.us.close()
            bank.close()
