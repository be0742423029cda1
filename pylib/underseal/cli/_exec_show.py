"""How one execution looks to a person: who and what, the timeline, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from underseal.cli._exec_input import command
from underseal.cli._exec_timeline import Railed, Timeline
from underseal.cli._exec_words import CHILD, GATE, HOLD, instant_of, status, told, wait_words
from underseal.cli._render import console, said
from underseal.cli._times import both, relative

if TYPE_CHECKING:
    from underseal.cli._exec_view import View
    from underseal.inbox.model import InboxMessage

_ROWS: Final = 6
_LONG_LINE: Final = 5
_KINDS: Final[Mapping[str, str]] = {
    "drive": "to be driven",
    "timer": "for the first instant it waits for",
    "inbox": "for a message",
    "refusal": "after a node could not go on",
}


def print_view(view: View) -> None:
    """Print everything that whoever may see an execution can know of it.

    Parameters:
        view: what was read.
    """
    out = console()
    info = view.info
    title = said(info.flow, "bold").append(f" version {info.flow_version}  ", "not bold")
    title.append(status(info.status)).append("  ").append(said(info.execution_id, "not bold dim"))
    out.print(title)
    out.print(_fields(_head(view)))
    if view.events is None:
        out.print(Text("  its events are not shown: they are sealed, and do not open here", style="magenta"))
    else:
        timeline = Timeline(out, told, _ROWS, view.now)
        for event in view.events:
            timeline.add(event)
    _print_next(out, view)


def _fields(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(f"  {name}", value)
    return grid


def _head(view: View) -> list[tuple[str, RenderableType]]:
    info, now = view.info, view.now
    rows: list[tuple[str, RenderableType]] = [
        ("owner", said(info.owner, "bold") if info.owner is not None else Text("the log does not tell")),
        ("started", both(info.started_at, now)),
        ("last event", f"{info.head}, {both(info.changed_at, now)}"),
    ]
    if info.log_start > 1:
        rows.append(("compacted", f"events 1 to {info.log_start - 1} are in a snapshot"))
    if len(view.line) > 1:
        rows.append(("line", _line(view)))
    forked = _first_data(view).get("forked_from")
    if isinstance(forked, Mapping):
        rows.append(
            ("forked from", said(forked.get("execution_id")).append(f" at event {forked.get('seq')}"))
        )
    if view.fence is not None:
        rows.append(("fence", str(view.fence)))
    if view.fold is not None:
        recoveries = view.fold.fold["recoveries"]
        rows.append(("recoveries", f"{recoveries} since it last recorded anything" if recoveries else "none"))
        rows += [("wake", _wake(wake, now)) for wake in view.fold.wakes]
    if info.cancel_requested and not info.ended:
        rows.append(
            ("cancel", Text("requested; its driver has still to clean up and end it", style="yellow"))
        )
    return rows


def _first_data(view: View) -> Mapping[str, Any]:
    first = view.events[0] if view.events else None
    return (first.data or {}) if first is not None and first.seq == 0 else {}


def _line(view: View) -> Text:
    """Where it stands among those it continues and those that continue it; of a long line both ends and its place."""
    place = view.line.index(view.info.execution_id)
    ends = {0, len(view.line) - 1}
    shown = [
        n for n in range(len(view.line)) if len(view.line) <= _LONG_LINE or n in ends or abs(n - place) <= 1
    ]
    text = Text()
    before = -1
    for n in shown:
        text.append("" if n == 0 else " → " if n == before + 1 else " → … → ")
        one = said(view.line[n], "bold" if n == place else "")
        text.append(one)
        before = n
    if place < len(view.line) - 1:
        text.append(" (").append(status(view.line_status)).append(")")
    return text


def _wake(wake: Mapping[str, Any], now: datetime) -> Text:
    due = datetime.fromtimestamp(0, now.tzinfo) + timedelta(microseconds=wake["wake_at"])
    text = Text(_KINDS.get(wake["kind"], wake["kind"])).append(", ")
    if wake["claimed"]:
        text.append("claimed by a worker", "blue")
    elif due <= now:
        text.append("due, and no worker has it" if due == now else f"due {relative(due, now)}, no worker has it",
            "yellow")  # fmt: skip
    else:
        text.append(f"due {both(due, now)}")
    attempts = wake["attempts"]
    return (
        text.append(f", claimed {attempts} time{'' if attempts == 1 else 's'} so far") if attempts else text
    )


def _print_next(out: Console, view: View) -> None:
    info = view.info
    if info.status == "suspended":
        _print_waits(out, view)
    elif info.continued_by is not None:
        out.print(Text("  goes on as ").append(said(info.continued_by, "bold")))
    elif not info.ended:
        what = "goes on" if info.status == "running" else "begins"
        out.print(Text(f"  {what} when a worker that serves ").append(said(info.flow))
            .append(f" version {info.flow_version} drives it"))  # fmt: skip
    if not info.ended or view.inbox:
        _print_inbox(out, view)


def _print_waits(out: Console, view: View) -> None:
    out.print(Text("  parked until one of these comes", style="dim"))
    for wait in view.info.waits:
        line = said(wait["wait"], "bold").append("  ", "not bold").append(wait_words(wait["arms"], view.now))
        out.print(Railed(line, "◌", "cyan"), end="")
        _print_arms(out, view, wait["arms"])


def _print_arms(out: Console, view: View, arms: list[Mapping[str, Any]]) -> None:
    """What has come already; otherwise what would wake it, and for what people do the command that does it."""
    topics = [str(arm["topic"]) for arm in arms if "topic" in arm]
    there = [message.topic for message in view.inbox if message.topic in topics]
    due = [instant_of(arm["due"]) for arm in arms if "due" in arm]
    if there or any(instant is not None and instant <= view.now for instant in due):
        what = (
            "its time has come"
            if not there
            else "an answer is there"
            if _is_gate(there[0])
            else "a message is there"
        )
        words = f"{what}: a worker that serves {view.info.flow} takes it from here"
        out.print(Railed(said(words, "yellow")), end="")
    elif topics:
        _print_commands(out, view, topics)


def _print_commands(out: Console, view: View, topics: list[str]) -> None:
    owner = view.info.owner
    kernels = [topic for topic in topics if topic.startswith((CHILD, HOLD))]
    for topic in kernels:
        _print_awaited(out, view, topic)
    topics = [topic for topic in topics if topic not in kernels]
    if not topics:
        return
    if owner is None:
        out.print(
            Railed(Text("nobody is known to own it: only an access policy lets somebody answer")), end=""
        )
        return
    verb = "answer" if all(map(_is_gate, topics)) else "send it"
    may = said(owner, "bold").append(f", its owner, may {verb}", "not bold")
    out.print(
        Railed(may.append(", unless an access policy says otherwise; for example", "dim not bold")), end=""
    )
    for topic in topics:
        # in one line, however long: it is to be copied
        line = Text("  │    ", style="dim").append(_command(view, topic, owner), "not dim bold")
        out.print(line, soft_wrap=True)


def _print_awaited(out: Console, view: View, topic: str) -> None:
    """Whose end the kernel will tell: nobody can send that."""
    if topic.startswith(HOLD):
        words = "somebody else decides on it; the kernel tells how it ends"
        line = command("underseal", "show", topic.removeprefix(HOLD))
    else:
        words = "the kernel tells how it ends"
        chain = view.info.execution_id.partition("~")[0]
        line = command("underseal", "exec", "show", f"{chain}~{topic.removeprefix(CHILD)}")
    out.print(Railed(Text(words)), end="")
    out.print(Text("  │    ", style="dim").append(line, "not dim bold"), soft_wrap=True)


def _is_gate(topic: str) -> bool:
    return topic.startswith(GATE)


def _command(view: View, topic: str, owner: str) -> str:
    execution_id = view.info.execution_id
    if _is_gate(topic):
        gate = topic.removeprefix(GATE)
        return command(
            "underseal", "exec", "resume", execution_id, gate, "--principal", owner, "--answer", "true"
        )
    return command("underseal", "inbox", "send", execution_id, topic, "--principal", owner, "--payload", "{}")


def _print_inbox(out: Console, view: View) -> None:
    if not view.inbox:
        return
    number = len(view.inbox)
    out.print(Text(f"  {number} message{'' if number == 1 else 's'} in the inbox", style="dim"))
    for message in view.inbox[:_ROWS]:
        out.print(Railed(_message(message, view.now), "✉", "cyan"), end="")
    if number > _ROWS:
        words = command("underseal", "inbox", "list", view.info.execution_id)
        out.print(Text(f"  … {number - _ROWS} more: ", style="dim").append(words, "not dim"), soft_wrap=True)


def _message(message: InboxMessage, now: datetime) -> Text:
    gate = _is_gate(message.topic)
    line = Text(f"{message.inbox_seq}  {'gate ' if gate else ''}", style="dim")
    line.append(said(message.topic.removeprefix(GATE), "not dim bold")).append(" from ")
    line.append(said(message.sender, "not dim")).append(
        f", {message.bytes} byte{'' if message.bytes == 1 else 's'}, "
    )
    line.append(relative(message.sent_at, now))
    return line if message.expires_at is None else line.append(f", expires {both(message.expires_at, now)}")
