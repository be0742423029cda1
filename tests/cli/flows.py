"""Executions that are driven by hand, and a command line on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.cli.shop import Ended, Shop
from underseal.log.batch import append_item, event, gate, park_item, sleep, topic, wait
from underseal.log.client import ExecutionDriver, Executions
from underseal.testing import OWNER, DictConnection

NASTY = "pay\u202eann \x1b[31m[red]now[/red]\n\u200bp\u0430y"
SEEN = "pay⟨U+202E⟩ann ⟨U+001B⟩[31m[red]now[/red]⟨U+000A⟩⟨U+200B⟩p⟨U+0430⟩y"
HIDDEN = frozenset({"\u202e", "\x1b", "\u200b", "\u0430"})
CIPHERTEXT = "c2VjcmV0LWNpcGhlcnRleHQ"
MARKER = '{"seal": {"v": 1, "cipher": "underseal/aes-256-gcm-hkdf", "covers": ["STEP_COMPLETED.output"]}}'


@dataclass
class Flows:
    """The shop's database, seen by a driver, and by logins with less access than the desk's.

    Parameters:
        shop: the database and its command line.
    """

    shop: Shop
    logins: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dsn = self.shop.env["UNDERSEAL_DSN"]
        self.driver = ExecutionDriver(dsn, max_connections=2)
        self.executions = Executions(dsn, max_connections=2)
        owner: DictConnection = self.shop.database.connect(OWNER)
        for access in ("client", "worker", "operator"):
            role = self.shop.database.create_role(access)
            owner.execute("select underseal.grant_access(%s, %s, 'asserted')", [role, access])
            self.logins[access] = self.shop.database.conninfo_as(role)

    def close(self) -> None:
        """Close the driver's connections."""
        self.driver.close()
        self.executions.close()

    def run(self, *args: object, login: str | None = None, who: str = "ann", **more: Any) -> Ended:
        """Run one command.

        Parameters:
            args: what stands after `underseal`.
            login: which access its login has; the desk, which has all, if None.
            who: whom it acts for.
        """
        env: dict[str, str | None] = {"UNDERSEAL_PRINCIPAL": who}
        if login is not None:
            env["UNDERSEAL_DSN"] = self.logins[login]
        return self.shop.run(*args, env=env, **more)

    def start(
        self, execution_id: str, value: Any = None, *, flow: str = "order.pay", who: str = "ann"
    ) -> str:
        """Start one; its id."""
        return self.executions.start(flow, who, value, execution_id=execution_id)

    def write(self, make: Any, execution_id: str, *args: Any) -> None:
        """Take the fence, and write one item of a batch."""
        fence = self.driver.acquire_fence(execution_id).fence
        (done,) = self.driver.append_batch([make(execution_id, fence, *args)])
        assert done.done, done

    def step(self, execution_id: str, **data: Any) -> None:
        """Record a step."""
        self.write(append_item, execution_id, [event("STEP_COMPLETED", **data)])

    def park(self, execution_id: str, *waits: Any) -> None:
        """Park it; on a gate with a deadline and a topic if not said otherwise."""
        usual = (wait("approve", gate("approve"), sleep(timedelta(days=3))), wait("paid", topic("paid")))
        self.write(park_item, execution_id, waits or usual)

    def seal(self, execution_id: str) -> None:
        """Record a sealed step, as the kernel will."""
        self.put(execution_id, json.dumps({"output": {"__loomEnc": "x", "ct": CIPHERTEXT}}), MARKER)

    def put(self, execution_id: str, data: str, metadata: str | None = None) -> None:
        """Write a step into the log by hand, past what the verbs refuse."""
        self.shop.database.connect().execute(
            "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
            " select e.chain_id, e.member, e.head + 1, underseal.clock(), 'STEP_COMPLETED', %s::json, %s::jsonb"
            " from underseal.execution e where e.chain_id = %s",
            [data, metadata, execution_id],
        )

    @contextmanager
    def tampering(self) -> Iterator[DictConnection]:
        """A superuser who writes the tables with all triggers off."""
        admin = self.shop.database.connect()
        for verb in ("disable", "enable always"):
            for table in ("execution", "event"):
                for name in self._triggers(admin, table):
                    admin.execute(f"alter table underseal.{table} {verb} trigger {name}")
            if verb == "disable":
                yield admin

    def _triggers(self, admin: DictConnection, table: str) -> list[str]:
        rows = admin.execute(
            "select tgname from pg_trigger where tgrelid = %s::regclass and not tgisinternal",
            [f"underseal.{table}"],
        ).fetchall()
        return [row["tgname"] for row in rows]

    def record(self, execution_id: str, data: str) -> None:
        """Record a step whose data is just this text."""
        fence = self.driver.acquire_fence(execution_id).fence
        events = f'[{{"type": "STEP_COMPLETED", "data": {data}}}]'
        self.shop.database.connect(OWNER).execute(
            "select * from underseal.append(%s, %s, %s::json)", [execution_id, fence, events]
        )
