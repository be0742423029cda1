"""What an event of a log says, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from underseal.cli._exec_values import sealed_by
from underseal.cli._render import said
from underseal.cli._times import absolute, both, duration

if TYPE_CHECKING:
    from underseal.log.model import LogEvent

GATE: Final = "$gate/"
CHILD: Final = "$child/"
HOLD: Final = "$hold/"

STATUS_STYLES: Final[Mapping[str, str]] = {
    "pending": "yellow",
    "running": "blue",
    "suspended": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "continued": "green dim",
}


@dataclass
class Told:
    """One event as a person is told of it.

    Attributes:
        title: in a word or two, or its type.
        style: how the title looks.
        lines: what happened.
        values: JSON values with what each is.
    """

    title: str
    style: str = ""
    lines: list[Text] = field(default_factory=list)
    values: list[tuple[str, Any]] = field(default_factory=list)


def status(name: str) -> Text:
    """A status in its colour.

    Parameters:
        name: the status.
    """
    return said(name, STATUS_STYLES.get(name, ""))


def told(event: LogEvent) -> Told:
    """An event in words.

    Parameters:
        event: the event.
    """
    if not getattr(event.data, "readable", True):
        return in_full(event)
    try:
        one = _WORDS[event.type](event.data or {})
    except (KeyError, AttributeError, TypeError):  # the application's own, or not as its verb writes it
        return in_full(event)
    one.lines += _seal_lines(event)
    return one


def in_full(event: LogEvent) -> Told:
    """An event as the log has it: its type, and its data.

    Parameters:
        event: the event.
    """
    # an object too deep to be read is empty and still something to tell of
    shown = event.data is not None and (event.data or not getattr(event.data, "readable", True))
    values = [("", event.data)] if shown else []
    return Told(event.type, _STYLES.get(event.type, ""), _seal_lines(event), values)


def _seal_lines(event: LogEvent) -> list[Text]:
    seal = sealed_by(event.metadata)
    if not event.sealed and seal is None:
        return []
    return [Text("sealed: ", style="magenta").append(seal or "it does not open here")]


def wait_words(arms: list[Mapping[str, Any]], now: datetime | None = None) -> Text:
    """The arms of a wait: `gate approve, or topic paid, or until …`.

    Parameters:
        arms: as recorded.
        now: the database's clock, for how far away an instant is.
    """
    line = Text()
    for arm in arms:
        line.append(", or " if line else "")
        if "due" in arm:
            line.append("until ").append(instant_words(arm["due"], now))
        elif str(arm.get("topic")).startswith(GATE):
            line.append("gate ").append(said(str(arm["topic"]).removeprefix(GATE), "bold"))
        elif str(arm.get("topic")).startswith(HOLD):
            line.append("the end of operation ").append(said(str(arm["topic"]).removeprefix(HOLD), "bold"))
        elif str(arm.get("topic")).startswith(CHILD):
            line.append("the end of child ").append(said(str(arm["topic"]).removeprefix(CHILD), "bold"))
        else:
            line.append("a message on ").append(said(arm.get("topic"), "bold"))
    return line


def instant_words(instant: str, now: datetime | None) -> Text:
    """A recorded instant, in the reader's zone.

    Parameters:
        instant: ISO 8601.
        now: the database's clock, for how far away it is.
    """
    when = instant_of(instant)
    if when is None:
        return said(instant)
    return Text(both(when, now) if now is not None else absolute(when))


def instant_of(text: Any) -> datetime | None:
    """The instant of a text; None where it is none.

    Parameters:
        text: what was recorded.
    """
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):  # beyond the year 9999 also
        return None


def _started(data: Mapping[str, Any]) -> Told:
    flow = said(data.get("flow"), "bold").append(f" version {data.get('flow_version')}", "not bold")
    one = Told("started")
    if data.get("continued_from"):
        one.lines.append(flow.append(" goes on from ").append(said(data["continued_from"])))
    elif isinstance(data.get("forked_from"), Mapping):
        source = data["forked_from"]
        one.lines.append(flow.append(" was forked from ").append(said(source.get("execution_id")))
            .append(f" at event {source.get('seq')}"))  # fmt: skip
    else:
        one.lines.append(said(data.get("owner"), "bold").append(" started ", "not bold").append(flow))
    if data.get("after") is not None:
        later = duration(timedelta(seconds=float(data["after"])))
        one.lines.append(said(f"to begin {later} later", "dim"))
    if data.get("input") is not None:
        one.values.append(("input", data["input"]))
    return one


def _suspended(data: Mapping[str, Any]) -> Told:
    one = Told("parked", "cyan")
    for wait in data.get("waits") or ():
        arms = wait.get("arms") or []
        waits = " waits " if arms and "due" in arms[0] else " waits for "
        one.lines.append(
            said(wait.get("wait"), "bold").append(waits, "not bold dim").append(wait_words(arms))
        )
    return one


def _consumed(data: Mapping[str, Any]) -> Told:
    topic, disposition = str(data.get("topic")), data.get("disposition")
    sender = said(data.get("sender"), "bold")
    if topic.startswith(GATE):
        what = Text("gate ").append(said(topic.removeprefix(GATE), "bold"))
    else:
        what = Text(f"message {data.get('inbox_seq')} on ").append(said(topic, "bold"))
    if disposition == "delivered":
        answered = topic.startswith(GATE)
        one = Told("answered" if answered else "message", "cyan")
        one.lines.append(
            sender.append(" answered ", "not bold").append(what)
            if answered
            else what.append(" from ").append(sender)
        )
        one.lines.append(Text("for wait ", style="dim").append(said(data.get("wait"))))
        one.values.append(("payload", data.get("payload")))
        return one
    one = Told(str(disposition), "dim", [what.append(" from ").append(sender)])
    if data.get("operator") is not None:
        one.lines.append(said(data["operator"], "bold").append(" discarded it", "not bold"))
    if data.get("reason") is not None:
        one.lines.append(Text("“").append(said(data["reason"])).append("”"))
    return one


def _timer(data: Mapping[str, Any]) -> Told:
    return Told(
        "time", "cyan", [Text("the time of wait ").append(said(data.get("wait"), "bold")).append(" came")]
    )


def _by(title: str, style: str, did: str) -> Callable[[Mapping[str, Any]], Told]:
    def words(data: Mapping[str, Any]) -> Told:
        one = Told(title, style)
        if data.get("principal") is not None:
            one.lines.append(said(data["principal"], "bold").append(f" {did}", "not bold"))
        if data.get("reason") is not None:
            one.lines.append(Text("“").append(said(data["reason"])).append("”"))
        return one

    return words


def _with(title: str, style: str, member: str) -> Callable[[Mapping[str, Any]], Told]:
    return lambda data: Told(title, style, values=[(member, data.get(member))])


def _continued(data: Mapping[str, Any]) -> Told:
    return Told("continued", "green", [Text("goes on as ").append(said(data.get("successor"), "bold"))])


def _recovered(data: Mapping[str, Any]) -> Told:
    line = said(data.get("worker"), "bold").append(" took it over, attempt ", "not bold")
    return Told("recovered", "yellow", [line.append(said(data.get("attempt")))])


def _migrated(data: Mapping[str, Any]) -> Told:
    version = (
        Text("version ").append(said(data.get("flow_version"), "bold")).append(" of the flow drives it now")
    )
    by = data.get("principal")
    return Told(
        "migrated", "yellow", [version if by is None else version.append(", says ").append(said(by, "bold"))]
    )


def _restored(data: Mapping[str, Any]) -> Told:
    one = Told(
        "restored",
        "yellow",
        [Text(f"goes on from {len(data['events'])} events of another execution's state")],
    )
    for left in data.get("not_carried") or ():
        for kind, which in left.items():
            one.lines.append(said(f"{kind} ", "dim").append(said(which)).append(" stays with that one"))
    return one


def _outcome(data: Mapping[str, Any]) -> Told:
    return Told("outcome", "magenta", [said(data.get("principal"), "bold").append(" recorded it", "not bold")],
        [("outcome", data.get("outcome"))])  # fmt: skip


_STYLES: Final[Mapping[str, str]] = {
    "EXECUTION_STARTED": "yellow",
    "EXECUTION_SUSPENDED": "cyan",
    "EXECUTION_CANCEL_REQUESTED": "yellow",
    "EXECUTION_CANCELLED": "red",
    "EXECUTION_COMPLETED": "green",
    "EXECUTION_FAILED": "red",
    "EXECUTION_CONTINUED": "green",
    "EXECUTION_RECOVERED": "yellow",
}
_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Told]]] = {
    "EXECUTION_STARTED": _started,
    "EXECUTION_SUSPENDED": _suspended,
    "MESSAGE_CONSUMED": _consumed,
    "TIMER_FIRED": _timer,
    "EXECUTION_CANCEL_REQUESTED": _by("cancel requested", "yellow", "asked that it be cancelled"),
    "EXECUTION_CANCELLED": _by("cancelled", "red", "cancelled it"),
    "EXECUTION_COMPLETED": _with("completed", "green", "output"),
    "EXECUTION_FAILED": _with("failed", "red", "error"),
    "EXECUTION_CONTINUED": _continued,
    "EXECUTION_RECOVERED": _recovered,
    "EXECUTION_MIGRATED": _migrated,
    "STATE_RESTORED": _restored,
    "OUTCOME_RECORDED": _outcome,
}
