"""Terse calls of the verbs about wakes and schedules, and of the driver's writes they stand on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from underseal.testing import DictConnection, TestClock

Row = dict[str, Any]

FLOW: Final = "onboard"
MINUTE: Final = timedelta(minutes=1)


@dataclass
class Wakes:
    """The verbs in one session.

    Parameters:
        connection: whose rows are dicts.
        clock: the database's clock, where a test moves it by hand.
    """

    connection: DictConnection
    clock: TestClock | None = None

    def rows(self, query: str, *params: object) -> list[Row]:
        """Run a statement and return its rows."""
        cursor = self.connection.execute(query.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def row(self, query: str, *params: object) -> Row:
        """Run a statement that has one row."""
        (row,) = self.rows(query, *params)
        return row

    def write(self, *items: Row) -> list[Row]:
        """`append_batch`."""
        return self.rows("select * from underseal.append_batch(%s::json)", json.dumps(items))

    def done(self, *items: Row) -> list[Row]:
        """`append_batch`, every item of which must be done."""
        written = self.write(*items)
        assert all(one["reason"] is None and one["outcome"] != "exists" for one in written), written
        return written

    def start(self, *ids: str, flow: str = FLOW, **more: Any) -> None:
        """Start executions."""
        self.done(
            *({"verb": "start", "execution_id": one, "flow": flow, "flow_version": 1, "principal": "ann", **more}
              for one in ids)
        )  # fmt: skip

    def park(self, claim: Row, *arms: Row) -> None:
        """Park a claimed execution on one wait with these arms."""
        self.done({**self.mine(claim), "verb": "park", "waits": [{"wait": "w", "arms": list(arms)}]})

    def complete(self, claim: Row) -> None:
        """End a claimed execution."""
        self.done({**self.mine(claim), "verb": "complete"})

    @staticmethod
    def mine(claim: Row) -> Row:
        """The part of an item that says by which claim it is written."""
        return {"execution_id": claim["execution_id"], "fence": claim["fence"]}

    def parked(self, *ids: str, flow: str = FLOW, arms: Sequence[Row] = ({"topic": "news"},)) -> None:
        """Start executions and park them."""
        self.start(*ids, flow=flow)
        for claim in self.claim(flows=[flow], most=len(ids)):
            self.park(claim, *arms)

    def message(self, execution_id: str) -> None:
        """The wake that a message for a wait leaves, put there under the execution's lock as `send` does."""
        with self.connection.transaction():
            self.rows("select from underseal.execution where chain_id = %s for no key update", execution_id)
            self.rows(
                """insert into underseal.wake (chain_id, member, kind, flow, wake_at)
                   select e.chain_id, e.member, 'inbox', e.flow, underseal.clock() from underseal.execution e
                   where e.chain_id = %s and e.status = 'suspended' on conflict do nothing""",
                execution_id,
            )

    def claim(
        self,
        worker: str = "w1",
        flows: Sequence[str] = (FLOW,),
        lease: timedelta | None = MINUTE,
        most: int | None = 100,
    ) -> list[Row]:
        """`claim_due`."""
        return self.rows(
            "select * from underseal.claim_due(%s, %s::text[], %s, %s)", worker, list(flows), lease, most
        )

    def renew(self, *ids: str, worker: str = "w1", lease: timedelta | None = MINUTE) -> dict[str, str]:
        """`renew_claims`: the outcome of each execution."""
        rows = self.rows("select * from underseal.renew_claims(%s, %s::text[], %s)", worker, list(ids), lease)
        return {row["execution_id"]: row["outcome"] for row in rows}

    def release(self, execution_id: str, worker: str = "w1", retry_in: timedelta | None = None) -> Row:
        """`release_claim`."""
        return self.row("select * from underseal.release_claim(%s, %s, %s)", execution_id, worker, retry_in)

    def next_due(self, *flows: str, schedules: bool = False) -> float | None:
        """`next_due`, in seconds."""
        row = self.row("select * from underseal.next_due(%s::text[], %s)", list(flows), schedules)
        seconds: float | None = row["seconds"]
        return seconds

    def wakes(self, execution_id: str) -> dict[str, Row]:
        """The wakes of an execution, by kind."""
        rows = self.rows(
            "select * from underseal.wake where chain_id = %s and kind <> 'schedule'", execution_id
        )
        return {row["kind"]: row for row in rows}

    def execution(self, execution_id: str) -> Row:
        """The row of the first execution of a chain."""
        return self.row("select * from underseal.execution where chain_id = %s and member = ''", execution_id)

    # -- schedules ---------------------------------------------------------------------------------

    def add(self, name: str = "nightly", **changes: Any) -> Row:
        """`add_schedule`."""
        given = {
            "name": name, "flow": "backup", "cron": "0 3 * * *", "time_zone": "Europe/Berlin",
            "first_in": timedelta(hours=1), "principal": "ann", **changes,
        }  # fmt: skip
        if "input" in given:
            given["input"] = json.dumps(given["input"])
        casts = {"input": "::json", "since": "::timestamptz", "flow_version": "::integer"}
        named = ", ".join(f"{one} => %s{casts.get(one, '')}" for one in given)
        return self.row(f"select * from underseal.add_schedule({named})", *given.values())

    def pause(self, name: str = "nightly", principal: str | None = "ann", **more: Any) -> Row:
        """`pause_schedule`."""
        casts = {"since": "::timestamptz", "revision": "::uuid", "first_in": "::interval"}
        named = "".join(f", {one} => %s{casts.get(one, '')}" for one in more)
        return self.row(
            f"select * from underseal.pause_schedule(%s, %s{named})", name, principal, *more.values()
        )

    def remove(self, name: str = "nightly", principal: str | None = "ann", as_operator: bool = False) -> Row:
        """`remove_schedule`."""
        return self.row("select * from underseal.remove_schedule(%s, %s, %s)", name, principal, as_operator)

    def schedules(self, principal: str | None = "ann", as_operator: bool = False) -> list[Row]:
        """`list_schedules`."""
        return self.rows("select * from underseal.list_schedules(%s, %s)", principal, as_operator)

    def claim_schedules(
        self, worker: str = "w1", lease: timedelta | None = MINUTE, most: int | None = 20
    ) -> list[Row]:
        """`claim_schedules`."""
        return self.rows("select * from underseal.claim_schedules(%s, %s, %s)", worker, lease, most)

    def fire(
        self,
        claim: Row,
        fires: Sequence[timedelta | None] | None = (timedelta(0),),
        next_in: timedelta | None = timedelta(days=1),
        worker: str = "w1",
        **changes: Any,
    ) -> Row:
        """`fire_schedule`, for what was claimed."""
        seen = {**claim, **changes}
        return self.row(
            "select * from underseal.fire_schedule(%s, %s, %s, %s, %s::interval[], %s)",
            seen["name"], worker, seen["due_at"], seen["revision"], None if fires is None else list(fires), next_in,
        )  # fmt: skip

    def put_off(
        self, claim: Row, cause: str = "no such zone", retry_in: timedelta = 5 * MINUTE, worker: str = "w1"
    ) -> Row:
        """`put_off_schedule`, for what was claimed."""
        return self.row(
            "select * from underseal.put_off_schedule(%s, %s, %s, %s, %s, %s)",
            claim["name"], worker, claim["due_at"], claim["revision"], cause, retry_in,
        )  # fmt: skip

    def schedule_wake(self, name: str = "nightly") -> Row | None:
        """The wake of a schedule."""
        rows = self.rows("select * from underseal.wake where chain_id = %s and kind = 'schedule'", name)
        return rows[0] if rows else None

    def started(self) -> list[str]:
        """Every execution there is, by id."""
        return [
            row["id"] for row in self.rows(
                "select underseal._execution_id(chain_id, member) as id from underseal.execution order by 1"
            )
        ]  # fmt: skip


def outcome(row: Row) -> tuple[str, str | None]:
    """Outcome and reason of an answer."""
    return row["outcome"], row["reason"]


def claimed(rows: Sequence[Row]) -> list[str]:
    """The executions of claimed rows, in order; all must be claims."""
    assert all(row["outcome"] == "claimed" for row in rows), rows
    return [row["execution_id"] for row in rows]


def fence_of(row: Row) -> tuple[int, UUID]:
    """What a conditional write needs of a claim."""
    return row["fence"], row["incarnation"]


def at(text: str) -> datetime:
    """An instant from ISO 8601."""
    return datetime.fromisoformat(text)
