"""What must hold after a scenario of held operations, beside what the audit of runs says of every run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.simulation.office import Office
from underseal.testing.audit import Books, audit
from underseal.testing.simulation import Stage, books_of
from underseal.testing.simulation.server import Server

Row = dict[str, Any]

_ROWS = """
select o.operation_id::text as id, o.type, o.mode, o.requester, o.auth_kind, o.token_id, o.state,
  o.outcome_reason as reason, o.state_key, o.result,
  o.redacted::jsonb ->> 'order' as order,
  array(select v.approver from underseal.held_vote v
    where v.operation_id = o.operation_id and v.decision = 'approve') as approved_by
from underseal.held_operation o order by 1"""
_PAYMENTS = "select operation_id, params, principal, process, number as at from app.payment order by number"
_PLACES = """
select p.position, e.operation_id::text as id, e.seq, e.type from underseal.held_event_position p
join underseal.held_event e on e.operation_id = p.operation_id and e.seq = p.seq order by 1"""
_LEFT = """
select
  (select count(*) from underseal.held_operation o where o.ended_at is null) as open,
  (select count(*) from underseal.outbox_consumer c
    where c.acknowledged < (select h.last_position from underseal.outbox_head h)
      or exists (select from underseal.held_event_pending)) as behind"""


def at_rest(server: Server) -> str | None:
    """What is still to be done: every operation ends in the end, and every consumer reads of it."""
    (row,) = server.ask(_LEFT)
    left = [f"{row['open']} operations open"] if row["open"] else []
    left += [f"{row['behind']} consumers behind"] if row["behind"] else []
    return f"there were {', '.join(left)}" if left else None


def judge(office: Office, stage: Stage) -> list[str]:
    """What is wrong.

    Parameters:
        office: the world of the run.
        stage: where it took place.
    """
    noted = [
        {**one.value, "process": one.who, "at": one.order}
        for one in office.simulation.effects
        if one.name == "run"
    ]
    payments = stage.ask(_PAYMENTS)
    books = books_of(office.simulation, stage, asked=office.asked.values(), runs=[*noted, *payments])
    rows = {row["id"]: row for row in stage.ask(_ROWS)}
    runs: dict[str, list[Row]] = defaultdict(list)
    for run in noted:
        runs[str(run["operation_id"])].append(run)
    found = audit(books)
    for id, row in rows.items():  # noqa: A001
        found += [f"{id} ({row['order']}): {fault}" for fault in _judged(office, row, runs[id])]
        found += [f"{id} ({row['order']}): {fault}" for fault in _refused(office, row)]
    found += _switched(office, books, rows)
    found += _paid(rows, payments)
    found += _given(office, rows)
    return found + _read(office, stage)


def _judged(office: Office, row: Row, runs: list[Row]) -> Iterator[str]:
    """Its body, its name and its end go together."""
    ended = {
        (str(one.value["operation_id"]), one.who) for one in office.simulation.effects if one.name == "ran"
    }
    how = row["order"].partition("-")[0]
    for run in runs:
        if (row["id"], run["process"]) not in ended and row["state"] != "OUTCOME_UNKNOWN":
            yield f"its body did not end, and it is told as {row['state']}"
        if run["token"] != row["token_id"]:
            yield f"was asked for by the token {row['token_id']} and run by {run['token']}"
    if runs and row["state"] == ("SUCCEEDED" if how == "failing" else "FAILED"):
        yield f"is told as {row['state']}"
    if how in ("rejected", "ignored", "disputed") and runs:
        yield f"was run by {runs[0]['process']}"
    expected = (
        {"done": row["order"]} if row["state"] == "SUCCEEDED" and row["mode"] == "ON_APPROVAL" else None
    )
    if row["result"] != expected:
        yield f"has the result {row['result']}"


def _refused(office: Office, row: Row) -> Iterator[str]:
    """What is refused is refused for what has happened."""
    how = row["order"].partition("-")[0]
    has_happened = {
        "disputed": how == "disputed",
        "state-changed": how in ("drifting", "moving"),
        "requester-unavailable": row["requester"] in office.gone,
        "provider-disarmed": f"{row['type']} is switched off" in office.switches,
        "approval-lapsed": row["type"] == "refund.send" and "cy may not approve refunds" in office.switches,
        # its lease was over, and then it was not
        "ticket": office.simulation.clocks_set,
    }
    if row["state"] == "REFUSED" and not has_happened.get(row["reason"], False):
        yield f"is refused as {row['reason']}"


def _switched(office: Office, books: Books, rows: dict[str, Row]) -> Iterator[str]:
    """What was claimed after something changed was not run."""
    run = {str(one["operation_id"]) for one in books.runs or ()}
    for event in books.timelines:
        id = str(event["operation_id"])  # noqa: A001
        if event["type"] != "claimed" or id not in run:
            continue
        for switch in office.switches.values():
            if switch.since < event["number"] <= switch.until and switch.forbids(rows[id]):
                yield f"{id} ({rows[id]['order']}): was run though {switch.what}"


def _paid(rows: dict[str, Row], payments: list[Row]) -> Iterator[str]:
    """What SQL functions did is there with its end, and else nothing is."""
    paid = [str(one["operation_id"]) for one in payments]
    for id, row in rows.items():  # noqa: A001
        if row["type"] != "account.pay":
            continue
        if row["state"] in ("EXECUTING", "OUTCOME_UNKNOWN"):
            yield f"{id}: is {row['state']}, though functions do it"
        if paid.count(id) != (row["state"] == "SUCCEEDED"):
            yield f"{id}: is {row['state']}, and was paid {paid.count(id)} times"


def _given(office: Office, rows: dict[str, Row]) -> Iterator[str]:
    """What a requester was given was done."""
    done = {(row["requester"], row["order"]) for row in rows.values() if row["state"] == "SUCCEEDED"}
    for key, given in office.given.items():
        who, _, order = key.partition(" ")
        if isinstance(given, dict) and (who, order) not in done:
            yield f"{who} was given {given}, and nothing was done"


def _read(office: Office, stage: Stage) -> list[str]:
    """A consumer has read everything, at its place."""
    if not stage.ask("select from underseal.outbox_consumer"):
        return []
    places = {row["position"]: (row["id"], row["seq"], row["type"]) for row in stage.ask(_PLACES)}
    if list(places) != list(range(1, len(places) + 1)):
        return [f"the outbox has the positions {list(places)}"]
    return [] if office.outbox == places else ["a consumer has read something else than the outbox has"]
