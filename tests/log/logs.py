"""Terse calls of the verbs about logs, and a reader that follows all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg.types.json import Jsonb

from underseal.testing import DictConnection

Row = dict[str, Any]
Key = tuple[str, int]

FLOW: Final = "onboard"
SEAL: Final = {"v": 1, "cipher": "underseal/aes-256-gcm-hkdf", "covers": ["STEP_COMPLETED.output"]}
OPENS: Final = {"ciphers": [SEAL["cipher"], "loom/aes-256-gcm"], "covers": ["A.b", "STEP_COMPLETED.output"]}


@dataclass
class Logs:
    """The verbs in one session.

    Parameters:
        connection: whose rows are dicts.
    """

    connection: DictConnection

    def rows(self, query: str, *params: object) -> list[Row]:
        """Run a statement and return its rows."""
        cursor = self.connection.execute(query.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *params: object) -> Any:
        """The one value of a statement."""
        (row,) = self.rows(query, *params)
        (value,) = row.values()
        return value

    def calls(self, verb: str, *arguments: object) -> list[Row]:
        """All rows that a verb answers with."""
        places = ", ".join(["%s"] * len(arguments))
        return self.rows(f"select * from underseal.{verb}({places})", *arguments)

    def call(self, verb: str, *arguments: object) -> Row:
        """The one row that a verb answers with."""
        (row,) = self.calls(verb, *arguments)
        return row

    def write(self, *items: Row) -> list[Row]:
        """`append_batch`, every item of which must be done."""
        written = self.calls("append_batch", json.dumps(items))
        assert all(one["reason"] is None and one["outcome"] != "exists" for one in written), written
        return written

    def start(self, *ids: str, owner: str = "ann", flow: str = FLOW, steps: int = 0) -> None:
        """Start executions, with a few events each."""
        events = [{"type": "STEP_COMPLETED", "data": {"output": n}} for n in range(steps)]
        self.write(
            *(
                {
                    "verb": "start", "execution_id": one, "flow": flow, "flow_version": 1, "principal": owner,
                    "events": events,
                }
                for one in ids
            )
        )  # fmt: skip

    def append(self, *ids: str, steps: int = 1, fence: int = 1) -> None:
        """Append a few events each."""
        events = [{"type": "STEP_COMPLETED", "data": {"output": n}} for n in range(steps)]
        self.write(
            *({"verb": "append", "execution_id": one, "fence": fence, "events": events} for one in ids)
        )

    def seal(self, execution_id: str, marker: object = SEAL) -> int:
        """Append an event with a marker, as the sealing verbs will: its number."""
        seq: int = self.value(
            """insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
               select e.chain_id, e.member, e.head + 1, underseal.clock(), 'STEP_COMPLETED', '{"output": "secret"}', %s
               from underseal.execution e
               where e.chain_id = underseal._chain_of(%s) and e.member = underseal._member_of(%s)
               returning seq""",
            Jsonb({"seal": marker}), execution_id, execution_id,
        )  # fmt: skip
        return seq

    def orphan(self, execution_id: str) -> None:
        """Start an execution whose log does not tell its owner."""
        self.rows(
            """insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
               values (%s, '', 0, underseal.clock(), 'EXECUTION_STARTED', %s)""",
            execution_id, json.dumps({"flow": FLOW, "flow_version": 1, "owner": None, "input": None}),
        )  # fmt: skip

    def causes(self) -> list[str]:
        """Why calls were denied, the last first."""
        return [row["cause"] for row in self.rows("select cause from underseal.execution_denials")]

    def keys(self) -> list[Key]:
        """Every event there is, in the order of the table's key."""
        rows = self.rows(
            """select underseal._execution_id(e.chain_id, e.member) as id, e.seq from underseal.event e
               order by e.chain_id, e.member, e.seq"""
        )
        return [(row["id"], row["seq"]) for row in rows]


@dataclass
class Reader:
    """Follows all logs.

    Parameters:
        logs: in which session.
        cursor: where it begins.
        size: how many events a page has at most.
        capability: what it declares.
    """

    logs: Logs
    cursor: str | None = None
    size: int = 1000
    capability: Row | None = None
    rows: list[Row] = field(default_factory=list)

    @property
    def seen(self) -> list[Key]:
        """The events it was given, in that order."""
        return [(row["execution_id"], row["seq"]) for row in self.rows]

    def page(self) -> list[Row]:
        """Read on once: the events."""
        capability = None if self.capability is None else Jsonb(self.capability)
        answer = self.logs.calls("read_all", self.cursor, self.size, capability)
        self.cursor = answer[-1]["cursor"]
        if answer[-1]["outcome"] == "end":
            assert len(answer) == 1
            return []
        assert {row["outcome"] for row in answer} == {"event"}, answer
        assert len(answer) <= self.size
        self.rows += answer
        return answer

    def drain(self) -> list[Key]:
        """Read on until nothing is left: what came."""
        before = len(self.rows)
        while self.page():
            pass
        return self.seen[before:]


def well_ordered(seen: Iterable[Key]) -> None:
    """See that every execution's events came once each, in their order and without a gap."""
    following: Counter[str] = Counter()
    for execution_id, seq in seen:
        assert seq == following[execution_id], (
            f"{execution_id} gave {seq} after {following[execution_id] - 1}"
        )
        following[execution_id] += 1


def pages(rows: Sequence[Row]) -> list[Key]:
    """The keys of rows."""
    return [(row["execution_id"], row["seq"]) for row in rows]
