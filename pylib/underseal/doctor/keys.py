"""Is every key that open operations need in the ring, and is the ring in order?"""

from __future__ import annotations

from collections.abc import Iterator

from underseal.doctor.look import CannotCheckError, Look
from underseal.doctor.model import Finding
from underseal.errors import KeyRingError
from underseal.foundation.steps import drive
from underseal.held.verbs import key_uses
from underseal.seal import HELD_PURPOSES, PURPOSES, Destroyed, FileKeyRing, KeyRing


def check_keys(look: Look, ring: KeyRing | None) -> Iterator[Finding]:
    """Keys of open rows are here under their purpose; keys that nothing needs any more are named."""
    if ring is None:
        raise CannotCheckError("it takes a key ring: --keyring or UNDERSEAL_KEYRING, or UNDERSEAL_KEYS")
    flaw = _flaw(ring)
    if flaw is not None:
        # one finding among the others: what else is wrong is looked at all the same
        yield Finding(
            "error", "keys", "ring-unusable", _name(ring), flaw, "as it says; nothing runs meanwhile"
        )
        return
    if isinstance(ring, FileKeyRing):
        for found in ring.findings():
            yield Finding("warning", "keys", "ring-untidy", str(ring.path), found, "as it says")
    uses = drive(look.connection, key_uses())
    for use in uses:
        key = ring.find(use.key_id)
        rows = f"{use.open_rows} {use.purpose} seals of open operations"
        if key is None:
            yield Finding(
                "error", "keys", "key-missing", use.key_id,
                f"expected key {use.key_id} in this ring, found none; it is needed for {rows}",
                "bring the key file back from a backup, or run doctor where the workers' ring is",
            )  # fmt: skip
        elif isinstance(key, Destroyed):
            yield Finding(
                "error", "keys", "key-destroyed", use.key_id,
                f"key {use.key_id} was destroyed, and {rows} can no longer be opened",
                "cancel these operations; their requesters request again",
            )  # fmt: skip
        elif key.purpose != use.purpose:
            yield Finding(
                "error", "keys", "key-purpose", use.key_id,
                f"expected key {use.key_id} to be for {use.purpose}, found it for {key.purpose}: no such seal opens",
                "find out who sealed with it; then cancel these operations",
            )  # fmt: skip
    yield from _retired(ring, {use.key_id: use.open_rows for use in uses})


def _flaw(ring: KeyRing) -> str | None:
    try:
        for purpose in PURPOSES:
            ring.key_ids(purpose)
    except KeyRingError as error:
        return str(error)
    return None


def _name(ring: KeyRing) -> str:
    return str(ring.path) if isinstance(ring, FileKeyRing) else type(ring).__name__


def _retired(ring: KeyRing, needed: dict[str, int]) -> Iterator[Finding]:
    for purpose in HELD_PURPOSES:
        live = ring.key_ids(purpose)
        if not live:
            yield Finding(
                "note", "keys", "no-active-key", purpose,
                f"this ring has no {purpose} key; what it takes one for cannot be done with it",
                "right for a ring that is restricted on purpose (docs/seal.md); else: underseal keys generate",
            )  # fmt: skip
        for key_id in live[1:]:
            if key_id in needed:
                yield Finding(
                    "note", "keys", "rewrap-due", key_id,
                    f"{needed[key_id]} seals of open operations are still under the retired key {key_id}",
                    "run: underseal keys rewrap",
                )  # fmt: skip
            else:
                yield Finding(
                    "note", "keys", "key-unneeded", key_id,
                    f"no open operation needs the retired key {key_id} here",
                    f"where no other database needs it: underseal keys destroy {key_id}",
                )  # fmt: skip
