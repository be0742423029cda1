"""Keys, their purposes, and what a key ring must be able to do (clauses H2.6, H2.11, X10)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, Protocol, final, get_args, runtime_checkable

from underseal.errors import SealError
from underseal.seal import entropy

Purpose = Literal["payload", "decision", "fingerprint", "master", "subject"]
KEY_PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
"""What a key may be for."""
HELD_PURPOSES: Final[tuple[Purpose, ...]] = ("payload", "decision", "fingerprint")
"""What held operations need keys for."""
PURPOSES: Final[tuple[Purpose, ...]] = (*HELD_PURPOSES, "master")
"""What a key ring keeps keys for. Keys of subjects are many, and are kept in a key store, under a master."""
SECRET_BYTES: Final = 32

_ID_BYTES = 16
_KEY_ID = re.compile(r"[!-~]{1,128}")
_MINTED_ID = re.compile(r"(payload|decision|fingerprint|master)-[0-9a-f]{32}")


@final
class Key:
    """A 256-bit key with an id and one purpose. Immutable; its secret is in no repr and cannot be pickled or
    copied.

    Parameters:
        id: opaque, 1 to 128 printable ASCII characters without a space; it stands in every seal.
        purpose: the one thing the key is for (H2.11).
        secret: 32 bytes.

    Raises:
        SealError: ``malformed``; the message names the part that is wrong and shows nothing of the secret.
    """

    __slots__ = ("_id", "_purpose", "_secret")

    def __init__(self, id: str, purpose: Purpose, secret: bytes) -> None:  # noqa: A002 - it is what it is
        if not isinstance(id, str) or not _KEY_ID.fullmatch(id):
            raise SealError("malformed", "a key id is 1 to 128 printable ASCII characters without a space")
        if purpose not in KEY_PURPOSES:
            raise SealError(
                "malformed", f"key {id}: the purpose must be one of {', '.join(KEY_PURPOSES)}", id
            )
        if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise SealError("malformed", f"key {id}: the secret must be {SECRET_BYTES} bytes", id)
        self._id: Final = id
        self._purpose: Final[Purpose] = purpose
        self._secret: Final = secret

    @property
    def id(self) -> str:
        """The key's id."""
        return self._id

    @property
    def purpose(self) -> Purpose:
        """What the key is for."""
        return self._purpose

    @property
    def secret(self) -> bytes:
        """The 32 bytes. Hand them to nothing but a cipher."""
        return self._secret

    def __repr__(self) -> str:
        return f"<Key {self._id}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        return (
            self._id == other._id
            and self._purpose == other._purpose
            and hmac.compare_digest(self._secret, other._secret)
        )

    def __hash__(self) -> int:
        return hash((self._id, self._purpose))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a key is never pickled or copied: hand on its ring, or its id")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a key is never pickled or copied: hand on its ring, or its id")


@dataclass(frozen=True, slots=True)
class Destroyed:
    """What a ring answers for a key that it destroyed: proof of an erasure, unlike ``None`` (X10)."""

    key_id: str
    purpose: Purpose


@runtime_checkable
class KeyRing(Protocol):
    """What Underseal asks of whatever keeps the keys. All calls are synchronous and may be made from any
    thread.

    A ring that cannot answer (an outage, a wrong directory) raises ``SealError`` with ``key-unavailable``; it
    never answers ``Destroyed`` for a key that it did not destroy (X10).
    """

    def active(self, purpose: Purpose) -> Key:
        """Return the key that seals now. Raises ``SealError`` ``key-unavailable`` if there is none."""
        ...

    def find(self, key_id: str) -> Key | Destroyed | None:
        """Return the key, ``Destroyed`` if this ring destroyed it, or ``None`` if it does not know it."""
        ...

    def live(self, purpose: Purpose) -> list[Key]:
        """Return every key that opens, the active one first, then from newer to older."""
        ...

    def key_ids(self, purpose: Purpose) -> list[str]:
        """Return the ids of ``live``, in the same order."""
        ...


def mint(purpose: Purpose) -> Key:
    """Make a new key: 32 random bytes under a random opaque id ``<purpose>-<32 hex digits>``."""
    key_id = f"{purpose}-{entropy.random_bytes(_ID_BYTES).hex()}"
    return Key(key_id, purpose, entropy.random_bytes(SECRET_BYTES))


def minted_purpose(key_id: str) -> Purpose | None:
    """Return the purpose that an id of our own making names, or ``None`` for any other string."""
    match = _MINTED_ID.fullmatch(key_id)
    return as_purpose(match[1]) if match else None


def as_purpose(text: str) -> Purpose:
    """Return ``text`` as a purpose.

    Raises:
        SealError: ``malformed``; it is none.
    """
    for purpose in PURPOSES:
        if purpose == text:
            return purpose
    raise SealError("malformed", f"no such key purpose; expected one of {', '.join(PURPOSES)}")


def no_active_key(purpose: Purpose, where: str, remedy: str) -> SealError:
    """Return the error of a ring that has no key for ``purpose``."""
    return SealError("key-unavailable", f"{where} holds no {purpose} key; {remedy}")


@final
class RestrictedRing:
    """A ring that shows only some purposes of another; the rest does not exist (H2.11). See ``restricted``."""

    def __init__(self, ring: KeyRing, purposes: Collection[Purpose]) -> None:
        unknown = set(purposes) - set(PURPOSES)
        if unknown:
            raise SealError("malformed", f"no such key purpose: {', '.join(sorted(unknown))}")
        self._ring = ring
        self._purposes = frozenset(purposes)

    def active(self, purpose: Purpose) -> Key:
        """Return the active key, if its purpose is shown."""
        if purpose not in self._purposes:
            raise no_active_key(purpose, "this restricted ring", "this process is not meant to have one")
        return self._ring.active(purpose)

    def find(self, key_id: str) -> Key | Destroyed | None:
        """Return what the ring finds, if its purpose is shown, else ``None``."""
        found = self._ring.find(key_id)
        return found if found is not None and found.purpose in self._purposes else None

    def live(self, purpose: Purpose) -> list[Key]:
        """Return the live keys, if their purpose is shown, else none."""
        return self._ring.live(purpose) if purpose in self._purposes else []

    def key_ids(self, purpose: Purpose) -> list[str]:
        """Return the ids of ``live``."""
        return [key.id for key in self.live(purpose)]

    def __repr__(self) -> str:
        return f"<RestrictedRing {', '.join(p for p in PURPOSES if p in self._purposes)}>"


def restricted(ring: KeyRing, purposes: Collection[Purpose]) -> RestrictedRing:
    """Return a view of ``ring`` that has only keys for ``purposes``.

    An approver's process needs ``{"decision"}``, a requester's ``{"payload", "fingerprint"}`` (H2.11). The
    view keeps honest code honest; what a process must not be able to open, do not give it the key file of.
    """
    return RestrictedRing(ring, purposes)
