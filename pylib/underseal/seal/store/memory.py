"""The store in memory: for tests, and for what lives no longer than its process (X9)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from underseal.seal import entropy
from underseal.seal.store.cabinet_store import CabinetKeyStore
from underseal.seal.store.cache import KeyCache
from underseal.seal.store.model import Contents, StoredKey, Tomb
from underseal.seal.store.protocols import Master


class MemoryCabinet:
    """Wrapped keys in a dictionary. Several stores may be over one, as several processes are over one directory.

    Parameters:
        identity: of which store it is; a new one if None.
    """

    def __init__(self, identity: str | None = None) -> None:
        self._identity = entropy.random_bytes(16).hex() if identity is None else identity
        self._lock = threading.RLock()
        self._kept: dict[str, Contents] = {}

    def copy(self) -> MemoryCabinet:
        """Return a backup."""
        made = MemoryCabinet(self._identity)
        with self._lock:
            made._kept = dict(self._kept)
        return made

    def identity(self) -> str:
        """Return the id of the store."""
        return self._identity

    def look(self, subject: str) -> Contents:
        """Return what is kept of a subject."""
        return self._kept.get(subject, Contents())

    @contextmanager
    def hold(self, subject: str) -> Iterator[MemoryDrawer]:
        """Change what is kept of a subject, one at a time."""
        with self._lock:
            yield MemoryDrawer(self._kept, subject)

    def secure(self, subject: str) -> None:
        """Do nothing: memory outlasts no loss of power."""

    def drawers(self) -> list[str]:
        """Return the subjects."""
        return list(self._kept)

    def subject_of(self, drawer: str) -> str:
        """Return the subject: it is its own name."""
        return drawer

    def settled(self, drawer: str) -> bool:
        """Return whether a destruction was carried through there and no key has come back."""
        contents = self.look(drawer)
        return contents.certified and not contents.keys

    def __repr__(self) -> str:
        return f"<MemoryCabinet {self._identity}>"


class MemoryDrawer:
    """One subject of a ``MemoryCabinet``, while its lock is held."""

    def __init__(self, kept: dict[str, Contents], subject: str) -> None:
        self._kept = kept
        self._subject = subject

    def look(self) -> Contents:
        """Return what is here."""
        return self._kept.get(self._subject, Contents())

    def add(self, key: StoredKey) -> bool:
        """Keep a key; False if its epoch is taken."""
        if any(tomb.epoch == key.place.epoch for tomb in self.look().doomed):
            return False
        self._set(keys=(*self.look().keys, key))
        return True

    def replace(self, key: StoredKey) -> None:
        """Keep a key in the place of the one with its epoch."""
        keys = (key if kept.place.epoch == key.place.epoch else kept for kept in self.look().keys)
        self._set(keys=tuple(keys))

    def fence(self) -> None:
        """Keep the subject from getting keys."""
        self._set(fenced=True)

    def bury(self, tomb: Tomb) -> None:
        """Remember that a key is destroyed."""
        self._set(tombs=self.look().tombs | {tomb})

    def clear(self) -> None:
        """Remove every key."""
        self._set(keys=())

    def certify(self) -> None:
        """Remember that the destruction was carried through."""
        self._set(certified=True)

    def _set(self, **changes: object) -> None:
        self._kept[self._subject] = replace(self.look(), **changes)  # type: ignore[arg-type]


class MemoryKeyStore(CabinetKeyStore):
    """A key store that ends with its process.

    Parameters:
        master: wraps and unwraps.
        cabinet: where the keys are; a new one if None.
        fences: the fences that belong to ``cabinet``; new ones if None.
        cache: unwrapped keys; one of its own if None.
        derived: as of ``CabinetKeyStore``.
    """

    def __init__(
        self,
        master: Master,
        cabinet: MemoryCabinet | None = None,
        *,
        fences: MemoryCabinet | None = None,
        cache: KeyCache | None = None,
        derived: Iterable[Callable[[str], object]] = (),
    ) -> None:
        kept = MemoryCabinet() if cabinet is None else cabinet
        outside = MemoryCabinet(kept.identity()) if fences is None else fences
        super().__init__(master, kept, outside, cache=cache, derived=derived)

    def __repr__(self) -> str:
        return f"<MemoryKeyStore {self._cabinet.identity()}>"
