"""The cache of unwrapped keys: bounded, short-lived, and empty of what was destroyed (DESIGN 6)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.seal.key_store_harness import FileHarness, RingMasters
from underseal.errors import KeyStoreError
from underseal.seal import Key, MemoryKeyRing
from underseal.seal.keys import mint
from underseal.seal.store import (
    FileKeyStore,
    KeyCache,
    KeyPlace,
    MemoryCabinet,
    MemoryKeyStore,
    RingMaster,
    Wrapped,
)


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def entry(number: int, subject: str = "a") -> tuple[KeyPlace, Key]:
    key = mint("subject")
    return KeyPlace(subject, key.id, number), key


def test_a_cached_key_is_forgotten_after_its_time() -> None:
    clock = Clock()
    cache = KeyCache(seconds=10, clock=clock)
    place, key = entry(1)
    cache.put(place, key, cache.evictions)
    clock.now = 9.9
    assert cache.get(place) == key
    clock.now = 10.0
    assert cache.get(place) is None
    assert (len(cache), cache._keys) == (0, {})


def test_reading_a_cached_key_does_not_prolong_it() -> None:
    clock = Clock()
    cache = KeyCache(seconds=10, clock=clock)
    place, key = entry(1)
    cache.put(place, key, cache.evictions)
    for clock.now in (4.0, 8.0):
        assert cache.get(place) == key
    clock.now = 11.0
    assert cache.get(place) is None


def test_a_cache_without_time_keeps_nothing() -> None:
    cache = KeyCache(seconds=0)
    place, key = entry(1)
    cache.put(place, key, cache.evictions)
    assert (cache.get(place), len(cache)) == (None, 0)


def test_a_full_cache_forgets_what_was_not_used_for_longest() -> None:
    cache = KeyCache(limit=2)
    (one, first), (two, second), (three, third) = (entry(number) for number in (1, 2, 3))
    cache.put(one, first, cache.evictions)
    cache.put(two, second, cache.evictions)
    assert cache.get(one) == first
    cache.put(three, third, cache.evictions)
    assert [cache.get(place) for place in (one, two, three)] == [first, None, third]


@pytest.mark.clause("X12")
def test_an_eviction_takes_one_subject_s_keys_and_what_was_being_read() -> None:
    cache = KeyCache()
    (one, first), (other, second) = entry(1), entry(1, "b")
    before = cache.evictions
    cache.put(one, first, before)
    cache.put(other, second, before)
    cache.evict("a")
    assert (cache.get(one), cache.get(other)) == (None, second)
    # It was unwrapped before the eviction and comes after it.
    cache.put(one, first, before)
    assert cache.get(one) is None


def test_a_cache_shows_no_key_and_is_not_pickled() -> None:
    cache = KeyCache()
    place, key = entry(1)
    cache.put(place, key, cache.evictions)
    assert repr(cache) == "<KeyCache of at most 1000 keys for 60 s>"
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(cache)


@pytest.mark.clause("X12")
def test_a_destruction_evicts_and_drops_what_was_derived_before_its_receipt(tmp_path: Path) -> None:
    house = FileHarness(tmp_path, RingMasters())
    seen: list[tuple[str, int, list[str]]] = []
    cache = KeyCache()

    def dropped(subject: str) -> None:
        names = sorted(path.name.rpartition(".")[2] for path in house.keys.glob("*/*"))
        seen.append((subject, len(cache), names))

    store = FileKeyStore(house.keys, house.masters.now(), fences=house.fences, cache=cache, derived=[dropped])
    store.mint("a", named=())
    assert len(cache) == 1
    store.destroy("a")
    assert seen == [("a", 0, ["destroyed", "fence"])]


@pytest.mark.clause("X10")
def test_what_cannot_be_dropped_gets_no_receipt_until_it_can(tmp_path: Path) -> None:
    house = FileHarness(tmp_path, RingMasters())
    made = house.open().mint("a", named=())
    fails = [False, True]

    def drop(_: str) -> None:
        if fails.pop():
            raise ValueError("not now")

    store = FileKeyStore(house.keys, house.masters.now(), fences=house.fences, derived=[drop])
    with pytest.raises(ValueError, match="not now"):
        store.destroy("a")
    assert list(house.keys.glob("*/receipt")) == []
    assert store.destroy("a").key_ids == (made.key_id,)
    assert store.was_destroyed("a") is True


class _Faulty(RingMaster):
    """A master that gives another key back than it wrapped, or none."""

    def __init__(self, ring: MemoryKeyRing, gives: Key | None) -> None:
        super().__init__(ring)
        self.gives = gives

    def unwrap(self, wrapped: Wrapped, place: KeyPlace) -> Key:
        if self.gives is None:
            raise KeyStoreError("it may not unwrap")
        return self.gives


@pytest.mark.clause("X8")
@pytest.mark.parametrize("gives", [None, mint("subject")], ids=["nothing", "another key"])
def test_a_master_that_does_not_give_a_key_back_is_given_none(gives: Key | None) -> None:
    ring, cabinet = MemoryKeyRing(), MemoryCabinet()
    ring.generate("master")
    store = MemoryKeyStore(_Faulty(ring, gives), cabinet)
    with pytest.raises(KeyStoreError):
        store.mint("a", named=())
    assert MemoryKeyStore(RingMaster(ring), cabinet).current("a") is None
