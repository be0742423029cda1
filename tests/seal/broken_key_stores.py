"""Key stores with one fault each, beside the test of the suite that must find it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.seal.key_store_harness import MemoryHarness, RingMasters
from underseal.errors import KeyStoreError, SealError, SubjectErasingError
from underseal.seal import Destroyed, Key
from underseal.seal.keys import mint
from underseal.seal.store import KeyStore, MemoryCabinet, MemoryKeyStore, Receipt, StoreRewrap, SubjectKey
from underseal.seal.store.model import Contents
from underseal.seal.store.protocols import Named


class Broken(MemoryKeyStore):
    """The base of all: nothing wrong yet."""


class ErasesUnknown(Broken):
    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        return super().find(key_id, subject) or Destroyed(key_id, "subject")


class MintsAlways(Broken):
    def mint(self, subject: str, *, named: Named) -> SubjectKey:
        return self.rotate(subject) if self.current(subject) else super().mint(subject, named=named)


class MintsWhatIsNamed(Broken):
    def mint(self, subject: str, *, named: Named) -> SubjectKey:
        return super().mint(subject, named=())


class ForgetsOlderEpochs(Broken):
    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        current = self.current(subject)
        return super().find(key_id, subject) if current and current.key_id == key_id else None


class RotatesToTheSameKey(Broken):
    def rotate(self, subject: str) -> SubjectKey:
        return SubjectKey(subject, 2, mint("subject"))


class IgnoresTheSubject(Broken):
    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        for other in self.subjects():
            found = super().find(key_id, other.subject)
            if found is not None:
                return found
        return None


class TakesAnySubject(Broken):
    def current(self, subject: str) -> SubjectKey | None:
        return super().current(subject) if subject else None


class RewrapsNothing(Broken):
    def rewrap(self, batch: int = 100) -> Iterator[StoreRewrap]:
        yield from ()


class RewrapsAtTheEnd(Broken):
    """Tells of every batch, and does the work when all has been told."""

    def rewrap(self, batch: int = 100) -> Iterator[StoreRewrap]:
        told = list(super().rewrap(batch))
        yield from (StoreRewrap(one.subjects, one.of, told[-1].rewrapped, ()) for one in told)


class LosesKeysForAMoment(Broken):
    """For as long as it takes that somebody looks."""

    missed = threading.Event()

    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        found = super().find(key_id, subject)
        if found is None:
            self.missed.set()
        return found

    def _rewrap(self, key: Any) -> bool | None:
        with self._cabinet.hold(key.place.subject) as drawer:
            drawer.clear()
        self.missed.wait(10)
        with self._cabinet.hold(key.place.subject) as drawer:
            drawer.add(self._wrapped(self._master.unwrap(key.wrapped, key.place), key.place))
        return True


class DropsWhatDoesNotOpen(Broken):
    def _rewrap(self, key: Any) -> bool | None:
        done = super()._rewrap(key)
        if done is None:
            with self._cabinet.hold(key.place.subject) as drawer:
                drawer.clear()
        return done


class LeavesNoTomb(Broken):
    def destroy(self, subject: str) -> Receipt:
        receipt = super().destroy(subject)
        self._cabinet._kept[subject] = Contents()  # type: ignore[attr-defined]
        self._fences._kept[subject] = Contents()  # type: ignore[attr-defined]
        return receipt


class LiftsTheFence(Broken):
    def current(self, subject: str) -> SubjectKey | None:
        try:
            return super().current(subject)
        except SubjectErasingError:
            return None


class DestroysOnce(Broken):
    def destroy(self, subject: str) -> Receipt:
        return Receipt(subject, ()) if self.was_destroyed(subject) else super().destroy(subject)


class TakesAFenceForAnErasure(Broken):
    def was_destroyed(self, subject: str) -> bool:
        return self._look(subject).fenced


class ServesFromItsCache(Broken):
    served: dict[str, Key]

    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        self.served = getattr(self, "served", {})
        found = self.served.get(key_id) or super().find(key_id, subject)
        if isinstance(found, Key):
            self.served[key_id] = found
        return found


class MintsWhileItDestroys(Broken):
    """A mint knows of no fence, and a destruction of no key that was made before it."""

    def mint(self, subject: str, *, named: Named) -> SubjectKey:
        try:
            return super().mint(subject, named=named)
        except SubjectErasingError:
            return SubjectKey(subject, 1, mint("subject"))

    def destroy(self, subject: str) -> Receipt:
        super().destroy(subject)
        return Receipt(subject, ())


class KnowsOfEverySubject(Broken):
    def was_destroyed(self, subject: str) -> bool:
        return not self._look(subject).live


class EmptyWhenAway(Broken):
    def __init__(self, master: Any, cabinet: Any = None, **more: Any) -> None:
        try:
            if cabinet is not None:
                cabinet.identity()
        except SealError:
            cabinet, more = MemoryCabinet(), {}
        super().__init__(master, cabinet, **more)


class ErasesWithItsMaster(Broken):
    def find(self, key_id: str, subject: str) -> Key | Destroyed | None:
        try:
            return super().find(key_id, subject)
        except SealError:
            return Destroyed(key_id, "subject")


class ForgetsItsFences(Broken):
    def __init__(self, master: Any, cabinet: MemoryCabinet | None = None, **_: Any) -> None:
        super().__init__(master, cabinet)


class ShowsItsKeys(Broken):
    def __repr__(self) -> str:
        return repr(
            [self.find(key.key_id, one.subject) for one in self.subjects() for key in one.keys]
        ) + repr([found.secret.hex() for found in self._cache_of()])

    def _cache_of(self) -> list[Key]:
        return [key for _, key in self._cache._keys.values()]


class BrokenHarness(MemoryHarness):
    """The harness in memory, over stores with a fault."""

    def __init__(self, store: type[Broken]) -> None:
        super().__init__(RingMasters())
        self._store = store

    def open(self) -> KeyStore:
        return self._store(self.masters.now(), self.cabinet, fences=self.fences)

    def elsewhere(self) -> KeyStore:
        return self._store(self.masters.now())

    def unreachable(self) -> KeyStore:
        return self._store(self.masters.now(), _away(), fences=self.fences)

    def masterless(self) -> KeyStore:
        return self._store(self.masters.another(), self.cabinet, fences=self.fences)


def _away() -> MemoryCabinet:
    cabinet = MemoryCabinet()

    def refuse() -> str:
        raise KeyStoreError("it is away")

    cabinet.identity = refuse  # type: ignore[method-assign]
    return cabinet


_FAULTS: list[tuple[type[Broken], str]] = [
    (ErasesUnknown, "test_an_unknown_subject_has_no_key_and_was_not_destroyed"),
    (MintsAlways, "test_a_minted_key_is_the_subject_s_for_everybody"),
    (MintsAlways, "test_all_who_mint_at_once_get_one_key"),
    (MintsWhatIsNamed, "test_a_subject_that_envelopes_name_keys_of_gets_no_other"),
    (ForgetsOlderEpochs, "test_a_rotation_makes_the_next_key_and_the_older_ones_open"),
    (RotatesToTheSameKey, "test_rotations_at_once_leave_one_order_of_keys"),
    (IgnoresTheSubject, "test_a_key_is_one_subject_s_alone"),
    (TakesAnySubject, "test_what_is_no_subject_is_refused"),
    (RewrapsNothing, "test_a_rewrap_leaves_nothing_under_older_masters"),
    (RewrapsAtTheEnd, "test_a_rewrap_that_was_stopped_goes_on_where_it_was"),
    (LosesKeysForAMoment, "test_a_master_is_rotated_while_others_read"),
    (DropsWhatDoesNotOpen, "test_a_rewrap_lists_what_does_not_open_and_leaves_it"),
    (LeavesNoTomb, "test_a_destroyed_subject_is_told_from_every_other"),
    (LiftsTheFence, "test_a_destroyed_subject_gets_no_key_again"),
    (DestroysOnce, "test_a_destruction_can_be_repeated"),
    (TakesAFenceForAnErasure, "test_a_store_without_a_key_proves_no_erasure"),
    (ServesFromItsCache, "test_a_destruction_counts_at_once_for_who_has_just_read"),
    (MintsWhileItDestroys, "test_a_mint_and_a_destruction_at_once_leave_no_key"),
    (KnowsOfEverySubject, "test_another_store_knows_nothing"),
    (EmptyWhenAway, "test_a_store_that_is_away_is_no_erasure"),
    (ErasesWithItsMaster, "test_a_master_that_is_away_is_no_erasure"),
    (ForgetsItsFences, "test_a_restored_backup_brings_no_destroyed_key_back"),
    (MintsWhatIsNamed, "test_what_an_older_backup_does_not_know_is_unknown_and_not_minted_anew"),
    (ShowsItsKeys, "test_nothing_shows_a_key"),
]

BROKEN_KEY_STORES: list[tuple[Callable[[], BrokenHarness], str]] = [
    (lambda store=store: BrokenHarness(store), test)  # type: ignore[misc]
    for store, test in _FAULTS
]
