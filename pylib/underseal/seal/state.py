"""Whole-state snapshots: one envelope in the place of a flow's state, tied to its execution and number (S1, S2, S3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from underseal.errors import PlaintextSnapshotRefusedError, SealError, SnapshotUndecryptableError
from underseal.seal import jsontext
from underseal.seal.envelope import Envelope, key_id_of, open_seal, seal
from underseal.seal.formats import COMMITTING, FIELD, MESSAGE, SNAPSHOT
from underseal.seal.keys import Key
from underseal.seal.paths import Path, is_within, parse_dotted, parse_pointer, replaced
from underseal.seal.rings import MemoryKeyRing
from underseal.seal.slots import is_envelope
from underseal.seal.subjects import Lookup, keys_for

LegacyPlaintext = Literal["load", "refuse"]

_ANYWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    FIELD: ("LEGACY", "[]", "/state"),
    MESSAGE: ("0" * 64, "/payload"),
}
"""A place of the right shape for each format that the record's cipher ties to none."""


@dataclass(frozen=True, slots=True)
class _State:
    """A state that was opened. In no repr."""

    value: Any = field(repr=False)


def seal_state(state: Any, key: Key, *, execution_id: str, seq: int, cipher: str = COMMITTING) -> Envelope:
    """Seal a flow's state as one envelope (S1).

    Parameters:
        state: any JSON.
        key: the subject's, of purpose ``subject``, so that a shred erases the state with the log.
        execution_id: whose state it is.
        seq: number of the last event that it has seen.
        cipher: either; with the record's the associated data is the record's, byte for byte (S2).

    Raises:
        SealError: ``malformed`` for what is no JSON or nested too deeply; ``unsupported`` for a key that does not fit.
    """
    made = _sealed(state, key, execution_id, seq, cipher)
    del state
    if isinstance(made, SealError):
        raise made
    return made


def open_state(
    stored: Any,
    lookup: Lookup,
    *,
    execution_id: str,
    seq: int,
    legacy_plaintext: LegacyPlaintext = "load",
    legacy_sensitive: Iterable[str] | None = None,
    open_legacy: bool = False,
    shredded: bool = False,
) -> Any:
    """Open a snapshot's state: all of it, or nothing.

    Parameters:
        stored: what ``load_snapshot`` gave.
        lookup: where keys are, by id.
        execution_id, seq: of the row it was found in.
        legacy_plaintext: what becomes of a state that is not sealed: ``load`` hands it out, ``refuse`` does not (S3).
        legacy_sensitive: the paths, pointers or dotted, in which an old state's own envelopes are tried; None for
            all of it. What does not open stays as it was stored.
        open_legacy: whether such envelopes are tried at all: they are the record's, and tied to no place.
        shredded: whether the log, or the snapshot's record, proves that the subject was erased.

    Raises:
        SnapshotUndecryptableError: it was sealed for another place, changed, or is no such envelope (S2).
        PlaintextSnapshotRefusedError: it is readable, and ``legacy_plaintext`` is ``refuse``.
        KeyUnavailableError, PayloadShreddedError: as for ``open_fields``.
        ValueError: a path of ``legacy_sensitive`` is none.
    """
    if not is_envelope(stored):
        if legacy_plaintext == "refuse":
            del stored
            raise PlaintextSnapshotRefusedError(execution_id)
        return _with_old_fields(stored, lookup, legacy_sensitive) if open_legacy else stored
    key_id = key_id_of(stored)
    if key_id is None:
        raise SnapshotUndecryptableError(f"the snapshot {seq} of {execution_id} is no envelope of ours")
    ring = keys_for([key_id], lookup, shredded)
    if isinstance(ring, SealError):
        raise ring
    opened = _opened(stored, ring, execution_id, seq)
    if isinstance(opened, SealError):
        raise opened
    return opened.value


def _sealed(state: Any, key: Key, execution_id: str, seq: int, cipher: str) -> Envelope | SealError:
    if key.purpose != "subject":
        return SealError(
            "unsupported", f"a state is sealed under a subject key, not a {key.purpose} key", key.id
        )
    text = jsontext.encode(state)
    if isinstance(text, jsontext.Flaw):
        return SealError("malformed", f"the state of {execution_id} cannot be sealed: {text}")
    try:
        return seal(
            text, key, fmt=SNAPSHOT, place=(execution_id, str(seq)), origin=execution_id, cipher=cipher
        )
    except SealError as error:
        return error.with_traceback(None)


def _opened(
    stored: Mapping[str, Any], ring: MemoryKeyRing, execution_id: str, seq: int
) -> _State | SealError:
    key_id = key_id_of(stored)
    elsewhere = SnapshotUndecryptableError(
        f"the snapshot {seq} of {execution_id} does not open here: it was sealed for another place or changed",
        key_id,
    )
    if stored.get("org") != execution_id:
        return elsewhere
    place = (execution_id, str(seq))
    try:
        text = open_seal(stored, ring, purpose="subject", fmt=SNAPSHOT, place=place)
    except SealError:
        return elsewhere
    value = jsontext.decode(text, reserved=True)
    if isinstance(value, jsontext.Flaw):
        return SnapshotUndecryptableError(f"the snapshot {seq} of {execution_id} is damaged: {value}", key_id)
    return _State(value[0])


def _with_old_fields(state: Any, lookup: Lookup, sensitive: Iterable[str] | None) -> Any:
    """An old state in which the record's own envelopes are opened, where they open."""
    within = None if sensitive is None else [_path(text) for text in sensitive]
    found = [
        (path, envelope)
        for path, envelope in _envelopes(state)
        if within is None or any(is_within(path, outer) for outer in within)
    ]
    named = {key_id for _, envelope in found if (key_id := key_id_of(envelope)) is not None}
    keys = {
        key_id: key for key_id in sorted(named) if isinstance(key := lookup(key_id), Key) and key.id == key_id
    }
    ring = MemoryKeyRing(keys.values())
    for path, envelope in found:
        opened = _old_field(envelope, ring)
        if opened is not None:
            state = replaced(state, path, opened[0])
    return state


def _envelopes(state: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    left: list[tuple[Path, Any]] = [((), state)]
    while left:
        path, one = left.pop()
        if is_envelope(one):
            yield path, one
        elif isinstance(one, dict):
            left.extend(((*path, name), inner) for name, inner in one.items())
        elif isinstance(one, list):
            left.extend(((*path, str(place)), inner) for place, inner in enumerate(one))


def _old_field(envelope: Mapping[str, Any], ring: MemoryKeyRing) -> tuple[Any] | None:
    fmt, origin = envelope.get("fmt"), envelope.get("org")
    rest = _ANYWHERE.get(fmt) if isinstance(fmt, str) else None
    if rest is None or not isinstance(fmt, str) or not isinstance(origin, str):
        return None
    place = ("any", origin, *rest)
    try:
        text = open_seal(envelope, ring, purpose="subject", fmt=fmt, place=place, open_legacy=True)
    except SealError:
        return None
    value = jsontext.decode(text, reserved=True)
    return None if isinstance(value, jsontext.Flaw) else value


def _path(text: str) -> Path:
    path = parse_pointer(text) if text.startswith("/") else parse_dotted(text)
    if path is None:
        raise ValueError(f"expected an RFC 6901 pointer or a dotted path, found {text!r}")
    return path
