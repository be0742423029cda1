"""The masters of a key ring: its active ``master`` key wraps, all of them open (docs/formats.md, ``key-wrap-v1``)."""

from __future__ import annotations

from typing import Final, NoReturn

from underseal.errors import KeyStoreError, SealError
from underseal.seal.envelope import key_id_of, open_seal, seal
from underseal.seal.formats import KEY_WRAP
from underseal.seal.keys import SECRET_BYTES, Key, KeyRing, restricted
from underseal.seal.store.model import KeyPlace, Wrapped

_UNKNOWN: Final = "unknown"


class RingMaster:
    """Wraps keys of subjects under the ``master`` keys of a ring, and looks at no others of it.

    Parameters:
        ring: any key ring; every call asks it, so a rotation counts at once.
    """

    def __init__(self, ring: KeyRing) -> None:
        self._ring = restricted(ring, {"master"})

    def active_id(self) -> str:
        """Return the id of the ring's active master key. Raises ``SealError`` ``key-unavailable`` without one."""
        return self._ring.active("master").id

    def holder(self, wrapped: Wrapped) -> str:
        """Return the id of the master key that the envelope names."""
        return key_id_of(wrapped) or _UNKNOWN

    def wrap(self, key: Key, place: KeyPlace) -> Wrapped:
        """Return the envelope of ``key`` at ``place``. Raises ``SealError`` ``key-unavailable`` without a master."""
        master = self._ring.active("master")
        return seal(key.secret, master, fmt=KEY_WRAP, place=place.elements, origin=place.key_id)

    def unwrap(self, wrapped: Wrapped, place: KeyPlace) -> Key:
        """Return the key in an envelope.

        Raises:
            KeyStoreError: its master is not in the ring, was destroyed there, or did not wrap it for this place. A
                master's end is no proof of a subject's erasure (X10).
        """
        found = self._unwrapped(wrapped, place)
        if isinstance(found, str):
            raise KeyStoreError(f"a subject's key does not unwrap: {found}", place.key_id)
        return found

    def _unwrapped(self, wrapped: Wrapped, place: KeyPlace) -> Key | str:
        try:
            secret = open_seal(wrapped, self._ring, purpose="master", fmt=KEY_WRAP, place=place.elements)
        except SealError as error:
            return str(error)
        if len(secret) != SECRET_BYTES:
            return f"expected {SECRET_BYTES} bytes under master {self.holder(wrapped)}, found {len(secret)}"
        return Key(place.key_id, "subject", secret)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a master is never pickled or copied: make it again from its ring")

    def __repr__(self) -> str:
        return f"<RingMaster over {self._ring!r}>"
