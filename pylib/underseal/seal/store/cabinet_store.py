"""The one store of subject keys that the others are: what happens in which order, over any cabinet and any master.

Reading takes no lock: keys appear whole, fences and tombs outlive them, and what is kept outside counts first. What
changes a subject holds its drawer, and looks again once it has it. No call to a master is made meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from underseal.errors import KeyStoreError, SealError, SubjectErasingError
from underseal.seal.keys import Destroyed, Key
from underseal.seal.keys import mint as mint_key
from underseal.seal.store.cache import KeyCache
from underseal.seal.store.model import (
    Contents,
    KeyPlace,
    KeyState,
    Receipt,
    StoredKey,
    StoreRewrap,
    SubjectKey,
    SubjectState,
    demand_subject,
)
from underseal.seal.store.protocols import Cabinet, Master, Named


class CabinetKeyStore:
    """A ``KeyStore`` over a cabinet, with its fences in a second one (X12). ``KeyStore`` says what the methods do.

    Parameters:
        master: wraps and unwraps.
        cabinet: where the keys are.
        fences: where the fences and tombs are kept a second time, outside of what is backed up with the keys.
        cache: unwrapped keys; one of its own if None.
        derived: called with the subject once its keys are destroyed, to drop what was derived from them; each may be
            called again after a crash. If one raises there is no receipt yet.
    """

    def __init__(
        self,
        master: Master,
        cabinet: Cabinet,
        fences: Cabinet,
        *,
        cache: KeyCache | None = None,
        derived: Iterable[Callable[[str], object]] = (),
    ) -> None:
        self._master = master
        self._cabinet = cabinet
        self._fences = fences
        self._cache = KeyCache() if cache is None else cache
        self._derived = tuple(derived)
        self._first = threading.Lock()
        self._replayed = False

    def current(self, subject: str) -> SubjectKey | None:
        """Return the key that seals for ``subject`` now."""
        evictions = self._cache.evictions
        contents = self._look(subject)
        _demand_unfenced(subject, contents)
        return self._newest(contents, evictions)

    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        """Return a key of ``subject`` by its id."""
        evictions = self._cache.evictions
        contents = self._look(subject)
        for key in contents.live:
            if key.place.key_id == key_id:
                return self._unwrapped(key, evictions)
        gone = any(tomb.key_id == key_id for tomb in contents.doomed)
        return Destroyed(key_id, "subject") if gone else None

    def mint(self, subject: str, *, named: Named) -> SubjectKey:
        """Return the key that seals for ``subject`` now, minted if there is none."""
        evictions = self._cache.evictions
        contents = self._look(subject)
        _demand_unfenced(subject, contents)
        found = self._newest(contents, evictions)
        if found is not None:
            return found
        _demand_unnamed(subject, named)
        # The epoch is of the same look: after another, somebody else's first key would make this one a second.
        return self._add(subject, contents.next_epoch, named)

    def rotate(self, subject: str) -> SubjectKey:
        """Mint the next key of ``subject``."""
        contents = self._look(subject)
        _demand_unfenced(subject, contents)
        if not contents.live:
            raise KeyStoreError(f"subject {subject!r} has no key here to rotate; mint its first")
        return self._add(subject, contents.next_epoch, ())

    def rewrap(self, batch: int = 100) -> Iterator[StoreRewrap]:
        """Wrap what is under older masters under the active one."""
        if batch < 1:
            raise SealError("malformed", "a batch has at least one subject")
        self._demand_served()
        drawers, rewrapped = self._cabinet.drawers(), 0
        unopened: list[str] = []
        for number, drawer in enumerate(drawers):
            if number and number % batch == 0:
                yield StoreRewrap(number, len(drawers), rewrapped, tuple(unopened))
            subject = self._cabinet.subject_of(drawer)
            for key in self._due(subject) if subject is not None else ():
                done = self._rewrap(key)
                rewrapped += done is True
                unopened += [key.place.key_id] if done is None else []
        yield StoreRewrap(len(drawers), len(drawers), rewrapped, tuple(unopened))

    def destroy(self, subject: str) -> Receipt:
        """Destroy every key of ``subject``."""
        demand_subject(subject)
        self._demand_pair()
        with self._cabinet.hold(subject) as drawer:
            # Outside first: a backup of the store from before knows nothing of it, and once anybody has been told
            # that a key is destroyed, nothing may bring it back. Nobody mints while the drawer is held, or after.
            with self._fences.hold(subject) as outside:
                outside.fence()
                doomed = drawer.look().with_fences(outside.look()).doomed
                for tomb in doomed:
                    outside.bury(tomb)
            drawer.fence()
            for tomb in doomed:
                drawer.bury(tomb)
            drawer.clear()
            self._evict(subject)
            drawer.certify()
        return Receipt(subject, tuple(tomb.key_id for tomb in doomed))

    def was_destroyed(self, subject: str) -> bool:
        """Return whether this store had keys of ``subject`` and destroyed all of them."""
        contents = self._look(subject)
        return contents.state == "erased" and bool(contents.tombs)

    def subjects(self) -> Iterator[SubjectState]:
        """Return all subjects that ever had a key or a fence here."""
        self._demand_served()
        for drawer in self._cabinet.drawers():
            subject = self._cabinet.subject_of(drawer)
            if subject is not None:
                yield self._state(subject, self._look(subject))

    def replay(self) -> list[str]:
        """Carry through every destruction that is fenced outside and not done here; return the subjects (X12).

        Done before the first answer of a store, too. Call it after a restore under a running process: it serves no
        fenced key meanwhile, and this removes them.
        """
        self._demand_pair()
        replayed = []
        for drawer in self._fences.drawers():
            subject = None if self._cabinet.settled(drawer) else self._fences.subject_of(drawer)
            if subject is not None:
                self.destroy(subject)
                replayed.append(subject)
        return replayed

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a key store is never pickled or copied: make it again from its place and its master")

    def _look(self, subject: str) -> Contents:
        demand_subject(subject)
        self._demand_served()
        return self._cabinet.look(subject).with_fences(self._fences.look(subject))

    def _demand_served(self) -> None:
        """Nothing is answered before the fences outside have been replayed."""
        self._demand_pair()
        if not self._replayed:
            with self._first:
                if not self._replayed:
                    self.replay()
                    self._replayed = True

    def _demand_pair(self) -> None:
        if self._cabinet.identity() != self._fences.identity():
            raise KeyStoreError(
                f"expected {self._fences!r} to be the fences of {self._cabinet!r}, found those of another store"
            )

    def _newest(self, contents: Contents, evictions: int) -> SubjectKey | None:
        if not contents.live:
            return None
        newest = contents.live[-1]
        return SubjectKey(newest.place.subject, newest.place.epoch, self._unwrapped(newest, evictions))

    def _unwrapped(self, key: StoredKey, evictions: int) -> Key:
        known = self._cache.get(key.place)
        if known is not None:
            return known
        self._cabinet.secure(key.place.subject)
        unwrapped = self._master.unwrap(key.wrapped, key.place)
        self._cache.put(key.place, unwrapped, evictions)
        return unwrapped

    def _add(self, subject: str, epoch: int, named: Named) -> SubjectKey:
        key = mint_key("subject")
        _demand_unnamed_id(key.id, named)
        stored = self._wrapped(key, KeyPlace(subject, key.id, epoch))
        with self._cabinet.hold(subject) as drawer:
            _demand_unfenced(subject, drawer.look().with_fences(self._fences.look(subject)))
            # Losing is fine: then another process has made this epoch, and its key is the one to use.
            drawer.add(stored)
        found = self.current(subject)
        if found is None:
            raise KeyStoreError(
                f"the key that was minted for {subject!r} is not here; is the store being replaced?"
            )
        return found

    def _wrapped(self, key: Key, place: KeyPlace) -> StoredKey:
        """A wrapped key that is known to open again: a master that wraps and may not unwrap would lose it."""
        wrapped = self._master.wrap(key, place)
        if self._master.unwrap(wrapped, place) != key:
            raise KeyStoreError(
                "the master does not give back what it wrapped; nothing was kept", place.key_id
            )
        return StoredKey(place, wrapped)

    def _due(self, subject: str) -> list[StoredKey]:
        active = self._master.active_id()
        return [key for key in self._look(subject).live if self._master.holder(key.wrapped) != active]

    def _rewrap(self, key: StoredKey) -> bool | None:
        """True if done, False if it changed meanwhile, None if it does not open here."""
        try:
            unwrapped = self._master.unwrap(key.wrapped, key.place)
        except SealError:
            return None
        renewed, subject = self._wrapped(unwrapped, key.place), key.place.subject
        with self._cabinet.hold(subject) as drawer:
            if key not in drawer.look().with_fences(self._fences.look(subject)).live:
                return False
            drawer.replace(renewed)
        return True

    def _evict(self, subject: str) -> None:
        self._cache.evict(subject)
        for drop in self._derived:
            drop(subject)

    def _state(self, subject: str, contents: Contents) -> SubjectState:
        masters = {key.place.key_id: self._master.holder(key.wrapped) for key in contents.live}
        keys = (KeyState(tomb.epoch, tomb.key_id, masters.get(tomb.key_id)) for tomb in contents.doomed)
        return SubjectState(subject, contents.state, tuple(keys))


def _demand_unfenced(subject: str, contents: Contents) -> None:
    if contents.fenced:
        raise SubjectErasingError(subject)


def _demand_unnamed(subject: str, named: Named) -> None:
    if not callable(named) and len(named) > 0:
        raise KeyStoreError(
            f"stored envelopes name {len(named)} keys of subject {subject!r}, and none of them is here: this is not "
            "the store they were sealed with, or an old copy of it; nothing was minted"
        )


def _demand_unnamed_id(key_id: str, named: Named) -> None:
    if named(key_id) if callable(named) else key_id in named:
        raise KeyStoreError(
            f"the id {key_id} is named by stored envelopes already; nothing was minted", key_id
        )
