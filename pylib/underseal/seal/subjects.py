"""Keys of subjects, looked up by the ids that stand in envelopes; all of them before anything is opened (M14, X10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from underseal.errors import KeyUnavailableError, PayloadShreddedError, SealError
from underseal.seal.keys import Destroyed, Key
from underseal.seal.rings import MemoryKeyRing

Lookup: TypeAlias = Callable[[str], Key | Destroyed | None]
"""Key id → the key; ``Destroyed`` if the store destroyed it; None if it does not know it. Any ring's ``find``."""


def keys_for(key_ids: Iterable[str], lookup: Lookup, shredded: bool) -> MemoryKeyRing | SealError:
    """A ring with these keys, or why one is missing.

    Whatever ``lookup`` raises passes: nothing has been opened by then.

    Parameters:
        key_ids: as they stand in the envelopes.
        lookup: where keys are.
        shredded: whether the caller has proof that what has no key here was erased.
    """
    keys: list[Key] = []
    for key_id in sorted(set(key_ids)):
        found = lookup(key_id)
        if isinstance(found, Destroyed) and found.key_id == key_id:
            return PayloadShreddedError(key_id)
        if not isinstance(found, Key) or found.id != key_id or found.purpose != "subject":
            return PayloadShreddedError(key_id) if shredded else KeyUnavailableError(key_id)
        keys.append(found)
    return MemoryKeyRing(keys)
