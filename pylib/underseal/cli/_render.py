"""How operations, timelines and tables look to a person. Whatever somebody wrote passes through `visible`."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from underseal.cli._times import absolute, both, duration, relative
from underseal.cli._visible import members, visible, visible_value

if TYPE_CHECKING:
    from underseal import Event, Operation, Vote

# Nothing that a program reads, or grep looks through, is folded.
_PIPE_WIDTH: Final = 100_000
_WIDE: Final = 140
# Columns that stay whole while others fold: ids are copied, states are looked for. (A minimal width would not do: a
# table that has become too wide by it loses its last columns without a word.)
_WHOLE: Final = frozenset({"operation", "key", "state", "to", "position", "access"})
_WHOLE_FROM: Final = 80
_STYLES: Final[Mapping[str, str]] = {
    "HELD": "yellow",
    "APPROVED": "cyan",
    "EXECUTING": "blue",
    "SUCCEEDED": "green",
    "REJECTED": "red",
    "CANCELLED": "dim",
    "EXPIRED": "dim",
    "FAILED": "red",
    "REFUSED": "red",
    "OUTCOME_UNKNOWN": "bold magenta",
}
_DID: Final[Mapping[str, str]] = {
    "requested": "asked for it",
    "voted": "voted",
    "approved": "cast the deciding approval",
    "rejected": "rejected it",
    "cancelled": "cancelled it",
    "expired": "found it past its time",
    "claimed": "began the run",
    "succeeded": "ran it to its end",
    "failed": "ran it, and it failed",
    "refused": "did not run it",
    "outcome-unknown": "found the run interrupted",
    "late-finish": "came back too late",
}


def console() -> Console:
    """A console that reads nothing into what it prints: no markup, no emoji, no highlighting."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(markup=False, emoji=False, highlight=False, width=width)


def wide() -> bool:
    """Whether there is room for absolute times beside relative ones in a table."""
    return console().width >= _WIDE


def said(text: Any, style: str = "") -> Text:
    """What somebody wrote, made visible.

    Parameters:
        text: what they wrote; None is a dash.
        style: how it looks.
    """
    return Text("–" if text is None else visible(str(text)), style=style)


def state(name: str) -> Text:
    """A state in its colour.

    Parameters:
        name: the state.
    """
    return Text(visible(name), style=_STYLES.get(name, ""))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Text | str]],
    *,
    empty: str,
    whole: Collection[str] = _WHOLE,
) -> None:
    """Print a table in which nothing is cut off.

    Parameters:
        columns: their names.
        rows: cells; a plain string is ours and says what it says.
        empty: what to say if there is no row.
        whole: columns that stay whole while others fold, from 80 columns on.
    """
    out = console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in whole and out.width >= _WHOLE_FROM)
    for row in rows:
        table.add_row(*row)
    out.print(table if table.row_count else Text(empty, style="dim"))


def _fields(rows: Iterable[tuple[str, Text | str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(f"  {name}", value)
    return grid


def _members(text: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for place, value in members(text):
        grid.add_row(Text(f"    {place}"), Text(value, style="bold"))
    return grid


def print_operation(operation: Operation) -> None:
    """Print everything that whoever may see an operation can know of it.

    Parameters:
        operation: as `get` returned it.
    """
    out = console()
    now = operation.now
    title = Text.assemble(
        said(operation.type, "bold"), f" version {operation.version}  ", state(operation.state)
    )
    out.print(title)
    out.print(
        _fields(
            [
                ("operation", str(operation.operation_id)),
                ("requested by", _requester(operation)),
                ("requested", both(operation.requested_at, now)),
                *_deadline(operation),
                ("mode", operation.mode),
                ("hash", operation.params_hash.hex()),
                ("row version", str(operation.row_version)),
            ]
        )
    )
    out.print(Text("  what it would do"), _members(operation.effect), sep="\n")
    out.print(Text("  parameters, as approvers may see them"), _members(operation.redacted), sep="\n")
    _print_votes(out, operation)
    _print_end(out, operation)
    may = ", ".join(operation.can) if operation.can else "nothing now"
    out.print(_fields([("you may", may), *([("because", said(operation.why))] if operation.why else [])]))


def _requester(operation: Operation) -> Text:
    how = f" ({visible(operation.auth_kind)})" if operation.auth_kind else ""
    return said(operation.requester, "bold").append(how, "not bold")


def _deadline(operation: Operation) -> list[tuple[str, Text | str]]:
    if operation.ended_at is not None:
        return [("ended", both(operation.ended_at, operation.now))]
    if operation.state == "HELD":
        return [("expires", both(operation.expires_at, operation.now))]
    rows: list[tuple[str, Text | str]] = [
        ("approved", both(operation.approved_at, operation.now)),
        ("run before", both(operation.run_deadline, operation.now)),
    ]
    if operation.run_worker is not None:
        rows += [
            ("worker", said(operation.run_worker)),
            ("lease until", both(operation.run_lease_until, operation.now)),
        ]
    return rows


def _print_votes(out: Console, operation: Operation) -> None:
    approvals = sum(vote.decision == "approve" for vote in operation.votes)
    out.print(_fields([("approvals", f"{approvals} of {operation.votes_required}")]))
    for vote in operation.votes:
        approved = vote.decision == "approve"
        line = Text("    ").append(said(vote.approver, "bold"))
        line.append(" approved" if approved else " rejected", "green" if approved else "red")
        line.append(f", {both(vote.cast_at, operation.now)}")
        if vote.reason:
            line.append(": ").append(said(vote.reason))
        out.print(line)


def _print_end(out: Console, operation: Operation) -> None:
    rows: list[tuple[str, Text | str]] = []
    if operation.outcome_reason:
        rows.append(("reason", said(operation.outcome_reason, "bold")))
    if operation.outcome_detail:
        rows.append(("detail", said(operation.outcome_detail)))
    if rows:
        out.print(_fields(rows))
    if operation.result is not None:
        out.print(Text("  result"), _members(json.dumps(operation.result)), sep="\n")


def print_timeline(operation: Operation, events: Sequence[Event]) -> None:
    """Print who did what, when, from which state to which.

    Parameters:
        operation: the operation, as `get` returned it.
        events: its events, in order.
    """
    out = console()
    title = Text.assemble(
        said(operation.type, "bold"), f" version {operation.version}  ", state(operation.state)
    )
    out.print(title.append(f"  {operation.operation_id}", "dim"))
    votes = {vote.approver: vote for vote in operation.votes}
    before: datetime | None = None
    for event in events:
        if before is not None and event.recorded_at - before >= timedelta(seconds=1):
            out.print(Text(f"  │  {duration(event.recorded_at - before)} later", style="dim"))
        out.print(_when(event, operation.now))
        out.print(_who(event, votes.get(event.actor)))
        for line in _remarks(event, votes.get(event.actor)):
            out.print(Text("  │  ", style="dim").append(line))
        before = event.recorded_at


def _when(event: Event, now: datetime | None) -> Text:
    line = (
        Text("  ").append("●", _STYLES.get(event.to_state, "")).append(f"  {absolute(event.recorded_at)}  ")
    )
    if now is not None:
        line.append(f"{relative(event.recorded_at, now):<15}  ", "dim")
    if event.from_state is not None and event.from_state != event.to_state:
        line.append(state(event.from_state)).append(" ")
    if event.from_state != event.to_state:
        line.append("→ ")
    return line.append(state(event.to_state))


def _who(event: Event, vote: Vote | None) -> Text:
    did = _DID.get(event.type, event.type)
    if event.type == "voted" and vote is not None:
        did = "voted to approve it" if vote.decision == "approve" else "voted to reject it"
    return (
        Text("  ")
        .append("│", "dim")
        .append("  ")
        .append(said(event.actor, "bold"))
        .append(f" {visible(did)}")
    )


def _remarks(event: Event, vote: Vote | None) -> list[Text]:
    lines = []
    if event.reason not in (None, event.type):
        lines.append(said(event.reason, "italic"))
    if vote is not None and vote.reason and event.type in ("voted", "approved"):
        lines.append(Text(f"“{visible(vote.reason)}”"))
    if isinstance(event.detail, dict):
        lines += [_remark(name, value) for name, value in event.detail.items() if name not in _NOISE]
    elif event.detail is not None:
        lines.append(Text(visible_value(event.detail)))
    return lines


# What a person reading has seen already, or can do nothing with; `--json` has it.
_NOISE: Final = frozenset({"run_id", "worker"})
_INSTANTS: Final[Mapping[str, str]] = {"expires_at": "expires", "run_deadline": "run before"}


def _remark(name: str, value: Any) -> Text:
    if name in _INSTANTS and isinstance(value, str):
        try:
            return Text(f"{_INSTANTS[name]} {absolute(datetime.fromisoformat(value))}", style="dim")
        except ValueError:
            return said(value)
    if name == "detail" and isinstance(value, str):
        return said(value)
    return Text(
        f"{visible(name)} {visible(value) if isinstance(value, str) else visible_value(value)}", style="dim"
    )
