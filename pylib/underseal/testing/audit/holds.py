"""Flows that wait for held operations: each is told how its operation ended, once, and as it ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from underseal.testing.audit.books import TERMINAL, Books, Logs, Place, Row, line_of, run_of
from underseal.testing.audit.held import ENDS

_TOPIC = "$hold/"


def audit_holds(books: Books, executions: dict[Place, Row], logs: Logs) -> Iterator[str]:
    """What is wrong between flows and operations."""
    operations = {str(row["operation_id"]): row for row in books.operations}
    waiters = {(row["chain_id"], row["line"], str(row["operation_id"])) for row in books.waiters}
    pending = {(row["chain_id"], row["line"], row["topic"]) for row in books.messages}
    lines: dict[Place, list[str]] = defaultdict(list)
    for chain, member in executions:
        lines[chain, line_of(member)].append(member)
    for (chain, line), members in lines.items():
        members.sort(key=run_of)
        last = executions[chain, members[-1]]
        events = [event for member in members for event in logs[chain, member]]
        told = _told(events)
        name = f"{chain}~{line}"
        yield from (f"{name}: {fault}" for fault in _as_it_ended(told, operations))
        for opened in (event["data"] for event in events if event["type"] == "HOLD_OPENED"):
            held = opened["operation_id"]
            row = operations.get(held)
            if row is None or row["requester"] != last["owner"]:
                yield f"{name}: waits for {held}, which is {'missing' if row is None else 'not its own'}"
            elif last["status"] in TERMINAL.values() or held in {one["message_id"] for one in told}:
                continue
            elif row["state"] in ENDS and (chain, line, _TOPIC + held) not in pending:
                yield f"{name}: {held} is {row['state']}, and it was never told"
            elif row["state"] not in ENDS and (chain, line, held) not in waiters:
                yield f"{name}: waits for {held}, and nobody will tell it"


def _told(events: list[Row]) -> list[Row]:
    return [
        event["data"]
        for event in events
        if event["type"] == "MESSAGE_CONSUMED"
        and event["data"]["topic"].startswith(_TOPIC)
        and event["data"]["disposition"] == "delivered"
    ]


def _as_it_ended(told: list[Row], operations: dict[str, Row]) -> Iterator[str]:
    times = Counter(one["topic"] for one in told)
    yield from (f"is told {count} times of {topic}" for topic, count in times.items() if count > 1)
    for one in told:
        said, row = one["payload"], operations.get(one["topic"].removeprefix(_TOPIC))
        if row is None:
            yield f"is told of {one['topic']}, which is missing"
            continue
        result = None if said.get("withheld") else row["result"]
        if (said["state"], said["reason"], said["result"]) != (row["state"], row["outcome_reason"], result):
            yield f"is told {said}, and {one['topic']} is {row['state']}, {row['outcome_reason']}"
