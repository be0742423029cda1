"""The rows that an audit looks at."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
Place = tuple[str, str]
"""A chain, and a member of it."""
Logs = dict[Place, list[Row]]

TERMINAL = {
    "EXECUTION_COMPLETED": "completed",
    "EXECUTION_FAILED": "failed",
    "EXECUTION_CANCELLED": "cancelled",
    "EXECUTION_CONTINUED": "continued",
}

_EXECUTIONS = {
    "executions": "select chain_id, member, line, status, head, waits, last_inbox_seq, owner from underseal.execution",
    "events": "select chain_id, member, seq, type, data, recorded_at from underseal.event",
    "messages": "select chain_id, line, topic, inbox_seq from underseal.inbox_message",
    "wakes": "select chain_id, member, kind, wake_at, claimed_by from underseal.wake",
    "written": "select chain_id, member, seq, process, number, at from witness.written",
    "fences": "select chain_id, member, fence, process, number, at from witness.fence",
}


@dataclass
class Books:
    """The rows of some executions, and what others noted about them.

    Attributes:
        executions, events, messages, wakes: the kernel's.
        written, fences: what the witness noted: which process wrote an event, which one took a fence. `number` is the
            order of all that it noted, `at` the instant.
        effects: what steps did outside the database, each a row of `effect` (its number), `execution`, `step` (the
            operation's number; None for what was done outside steps), `attempt`, `process`, and `began`, which is
            compared with the `at` of fences: an instant of the same clock, or anything else that has its order.
        sent: the messages that senders know of, each a row of `execution`, `topic`, `sender`, `message_id`, `outcome`,
            `inbox_seq` and `payload`.
        now: the database's clock when they were read.
        excused: processes that were killed, stalled or cut off; what these did last may have been done again.
    """

    executions: list[Row]
    events: list[Row]
    messages: list[Row]
    wakes: list[Row]
    written: list[Row]
    fences: list[Row]
    effects: list[Row] = field(default_factory=list)
    sent: list[Row] = field(default_factory=list)
    now: Any = None
    excused: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        conninfo: str,
        prefix: str = "",
        *,
        effects: Iterable[Row] = (),
        sent: Iterable[Row] = (),
        excused: Iterable[str] = (),
    ) -> Books:
        """Read what the kernel and the witness wrote, as of one instant.

        Parameters:
            conninfo: connection string of a role that may read both.
            prefix: only chains whose ids begin so.
            effects, sent, excused: what the caller noted, see `Books`.
        """
        with psycopg.connect(conninfo, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            tables = {
                name: connection.execute(
                    f"select * from ({query}) x where starts_with(x.chain_id, %s)", [prefix]
                ).fetchall()
                for name, query in _EXECUTIONS.items()
            }
            (now,) = connection.execute("select underseal.clock() as now").fetchall()
        return cls(
            **tables, effects=list(effects), sent=list(sent), now=now["now"], excused=frozenset(excused)
        )

    def logs(self) -> Logs:
        """The events of each execution, in their order."""
        logs: Logs = defaultdict(list)
        for event in self.events:
            logs[event["chain_id"], event["member"]].append(event)
        for log in logs.values():
            log.sort(key=lambda event: int(event["seq"]))
        return logs


def id_of(row: Row) -> str:
    """The id of the execution that a row belongs to."""
    return f"{row['chain_id']}~{row['member']}" if row["member"] else str(row["chain_id"])


def line_of(member: str) -> str:
    """The line of a member: what is left without the number of its run."""
    return re.sub(r"(^|\.)\d+$", "", member)


def run_of(member: str) -> int:
    """Which run of its line a member is."""
    found = re.search(r"(?:^|\.)(\d+)$", member)
    return int(found.group(1)) if found else 1
