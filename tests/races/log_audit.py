"""What must hold of a chain whoever raced for it, and what it looks like, to compare two histories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from underseal.log.fold import Folding, IllegalHistory, line_of, member_of
from underseal.log.model import ENDED, LogEvent
from underseal.log.verify import first_due
from underseal.testing import DictConnection

_TABLES: Final = (
    "event",
    "inbox_message",
    "inbox_cursor",
    "inbox_seen",
    "wake",
    "snapshot",
    "content",
    "fence_floor",
)
_OWNED: Final = {
    "event": "member",
    "inbox_message": "line",
    "inbox_cursor": "line",
    "inbox_seen": "line",
    "wake": "member",
    "snapshot": "member",
}
_TERMINAL: Final = ("EXECUTION_COMPLETED", "EXECUTION_FAILED", "EXECUTION_CANCELLED", "EXECUTION_CONTINUED")
_PARTS: Final = ",\n".join(
    f"""'{table}', (
      select coalesce(jsonb_agg(to_jsonb(x)), '[]') from underseal.{table} x
      where x.chain_id = any (%(chains)s) {"and x.kind <> 'schedule'" if table == "wake" else ""})"""
    for table in _TABLES
)
_WORLD: Final = f"""
select jsonb_build_object('now', underseal.clock(), 'execution', (
    select coalesce(jsonb_agg(to_jsonb(x) || jsonb_build_object('fold', underseal._fold(x.chain_id, x.member))), '[]')
    from underseal.execution x where x.chain_id = any (%(chains)s)),
  {_PARTS}) as world"""

Row = Mapping[str, Any]
Place = tuple[str, str]


def place(row: Row, of: str = "member") -> Place:
    """Whose a row is."""
    return row["chain_id"], row[of]


@dataclass(frozen=True)
class World:
    """Every row of some chains, as of one instant.

    Parameters:
        tables: the rows, by the name of their table.
        now: the database's clock.
    """

    tables: Mapping[str, list[Row]]
    now: datetime

    @classmethod
    def of(cls, admin: DictConnection, *chains: str) -> World:
        """Read it."""
        (row,) = admin.execute(_WORLD, {"chains": list(chains)}).fetchall()
        world = row["world"]
        return cls(world, datetime.fromisoformat(world["now"]))

    def fences(self) -> dict[Place, int]:
        """The last fence that each execution, or one of its id that is gone, was seen to have."""
        last = {place(row): row["fence"] for row in self.tables["fence_floor"]}
        return last | {place(row): row["fence"] for row in self.tables["execution"]}

    def looks(self, base: datetime) -> str:
        """What two histories of the same acts have in common: everything but random ids and the names of chains."""
        names = sorted(
            {row["chain_id"] for rows in self.tables.values() if isinstance(rows, list) for row in rows},
            key=len,
        )
        text = "\n".join(sorted(self._lines(base)))
        return text.replace(names[0], "CHAIN") if names else text

    def _lines(self, base: datetime) -> Iterable[str]:
        told = {
            "execution": ("member", "status", "head", "fence", "log_start", "cancel_requested", "recoveries",
                          "current_member", "last_inbox_seq", "waits"),
            "inbox_message": ("line", "inbox_seq", "topic"),
            "inbox_cursor": ("line", "topic", "inbox_seq"),
            "inbox_seen": ("line", "inbox_seq"),
            "snapshot": ("member", "seq"),
            "content": ("hash",),
            "fence_floor": ("member", "fence"),
        }  # fmt: skip
        for table, columns in told.items():
            for row in self.tables[table]:
                values = {name: row[name] for name in columns}
                values["waits"] = [one["wait"] for one in values.get("waits") or ()]
                yield f"{table} {row['chain_id']} {json.dumps(values)}"
        for row in self.tables["event"]:
            data = {
                name: row["data"].get(name)
                for name in ("wait", "arm", "inbox_seq", "disposition", "worker", "attempt")
            }
            yield f"event {row['chain_id']} {row['member']} {row['seq']:>5} {row['type']} {json.dumps(data)}"
        for row in self.tables["wake"]:
            at, until = (
                row[name] and round((datetime.fromisoformat(row[name]) - base) / timedelta(minutes=10))
                for name in ("wake_at", "claimed_until")
            )
            claim = f"{row['claimed_by']} {until} {row['attempts']}"
            yield f"wake {row['chain_id']} {row['member']} {row['kind']} {at} {claim}"


def audit(world: World, before: Mapping[Place, int] | None = None) -> None:
    """See that nothing is wrong with any execution of some chains.

    Parameters:
        world: what there is.
        before: fences that were seen earlier, which may only have grown.
    """
    faults = [*_faults(world, before or {})]
    assert not faults, "\n".join(faults)


def _faults(world: World, before: Mapping[Place, int]) -> Iterable[str]:
    executions = {place(row): row for row in world.tables["execution"]}
    yield from _orphans(world, executions)
    yield from _fences(world, executions, before)
    events: dict[Place, list[Row]] = {at: [] for at in executions}
    for row in world.tables["event"]:
        events.get(place(row), []).append(row)
    for at, row in executions.items():
        log = sorted(events[at], key=lambda event: event["seq"])
        yield from (f"{at}: {fault}" for fault in _log_faults(world, row, log))
        yield from (f"{at}: {fault}" for fault in _wake_faults(world, row))
    for chain, line in {(row["chain_id"], row["line"]) for row in executions.values()}:
        yield from (
            f"{chain, line}: {fault}" for fault in _inbox_faults(world, chain, line, executions, events)
        )


def _orphans(world: World, executions: Mapping[Place, Row]) -> Iterable[str]:
    for table, of in _OWNED.items():
        gone = {place(row, of) for row in world.tables[table]} - executions.keys()
        if gone:
            yield f"{table} has rows of executions that are not there: {sorted(gone)}"
    chains = {chain for chain, _ in executions}
    if {row["chain_id"] for row in world.tables["content"]} - chains:
        yield "content of a chain that is not there"


def _fences(world: World, executions: Mapping[Place, Row], before: Mapping[Place, int]) -> Iterable[str]:
    now = world.fences()
    for at, fence in before.items():
        if now.get(at, 0) < fence:
            yield f"{at}: fence {fence} went back to {now.get(at)}"
    for row in world.tables["fence_floor"]:
        if place(row) in executions and executions[place(row)]["fence"] <= row["fence"]:
            yield f"{place(row)}: a fence of an earlier execution of this id is in force again"


def _log_faults(world: World, row: Row, log: list[Row]) -> Iterable[str]:
    kept = [0, *range(row["log_start"], row["head"] + 1)] if row["head"] else [0]
    if [event["seq"] for event in log] != kept:
        yield f"expected events {kept}, found {[event['seq'] for event in log]}"
        return
    terminal = sum(event["type"] in _TERMINAL for event in log)
    # what was compacted may have been the end
    if terminal > (row["status"] in ENDED) or (row["log_start"] == 1 and terminal < (row["status"] in ENDED)):
        yield f"{terminal} terminal events of one that is {row['status']}"
    name = row["chain_id"] + (f"~{row['member']}" if row["member"] else "")
    state, since = Folding(member_of(name)), -1
    if row["log_start"] > 1:
        newest = max(
            (one for one in world.tables["snapshot"] if place(one) == place(row)),
            key=lambda one: int(one["seq"]),
        )
        state, since = Folding.from_json(newest["fold"], member_of(name)), newest["seq"]
    try:
        for event in log[since + 1 if row["log_start"] == 1 else 1 :]:
            if event["seq"] > since:
                at = datetime.fromisoformat(event["recorded_at"])
                state.apply(LogEvent(name, event["seq"], event["type"], event["data"], at, event["metadata"]))
    except IllegalHistory as fault:
        yield f"no log: {fault}"
        return
    folded = state.as_json(row["fold"]["inbox"] is not None)
    if folded != row["fold"]:
        yield f"the tables say {row['fold']}, the log {folded}"


def _wake_faults(world: World, row: Row) -> Iterable[str]:
    wakes = {wake["kind"]: wake for wake in world.tables["wake"] if place(wake) == place(row)}
    status, waits = row["status"], row["waits"] or []
    due = first_due(waits) if status == "suspended" else None
    needed = {"drive"} if status in ("pending", "running") else {"timer"} if due is not None else set()
    topics = {arm["topic"] for wait in waits for arm in wait["arms"] if "topic" in arm}
    if status == "suspended" and any(
        message["topic"] in topics and not _is_expired(message, world.now)
        for message in world.tables["inbox_message"]
        if place(message, "line") == (row["chain_id"], row["line"])
    ):
        needed.add("inbox")
    allowed = needed | {"inbox"} if status == "suspended" else needed
    if not needed <= wakes.keys() <= allowed:
        yield f"{status}, waits for {sorted(topics)} until {due}, and has the wakes {sorted(wakes)}"
    if any(wake["flow"] != row["flow"] for wake in wakes.values()):
        yield "a wake for another flow"


def _is_expired(message: Row, now: datetime) -> bool:
    return message["expires_at"] is not None and datetime.fromisoformat(message["expires_at"]) <= now


def _inbox_faults(
    world: World, chain: str, line: str, executions: Mapping[Place, Row], events: Mapping[Place, list[Row]]
) -> Iterable[str]:
    members = [at for at in executions if at[0] == chain and line_of(at[1]) == line]
    first = executions[chain, line]
    current = (chain, first["current_member"] or line)
    going_on = {at for at in members if executions[at]["status"] != "continued"}
    if not going_on <= {current} or current not in members:
        yield f"{first['current_member']} goes on with the line, which has {sorted(members)}"
    pending = [
        row["inbox_seq"] for row in world.tables["inbox_message"] if place(row, "line") == (chain, line)
    ]
    consumed = [
        event["data"]["inbox_seq"]
        for at in members
        for event in events[at]
        if event["type"] == "MESSAGE_CONSUMED"
    ]
    numbers = Counter([*pending, *consumed])
    if any(times > 1 for times in numbers.values()):
        yield f"pending {sorted(pending)}, disposed of {sorted(consumed)}: one of them twice"
    start = events[chain, line][0]["data"]
    whole = "forked_from" not in start and all(executions[at]["log_start"] == 1 for at in members)
    if whole and numbers.keys() != set(range(1, first["last_inbox_seq"] + 1)):
        yield f"gave {first['last_inbox_seq']} numbers; pending {sorted(pending)}, disposed of {sorted(consumed)}"
