"""Sealing and opening what an execution keeps: fields of events, messages, a fork's lineage (DESIGN 6; M1, M14, M19,
M20; docs/seal.md).

The functions that have a plaintext in scope raise nothing: they return what is wrong, and it is raised from where no
plaintext is left, with nothing chained to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from underseal.errors import SealError
from underseal.seal import capability, jsontext
from underseal.seal.envelope import Envelope, key_id_of, open_seal, seal
from underseal.seal.events import CONSUMED, INBOX, LINEAGE, STARTED
from underseal.seal.formats import COMMITTING, FIELD
from underseal.seal.keys import Key
from underseal.seal.lineage import Lineage, inbox_of
from underseal.seal.paths import Path, dotted, look, pointer, replaced
from underseal.seal.rings import MemoryKeyRing
from underseal.seal.sensitive import SensitiveMap
from underseal.seal.slots import Slot, Where, envelope_at, is_foreign, sealed_paths, slot_at
from underseal.seal.subjects import Lookup, keys_for

T = TypeVar("T")

_LINEAGE_COVER: Final = f"{STARTED}.{dotted(LINEAGE)}"


@dataclass(frozen=True, slots=True)
class Sealed(Generic[T]):
    """What was sealed.

    Attributes:
        data: the data, or the payload, with envelopes in the place of what was sealed.
        pointers: where they are, as the verbs take it: RFC 6901 pointers into the event's data.
        covers: ``EVENT_TYPE.dot.path`` of each, sorted: what the kernel will write into the marker.
        cipher: the cipher of all of them.
    """

    data: T = field(repr=False)
    pointers: tuple[str, ...]
    covers: tuple[str, ...]
    cipher: str

    @property
    def marker(self) -> dict[str, Any] | None:
        """The marker that goes with it; None where nothing was sealed."""
        return capability.marker(self.cipher, self.covers) if self.covers else None


@dataclass(frozen=True, slots=True)
class _Opened:
    """Data in which everything was opened. In no repr."""

    data: Any = field(repr=False)


def seal_fields(
    event_type: str,
    data: Mapping[str, Any],
    sensitive: SensitiveMap,
    key: Key,
    *,
    subject: str,
    execution_id: str,
    cipher: str = COMMITTING,
) -> Sealed[dict[str, Any]]:
    """Seal what the map names in an event that is to be recorded.

    Parameters:
        event_type: its type; a message is sealed by ``seal_message``.
        data: its data. It is not changed.
        sensitive: what is sealed.
        key: the subject's, of purpose ``subject``.
        subject: whose data the execution's chain holds.
        execution_id: the execution that will record it; for EXECUTION_STARTED the one that is started.
        cipher: ``loom/aes-256-gcm`` ties values to no place; it is for those who must be read by the record's nodes.

    Returns:
        The data with envelopes, and where they are. Where nothing is sealed, the data as it was.

    Raises:
        SealError: ``malformed`` for a value that is no JSON, too deep, larger than 1 MiB or that holds an envelope
            already (G13), and for an event without its key; ``unsupported`` for a key or cipher that does not fit.
            Nothing was sealed then.
    """
    if event_type in (INBOX, CONSUMED):
        del data
        raise ValueError("expected an event that its driver records, found a message: use seal_message")
    where = Where(event_type, data, subject, sensitive.key_of(event_type))
    made = _sealed(where, sensitive.slots(event_type, data), key, execution_id, cipher)
    del data, where
    if isinstance(made, SealError):
        raise made
    return made


def seal_message(
    payload: Any,
    sensitive: SensitiveMap,
    key: Key,
    *,
    subject: str,
    execution_id: str,
    sender: str,
    message_id: str,
    cipher: str = COMMITTING,
) -> Sealed[Any]:
    """Seal what the map names in a message that is to be sent.

    Parameters:
        payload: any JSON. It is not changed.
        sensitive, key, subject, cipher: as for ``seal_fields``.
        execution_id: to whom it is sent; the place is the inbox of its line, which a continuation reads too.
        sender, message_id: as they will be sent. Their key is part of the place.

    Returns:
        The payload with envelopes; ``pointers`` begin with ``/payload``.

    Raises:
        SealError: as for ``seal_fields``.
    """
    where = Where(INBOX, {"payload": payload, "key": message_key(sender, message_id)}, subject, ())
    made = _sealed(where, sensitive.slots(INBOX, where.data), key, inbox_of(execution_id), cipher)
    del payload, where
    if isinstance(made, SealError):
        raise made
    return Sealed(made.data["payload"], made.pointers, made.covers, made.cipher)


def open_fields(
    event_type: str,
    data: Mapping[str, Any],
    marker: Mapping[str, Any] | None,
    sensitive: SensitiveMap,
    lookup: Lookup,
    *,
    subject: str,
    lineage: Lineage,
    seq: int,
    shredded: bool = False,
) -> dict[str, Any]:
    """Open an event of a log: all of it, or nothing.

    Keys are looked up before anything is opened. Where the event is sealed is what its marker says; beside it, an
    envelope in a slot of the map is opened too, which a writer that stamps no markers may have left (M15).

    Parameters:
        event_type, data: as they were read.
        marker: ``metadata.seal``; None for an event without one.
        sensitive: what this node opens, and what it requires to be sealed (M20).
        lookup: where keys are, by id.
        subject: whose data the execution's chain holds.
        lineage: the execution whose event it is, and those it was forked from.
        seq: number of the event.
        shredded: whether the log, or a snapshot's record, proves that the subject was erased.

    Returns:
        The data as it went in.

    Raises:
        SealError: ``marker-unopenable``; ``malformed``, ``unsupported`` or ``does-not-open`` for what does not
            authenticate in this place or was never made so (M19); ``not-sealed``.
        KeyUnavailableError: a key is not here, or another is.
        PayloadShreddedError: a key is not here, and the store destroyed it or ``shredded`` says so.
    """
    where = Where(event_type, data, subject, sensitive.key_of(event_type))
    read = _read(where, marker, sensitive, lineage, seq)
    if isinstance(read, SealError):
        raise read
    ring = _keys(where, read, lookup, shredded)
    opened = ring if isinstance(ring, SealError) else _opened(where, read, ring, sensitive.open_legacy)
    if isinstance(opened, SealError):
        raise opened
    whole: dict[str, Any] = opened.data
    return whole


def open_message(
    payload: Any,
    marker: Mapping[str, Any] | None,
    sensitive: SensitiveMap,
    lookup: Lookup,
    *,
    subject: str,
    lineage: Lineage,
    topic: str,
    sender: str | None,
    message_key: str,
    shredded: bool = False,
) -> Any:
    """Open a message of an inbox before it is delivered: all of it, or nothing.

    What it says when it is open holds no envelope: that is looked through here (G16).

    Parameters:
        payload, marker, topic, sender: as ``next_message`` gave them.
        message_key: its key, 64 hexadecimal digits.
        sensitive, lookup, subject, shredded: as for ``open_fields``.
        lineage: the execution that it is delivered to, and those it was forked from.

    Raises:
        SealError, KeyUnavailableError, PayloadShreddedError: as for ``open_fields``.
    """
    data = {"topic": topic, "sender": sender, "key": message_key, "payload": payload}
    opened = open_fields(
        INBOX, data, marker, sensitive, lookup, subject=subject, lineage=lineage, seq=0, shredded=shredded
    )
    return opened["payload"]


def seal_lineage(lineage: Lineage, key: Key, *, subject: str, cipher: str = COMMITTING) -> Envelope:
    """Seal the lineage of a fork, for the member ``lineage`` of its EXECUTION_STARTED.

    Parameters:
        lineage: the fork's.
        key, subject, cipher: as for ``seal_fields``.

    Raises:
        SealError: as for ``seal_fields``.
    """
    place = (subject, lineage.execution_id, STARTED, "[]", pointer(LINEAGE))
    text = jsontext.encode(lineage.to_json())
    if isinstance(text, jsontext.Flaw):
        raise SealError("malformed", f"{_LINEAGE_COVER}: {text}")
    return seal(text, key, fmt=FIELD, place=place, origin=lineage.execution_id, cipher=cipher)


def open_lineage(
    envelope: object, lookup: Lookup, *, subject: str, execution_id: str, shredded: bool = False
) -> Lineage:
    """Open the lineage of a fork. Never under the record's cipher, which would tie it to nothing.

    Parameters:
        envelope: the member ``lineage`` of its EXECUTION_STARTED.
        lookup, subject, shredded: as for ``open_fields``.
        execution_id: the fork.

    Raises:
        SealError, KeyUnavailableError, PayloadShreddedError: as for ``open_fields``.
    """
    key_id = key_id_of(envelope)
    if key_id is None:
        raise SealError("malformed", f"{_LINEAGE_COVER} is no envelope of ours")
    ring = keys_for([key_id], lookup, shredded)
    if isinstance(ring, SealError):
        raise ring
    place = (subject, execution_id, STARTED, "[]", pointer(LINEAGE))
    text = open_seal(envelope, ring, purpose="subject", fmt=FIELD, place=place)
    value = jsontext.decode(text)
    lineage = None if isinstance(value, jsontext.Flaw) else Lineage.from_json(execution_id, value[0])
    if lineage is None:
        raise SealError("malformed", f"{_LINEAGE_COVER} is sealed and no lineage")
    return lineage


def message_key(sender: str, message_id: str) -> str:
    """The key of a message, 64 hexadecimal digits: SHA-256 over sender, a zero byte and message id."""
    return hashlib.sha256(b"\0".join((sender.encode(), message_id.encode()))).hexdigest()


def _sealed(where: Where, paths: list[Path], key: Key, origin: str, cipher: str) -> Sealed[Any] | SealError:
    data: Any = where.data
    for path in paths:
        slot = slot_at(where, path, origin)
        if isinstance(slot, SealError):
            return slot
        text = jsontext.encode(look(where.data, path))
        if isinstance(text, jsontext.Flaw):
            return SealError("malformed", f"{where.event_type}.{dotted(path)} cannot be sealed: {text}")
        try:
            envelope = seal(text, key, fmt=slot.fmt, place=slot.place, origin=origin, cipher=cipher)
        except SealError as error:
            return error.with_traceback(None)
        data = replaced(data, path, envelope)
    covers = sorted(f"{where.event_type}.{dotted(path)}" for path in paths)
    return Sealed(data, tuple(pointer(path) for path in paths), tuple(covers), cipher)


def _read(
    where: Where, marker: Mapping[str, Any] | None, sensitive: SensitiveMap, lineage: Lineage, seq: int
) -> list[Slot] | SealError:
    """The slots in which envelopes are, judged by everything that needs no key."""
    if marker is not None and not capability.opens(marker, sensitive.capability()):
        return SealError(
            "marker-unopenable", f"this node does not open what the marker of a {where.event_type} names"
        )
    paths = sealed_paths(where, marker, sensitive)
    if isinstance(paths, SealError):
        return paths
    slots: list[Slot] = []
    for path in paths:
        envelope = envelope_at(where, path, None if marker is None else marker["cipher"])
        if isinstance(envelope, SealError):
            return envelope
        origin = envelope.get("org")
        if not isinstance(origin, str) or key_id_of(envelope) is None:
            return SealError("malformed", f"{where.event_type}.{dotted(path)} is no envelope of ours")
        if is_foreign(where, path, origin, lineage, seq):
            return SealError(
                "does-not-open", f"{where.event_type}.{dotted(path)} was sealed for another execution"
            )
        slot = slot_at(where, path, origin)
        if isinstance(slot, SealError):
            return slot
        slots.append(slot)
    return slots


def _keys(where: Where, slots: list[Slot], lookup: Lookup, shredded: bool) -> MemoryKeyRing | SealError:
    named = (key_id_of(look(where.data, slot.path)) for slot in slots)
    return keys_for([key_id for key_id in named if key_id is not None], lookup, shredded)


def _opened(where: Where, slots: list[Slot], ring: MemoryKeyRing, open_legacy: bool) -> _Opened | SealError:
    data: Any = where.data
    for slot in slots:
        named = f"{where.event_type}.{dotted(slot.path)}"
        try:
            text = open_seal(
                look(where.data, slot.path),
                ring,
                purpose="subject",
                fmt=slot.fmt,
                place=slot.place,
                open_legacy=open_legacy,
            )
        except SealError as error:
            return error.with_traceback(None)
        value = jsontext.decode(text)
        if isinstance(value, jsontext.Flaw):
            return SealError("malformed", f"{named}: {value}")
        data = replaced(data, slot.path, value[0])
    return _Opened(data)
