"""What a store of subject keys must do, and the two things ours is made of: a master and a place to keep keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, runtime_checkable

from underseal.seal.keys import Destroyed, Key
from underseal.seal.store.model import (
    Contents,
    KeyPlace,
    Receipt,
    StoredKey,
    StoreRewrap,
    SubjectKey,
    SubjectState,
    Tomb,
    Wrapped,
)

Named: TypeAlias = Collection[str] | Callable[[str], bool]
"""The key ids that stored envelopes name: those of one subject, or a predicate over any id (X11)."""


@runtime_checkable
class KeyStore(Protocol):
    """Where the keys of subjects are, outside the log's database (X1). Calls may block, and may come from any thread.

    Raises, in every method:
        KeyStoreError: ``key-unavailable``; the store cannot answer: missing, damaged, another's, or its master does
            not open. Never an erasure (X10).
        SealError: ``malformed``; the subject is none (``demand_subject``).
    """

    def current(self, subject: str) -> SubjectKey | None:
        """Return the key that seals for ``subject`` now, its newest, or ``None`` if it has none yet.

        Raises:
            SubjectErasingError: the subject is being erased, or was (X2).
        """
        ...

    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        """Return that key of ``subject``; ``Destroyed`` if this store destroyed it; ``None`` if it does not know it."""
        ...

    def mint(self, subject: str, *, named: Named) -> SubjectKey:
        """Return the key that seals for ``subject`` now, minted if there is none; all who do so get one key (X11).

        Parameters:
            subject: whose.
            named: what stored envelopes name. A subject for which they name a key that is not here gets no other; an
                id for which a predicate is true is not minted.

        Raises:
            SubjectErasingError: the subject is being erased, or was (X2).
            KeyStoreError: envelopes name keys of the subject, and none is here: this is not the store they were
                sealed with, or an old copy of it.
        """
        ...

    def rotate(self, subject: str) -> SubjectKey:
        """Mint the next key of ``subject`` and return it; its older ones still open (X8).

        Calls at the same moment make one rotation.

        Raises:
            SubjectErasingError: the subject is being erased, or was (X2).
            KeyStoreError: the subject has no key yet; mint one.
        """
        ...

    def rewrap(self, batch: int = 100) -> Iterator[StoreRewrap]:
        """Wrap what is under older masters under the active one; tell after each ``batch`` of subjects, and at the end.

        It can be stopped anywhere and begun again (X8). Keys that do not open here stay as they are and are listed.
        """
        ...

    def destroy(self, subject: str) -> Receipt:
        """Destroy every key of ``subject``, for good. After a crash, call it again (X2).

        Returns:
            the receipt; with no key ids if this store had no key of the subject, which is no erasure (X4).
        """
        ...

    def was_destroyed(self, subject: str) -> bool:
        """Return whether this store had keys of ``subject`` and destroyed all of them (X4)."""
        ...

    def subjects(self) -> Iterator[SubjectState]:
        """Return all subjects that ever had a key or a fence here, in no order that means anything."""
        ...


@runtime_checkable
class Master(Protocol):
    """What wraps the keys of subjects. Calls may block, and may come from any thread.

    Raises, in every method:
        SealError: ``key-unavailable``; nothing is chained to it, and it holds nothing of a key.
    """

    def active_id(self) -> str:
        """Return the id of the master key that wraps now."""
        ...

    def holder(self, wrapped: Wrapped) -> str:
        """Return the id of the master key that ``wrapped`` says it is under. Proves nothing, and never raises."""
        ...

    def wrap(self, key: Key, place: KeyPlace) -> Wrapped:
        """Wrap a subject's key for one place under the active master key."""
        ...

    def unwrap(self, wrapped: Wrapped, place: KeyPlace) -> Key:
        """Return the key that was wrapped for ``place``, under whichever master key."""
        ...


class Drawer(Protocol):
    """What is kept of one subject, while nobody else changes it. Each change is there, on disk, or not made."""

    def look(self) -> Contents:
        """Return what is here."""
        ...

    def add(self, key: StoredKey) -> bool:
        """Keep a key; False if its epoch is taken."""
        ...

    def replace(self, key: StoredKey) -> None:
        """Keep a key in the place of the one with its epoch."""
        ...

    def fence(self) -> None:
        """Keep the subject from getting keys."""
        ...

    def bury(self, tomb: Tomb) -> None:
        """Remember that a key is destroyed."""
        ...

    def clear(self) -> None:
        """Remove every key, and every copy of one that a process left which died."""
        ...

    def certify(self) -> None:
        """Remember that the destruction was carried through."""
        ...


class Cabinet(Protocol):
    """A place for many subjects. What cannot be read raises ``KeyStoreError``, and is never taken for empty (X10)."""

    def identity(self) -> str:
        """Return the random id that the place was given when it was made, and again after a restore."""
        ...

    def look(self, subject: str) -> Contents:
        """Return what is kept of a subject."""
        ...

    def hold(self, subject: str) -> AbstractContextManager[Drawer]:
        """Change what is kept of a subject, one at a time among all threads and processes."""
        ...

    def secure(self, subject: str) -> None:
        """Return once whatever ``look`` has shown of a subject would outlast a loss of power."""
        ...

    def drawers(self) -> list[str]:
        """Return a name for every subject of which something is kept."""
        ...

    def subject_of(self, drawer: str) -> str | None:
        """Return the subject that such a name stands for; None if nothing is there yet, or any more."""
        ...

    def settled(self, drawer: str) -> bool:
        """Return whether a destruction was carried through there and no key has come back."""
        ...
