"""Where in an event sealed values are, and the place that each is tied to (M1, M19, M20; docs/formats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from underseal.errors import SealError
from underseal.seal.envelope import MARK
from underseal.seal.events import (
    CHILD_ENDS,
    CHILD_TOPIC,
    CONSUMED,
    HOLD_TOPIC,
    INBOX,
    LINEAGE,
    STARTED,
    event_key,
)
from underseal.seal.formats import FIELD, MESSAGE
from underseal.seal.lineage import Lineage, chain_of, line_of
from underseal.seal.paths import MISSING, Path, dotted, is_within, look, outermost, parse_dotted, pointer
from underseal.seal.sensitive import SensitiveMap

_MESSAGES: Final = frozenset({INBOX, CONSUMED})


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one sealed value.

    Attributes:
        path: where it is in the event's data.
        fmt: the format that belongs there.
        place: its logical place.
    """

    path: Path
    fmt: str
    place: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """The event whose values are sealed or opened.

    Attributes:
        event_type: its type.
        data: its data.
        subject: whose data it holds.
        key: the paths of the members that tell it from others of its type.
    """

    event_type: str
    data: Mapping[str, Any]
    subject: str
    key: tuple[Path, ...]


def slot_at(where: Where, path: Path, origin: str) -> Slot | SealError:
    """The slot of a path, with the place that an envelope of this origin is tied to there.

    Parameters:
        where: the event.
        path: leads somewhere in it.
        origin: the execution that sealed it; for a message the inbox it was sent to.
    """
    if where.event_type not in _MESSAGES:
        key = event_key(where.data, where.key)
        if key is None:
            return SealError(
                "malformed",
                f"{where.event_type} lacks a member that tells its events apart, a text or an integer: "
                f"{', '.join(map(dotted, where.key))}",
            )
        return Slot(path, FIELD, (where.subject, origin, where.event_type, key, pointer(path)))
    topic = str(where.data.get("topic"))
    if topic.startswith(CHILD_TOPIC):
        end = CHILD_ENDS.get(str(look(where.data, ("payload", "status"))))
        if end is None or len(path) < 2:
            return SealError("malformed", f"{where.event_type}: nothing is sealed in such an end of a child")
        return Slot(path, FIELD, (where.subject, origin, end, "[]", pointer(path[1:])))
    message_key = where.data.get("key")
    if topic.startswith(HOLD_TOPIC) or not isinstance(message_key, str):
        return SealError("malformed", f"{where.event_type}: nothing is sealed in the end of a held operation")
    return Slot(path, MESSAGE, (where.subject, origin, message_key, pointer(path)))


def is_foreign(where: Where, path: Path, origin: str, lineage: Lineage, seq: int) -> bool:
    """Whether an envelope of this origin cannot have come into this event of this execution by itself.

    Parameters:
        where: the event.
        path: where in it the envelope is.
        origin: what the envelope says it was first sealed for.
        lineage: the execution whose event it is, and those it was forked from.
        seq: number of the event.
    """
    if where.event_type in _MESSAGES:
        topic = str(where.data.get("topic"))
        if not topic.startswith(CHILD_TOPIC):
            return origin not in lineage.inboxes()
        chains = [chain_of(member) for member in lineage.members()]
        return (
            origin != where.data.get("sender")
            or chain_of(origin) not in chains
            or line_of(origin) != topic.removeprefix(CHILD_TOPIC)
        )
    if where.event_type == STARTED and is_within(path, LINEAGE):
        return origin != lineage.execution_id
    return not lineage.allows(origin, seq)


def sealed_paths(
    where: Where, marker: Mapping[str, Any] | None, sensitive: SensitiveMap
) -> list[Path] | SealError:
    """Where in this event envelopes are: what its marker names, and what the map names and is one.

    Parameters:
        where: the event.
        marker: its marker, which the node's capability opens.
        sensitive: the node's map; where it requires sealing, what it names is not found readable (M20).
    """
    marked = _marked(where.event_type, marker)
    if isinstance(marked, SealError):
        return marked
    more: list[Path] = []
    for path in sensitive.slots(where.event_type, where.data):
        if path in marked:
            continue
        if is_envelope(look(where.data, path)):
            more.append(path)
        elif sensitive.required:
            return SealError(
                "not-sealed", f"{where.event_type}.{dotted(path)} is readable, and must be sealed"
            )
    return [*marked, *more]


def is_envelope(value: object) -> bool:
    """Whether a value is shaped like an envelope of whatever kind (G3)."""
    return isinstance(value, Mapping) and isinstance(value.get(MARK), str)


def _marked(event_type: str, marker: Mapping[str, Any] | None) -> list[Path] | SealError:
    paths: list[Path] = []
    for entry in [] if marker is None else marker["covers"]:
        kind, _, text = entry.partition(".")
        path = parse_dotted(text)
        if kind != event_type or path is None:
            return SealError("malformed", f"the marker of a {event_type} names something else")
        paths.append(path)
    if len(outermost(paths)) != len(set(paths)):
        return SealError("malformed", f"the marker of a {event_type} names a value and what is within it")
    return outermost(paths)


def envelope_at(where: Where, path: Path, cipher: str | None) -> Mapping[str, Any] | SealError:
    """The envelope that a path leads to.

    Parameters:
        where: the event.
        path: leads to it.
        cipher: the one that the marker names; None without a marker.
    """
    value = look(where.data, path)
    if value is MISSING:
        return SealError(
            "malformed", f"the marker of a {where.event_type} names {dotted(path)}, which is not there"
        )
    if not is_envelope(value):
        return SealError(
            "not-sealed", f"{where.event_type}.{dotted(path)} is readable, and its marker says sealed"
        )
    if cipher is not None and value[MARK] != cipher:
        return SealError(
            "malformed", f"{where.event_type}.{dotted(path)} has another cipher than its marker says"
        )
    envelope: Mapping[str, Any] = value
    return envelope
