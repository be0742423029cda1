"""The sensitive map: which members of which events are sealed (docs/seal.md; clauses M1, M3, M20)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from underseal.seal.capability import Capability
from underseal.seal.events import (
    CHILD_ENDS,
    CHILD_TOPIC,
    CONSUMED,
    HOLD_TOPIC,
    INBOX,
    LINEAGE,
    SNAPSHOT_COVER,
    STARTED,
    EventKind,
    kind_of,
)
from underseal.seal.formats import COMMITTING, PLAIN
from underseal.seal.paths import (
    MISSING,
    Path,
    dotted,
    is_within,
    look,
    outermost,
    parse_dotted,
    parse_pointer,
)

_PAYLOAD: Final = "payload"


class SensitiveMap:
    """What this node seals, and therefore opens. Paths may be registered while it runs, from any thread.

    Parameters:
        paths: type of event → paths into its data, RFC 6901 pointers (``/card/number``) or dotted
            (``card.number``); see ``register``.
        keys: for an application's own types, the path or paths of the members that tell its events apart.
        open_legacy: whether values under the record's cipher are opened, which ties them to no place.
        required: whether a value that the map says is sealed is refused where it is found readable (M20). Off,
            old logs are read on.

    Raises:
        ValueError: see ``register``.
    """

    def __init__(
        self,
        paths: Mapping[str, str | Iterable[str]] | None = None,
        *,
        keys: Mapping[str, str | Iterable[str]] | None = None,
        open_legacy: bool = False,
        required: bool = True,
    ) -> None:
        self.open_legacy: Final = open_legacy
        self.required: Final = required
        self._lock = threading.Lock()
        self._paths: dict[str, frozenset[Path]] = {}
        self._kinds: dict[str, EventKind] = {}
        for event_type, some in (paths or {}).items():
            self.register(event_type, *_listed(some), key=(keys or {}).get(event_type, ()))
        if unused := (keys or {}).keys() - self._paths.keys():
            raise ValueError(f"expected keys of types that have paths, found {', '.join(sorted(unused))}")

    def register(self, event_type: str, *paths: str, key: str | Iterable[str] = ()) -> None:
        """Seal these members of these events from now on. Counts at once for whoever asks what this node opens (M3).

        A path that leads into another that is registered changes nothing about new events, which are sealed at
        the outer one; old ones that were sealed at the inner one still open. INBOX_MESSAGE and MESSAGE_CONSUMED
        are registered together: it is one payload.

        Parameters:
            event_type: type of the events.
            paths: RFC 6901 pointers or dotted paths into their data, to a member or an element of an array. A
                path that leads nowhere in an event seals nothing there. There are no wildcards.
            key: for an application's own type, the path or paths of the members that tell its events apart in an
                execution, each a text or an integer that is not sealed.

        Raises:
            ValueError: a path is none, or leads to what the kernel or the runtime goes by; an application's own
                type without a key, or another key than before; a key for any other.
        """
        parsed = frozenset(_path(text) for text in paths)
        with self._lock:
            kind = self._kind(event_type, tuple(_path(text) for text in _listed(key)))
            _demand_sealable(event_type, kind, parsed)
            twins = (INBOX, CONSUMED) if event_type in (INBOX, CONSUMED) else (event_type,)
            self._kinds |= {event_type: kind}
            self._paths |= {one: self._paths.get(one, frozenset()) | parsed for one in twins}

    def key_of(self, event_type: str) -> tuple[Path, ...]:
        """The members that tell events of a type apart."""
        known = kind_of(event_type)
        if known is None:
            known = self._kinds.get(event_type)
        return () if known is None else known.key

    def slots(self, event_type: str, data: Mapping[str, Any]) -> list[Path]:
        """Where this event is to be sealed: the outermost paths that lead somewhere in it.

        A message that the kernel wrote, a child's end, is sealed where the child's own event was; the end of a
        held operation is sealed nowhere.

        Parameters:
            event_type: its type.
            data: its data, sealed or not.
        """
        paths: Iterable[Path] = self._paths.get(event_type, ())
        topic = data.get("topic")
        if event_type in (INBOX, CONSUMED) and isinstance(topic, str):
            if topic.startswith(CHILD_TOPIC):
                end = CHILD_ENDS.get(str(look(data, (_PAYLOAD, "status"))), "")
                paths = [(_PAYLOAD, *path) for path in self._paths.get(end, ())]
            elif topic.startswith(HOLD_TOPIC):
                paths = ()
        return [path for path in outermost(paths) if look(data, path) is not MISSING]

    def capability(self) -> Capability | None:
        """What this node opens, as the verbs take it; None if it seals nothing.

        Beside the registered paths these are what follows from them: the ends of children in the inbox and the
        log of who asked, sealed snapshots, and the lineage of a fork.
        """
        every = dict(self._paths)
        covers = {f"{event_type}.{dotted(path)}" for event_type, paths in every.items() for path in paths}
        if not covers:
            return None
        for end in CHILD_ENDS.values():
            for path in every.get(end, ()):
                covers |= {f"{one}.{dotted((_PAYLOAD, *path))}" for one in (INBOX, CONSUMED)}
        covers |= {SNAPSHOT_COVER, f"{STARTED}.{dotted(LINEAGE)}"}
        ciphers = [PLAIN, COMMITTING] if self.open_legacy else [COMMITTING]
        return {"ciphers": ciphers, "covers": sorted(covers)}

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{t}.{dotted(p)}" for t, paths in sorted(self._paths.items()) for p in sorted(paths)
        )
        return f"<SensitiveMap {shown or 'empty'}>"

    def _kind(self, event_type: str, key: tuple[Path, ...]) -> EventKind:
        known = kind_of(event_type)
        if known is not None:
            if key:
                raise ValueError(f"expected no key for {event_type}, which has its own, found one")
            return known
        before = self._kinds.get(event_type)
        if before is None and not key:
            raise ValueError(
                f"expected a key for {event_type}, a type of the application's own: the path of a member that tells "
                "its events apart, or one could be put in the place of another"
            )
        if before is not None and key not in ((), before.key):
            raise ValueError(f"expected the key that {event_type} has already, found another")
        return before or EventKind(None, key)


def _listed(paths: str | Iterable[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _path(text: str) -> Path:
    path = parse_pointer(text) if text.startswith("/") else parse_dotted(text)
    if path is None:
        raise ValueError(f"expected an RFC 6901 pointer or a dotted path, found {text!r}")
    if not text.startswith("/") and not all(path):
        raise ValueError(
            f"expected names between the dots of a path, found {text!r}; a pointer can say an empty one"
        )
    if not text.startswith("/") and "*" in path:
        raise ValueError(
            f"expected a path without wildcards, found {text!r}; name the member that holds them all, or write a "
            "pointer if a member has that name"
        )
    return path


def _demand_sealable(event_type: str, kind: EventKind, paths: Iterable[Path]) -> None:
    for path in paths:
        if kind.sealable is not None and path[0] not in kind.sealable:
            raise ValueError(
                f"expected a path into {', '.join(sorted(kind.sealable)) or 'nothing'} of {event_type}, "
                f"found {dotted(path)}: the rest is what the kernel and the runtime go by"
            )
        if any(is_within(part, path) or is_within(path, part) for part in kind.key):
            raise ValueError(f"expected the key of {event_type} to stay readable, found {dotted(path)}")
