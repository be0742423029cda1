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

_CHAINS = {
    "executions": "select chain_id, member, line, status, head, waits, last_inbox_seq, owner from underseal.execution",
    "events": "select chain_id, member, seq, type, data, recorded_at from underseal.event",
    "messages": "select chain_id, line, topic, inbox_seq from underseal.inbox_message",
    "wakes": "select chain_id, member, kind, wake_at, claimed_by from underseal.wake",
    "written": "select chain_id, member, seq, process, number, {at} from witness.written",
    "fences": "select chain_id, member, fence, process, number, {at} from witness.fence",
    "waiters": "select chain_id, line, operation_id from underseal.held_waiter",
}
_HELD = {
    # a policy that was changed since the request says nothing about who could vote then, nor does a hook
    "operations": """
        select o.operation_id, o.type, o.requester, o.params_hash, o.row_version, o.votes_required, o.expires_at,
          o.state, o.approved_at, o.run_deadline, o.run_lease_until, o.ended_at, o.outcome_reason, o.result,
          case when t.policy_digest = o.policy_digest and t.approver_hook is null then t.approvers end as approvers
        from underseal.held_operation o
        left join underseal.operation_type t on t.type = o.type and t.version = o.type_version""",
    "votes": "select operation_id, approver, decision, params_hash, row_version, cast_at from underseal.held_vote",
    "timelines": """
        select e.operation_id, e.seq, e.type, e.actor, e.from_state, e.to_state, e.reason, e.recorded_at, p.position,
          w.operation_id is not null as pending, n.process, n.number, n.{at}
        from underseal.held_event e
        left join underseal.held_event_position p on p.operation_id = e.operation_id and p.seq = e.seq
        left join underseal.held_event_pending w on w.operation_id = e.operation_id and w.seq = e.seq
        left join witness.held n on n.operation_id = e.operation_id and n.seq = e.seq""",
    "reports": "select subject as operation_id, kind, cause from underseal.operator_report",
}
_HELD_FOR = """
    select v.data ->> 'operation_id' from underseal.event v
    where starts_with(v.chain_id, %(prefix)s) and v.type in ('HOLD_REQUESTED', 'HOLD_OPENED')"""


@dataclass
class Books:
    """The rows of some executions and held operations, and what others noted about them.

    What processes noted is compared with what the witness noted by `at`: instants of one clock, or anything else that
    has one order for both.

    Attributes:
        executions, events, messages, wakes: the kernel's, of executions.
        written, fences: the witness's: which process wrote an event, which one took a fence. `number` is the order of
            all that it noted.
        operations, votes, timelines, waiters: the kernel's, of held operations; a timeline's rows also have the
            `process` that wrote them, `number` and `at`, from the witness.
        reports: what operators were told, each about an `operation_id` or something else.
        effects: what steps did outside the database, each a row of `effect` (its number), `execution`, `step` (the
            operation's number; None for what was done outside steps), `attempt`, `process` and `began`, comparable
            with `at`. A step that returns `{"effect": number, …}` says that its result is that effect.
        sent: the messages that senders know of, each a row of `execution`, `topic`, `sender`, `message_id`, `outcome`,
            `inbox_seq` and `payload`.
        asked: the operations that requesters know of, each a row of `operation_id` and `params`.
        runs: what the bodies of gated methods did, each a row of `operation_id`, `process`, `at`, `params` and
            `principal`, which may be missing; None where they noted nothing.
        now: the database's clock when they were read.
        excused: processes that were killed, stalled or cut off. What these did last may be unrecorded, and done again.
        clocks_agree: whether no clock was set while they ran. Where one was, a lease may be over for the database and
            not for who holds it, and who does a step is not compared with who holds the fence.
    """

    executions: list[Row]
    events: list[Row]
    messages: list[Row]
    wakes: list[Row]
    written: list[Row]
    fences: list[Row]
    operations: list[Row] = field(default_factory=list)
    votes: list[Row] = field(default_factory=list)
    timelines: list[Row] = field(default_factory=list)
    waiters: list[Row] = field(default_factory=list)
    reports: list[Row] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)
    sent: list[Row] = field(default_factory=list)
    asked: list[Row] = field(default_factory=list)
    runs: list[Row] | None = None
    now: Any = None
    excused: frozenset[str] = frozenset()
    clocks_agree: bool = True

    @classmethod
    def read(
        cls,
        conninfo: str,
        prefix: str = "",
        *,
        numbered: bool = False,
        effects: Iterable[Row] = (),
        sent: Iterable[Row] = (),
        asked: Iterable[Row] = (),
        runs: Iterable[Row] | None = None,
        excused: Iterable[str] = (),
    ) -> Books:
        """Read what the kernel and the witness wrote, as of one instant.

        Parameters:
            conninfo: connection string of a role that may read both.
            prefix: only chains whose ids begin so, and the operations that their flows held.
            numbered: let `at` be what `number` is. Then `began` and `at` of what the caller noted are readings of the
                last number (`select last_value from witness.number`), and no clock matters.
            effects, sent, asked, runs, excused: what the caller noted, see `Books`.
        """
        at = "number as at" if numbered else "at"
        with psycopg.connect(conninfo, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

            def rows(query: str, only: str) -> list[Row]:
                asked_for = f"select * from ({query.format(at=at)}) x where {only}"
                return connection.execute(asked_for, {"prefix": prefix}).fetchall()

            tables: dict[str, Any] = {
                name: rows(query, "starts_with(x.chain_id, %(prefix)s)") for name, query in _CHAINS.items()
            }
            held = f"%(prefix)s = '' or x.operation_id::text in ({_HELD_FOR})"
            tables |= {name: rows(query, held) for name, query in _HELD.items()}
            (now,) = connection.execute("select underseal.clock() as now").fetchall()
        return cls(
            **tables,
            effects=list(effects),
            sent=list(sent),
            asked=list(asked),
            runs=None if runs is None else list(runs),
            now=now["now"],
            excused=frozenset(excused),
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


def own(logs: Logs) -> Logs:
    """The logs without what a fork copied from another's."""
    return {
        place: [event for event in log if not 0 < event["seq"] <= _copied(log)] for place, log in logs.items()
    }


def _copied(log: list[Row]) -> int:
    source = log[0]["data"].get("forked_from") if log else None
    return int(source["seq"]) if source else 0
