"""What executions have to do with each other, and what wakes them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from underseal.testing.audit.books import TERMINAL, Books, Logs, Place, Row, id_of, line_of, run_of

_TOLD = {"EXECUTION_COMPLETED": "output", "EXECUTION_FAILED": "error", "EXECUTION_CANCELLED": "reason"}
_NO_MESSAGE = ("OutputTooLarge", "OutputUnreadable")
"""What a parent is told of a child that ended with something that cannot be sent."""


def audit_children(executions: dict[Place, Row], logs: Logs) -> Iterator[str]:
    """Every child is there, was started once, and its end is what its parent was told."""
    by_id = {id_of(row): place for place, row in executions.items()}
    asked = Counter(
        event["data"]["execution_id"]
        for log in logs.values()
        for event in log
        if event["type"] == "CHILD_STARTED"
    )
    for child, times in asked.items():
        if times != 1 or child not in by_id:
            yield f"child {child} is started {times} times, and is {'there' if child in by_id else 'missing'}"
    for name, (chain, member) in by_id.items():
        if re.search(r"[A-Za-z]", member) and run_of(member) == 1 and name not in asked:
            parent = executions.get((chain, line_of(member.rpartition(":")[0])))
            # one whose parent was cancelled between the start and its record
            if parent is None or parent["status"] != "cancelled":
                yield f"{name} is nobody's child"
    yield from _told_ends(by_id, logs)


def _told_ends(by_id: dict[str, Place], logs: Logs) -> Iterator[str]:
    """A parent is told of a child's end once, and as it was."""
    told: dict[str, Row] = {}
    for log in logs.values():
        for event in log:
            data = event["data"]
            if event["type"] == "MESSAGE_CONSUMED" and data["topic"].startswith("$child/"):
                if data["message_id"] in told:
                    yield f"{data['message_id']} tells its end twice"
                told[data["message_id"]] = data["payload"]
    for name, payload in told.items():
        log = logs.get(by_id.get(name, ("", "")), [])
        kind, data = (log[-1]["type"], log[-1]["data"]) if log else ("nothing", {})
        member = _TOLD.get(kind, "output")
        if (payload.get("error") or {}).get("type") in _NO_MESSAGE and kind in TERMINAL:
            continue
        if (TERMINAL.get(kind), data.get(member)) != (payload["status"], payload.get(member)):
            yield f"{name} ended with {kind}, and its parent was told {payload}"


def audit_wakes(books: Books, executions: dict[Place, Row]) -> Iterator[str]:
    """An execution that is to go on has something that wakes it, and one that has ended has nothing."""
    wakes: dict[Place, dict[str, Row]] = defaultdict(dict)
    for wake in books.wakes:
        wakes[wake["chain_id"], wake["member"]][wake["kind"]] = wake
    for place, row in executions.items():
        kinds = wakes[place].keys()
        if row["status"] in ("pending", "running") and "drive" not in kinds:
            yield f"{id_of(row)} is {row['status']} and nothing wakes it"
        timed = any("due" in arm for one in row["waits"] or () for arm in one["arms"])
        if row["status"] == "suspended" and timed and "timer" not in kinds:
            yield f"{id_of(row)} waits for an instant and nothing wakes it"
        if row["status"] in TERMINAL.values() and kinds:
            yield f"{id_of(row)} has ended, and {sorted(kinds)} would wake it"
