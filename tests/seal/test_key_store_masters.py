"""Masters of a ring: any ring will do, and whatever becomes of a master is no erasure of a subject (X8, X10)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from underseal.errors import KeyStoreError, SealError
from underseal.seal import (
    PURPOSES,
    Destroyed,
    EnvKeyRing,
    FileKeyRing,
    Key,
    KeyRing,
    MemoryKeyRing,
    environment_text,
    restricted,
)
from underseal.seal.store import MemoryCabinet, MemoryKeyStore, RingMaster


@pytest.fixture
def ring() -> MemoryKeyRing:
    return MemoryKeyRing.with_all()


@pytest.fixture
def cabinet() -> MemoryCabinet:
    return MemoryCabinet()


def unavailable(act: Callable[[], object]) -> str:
    with pytest.raises(SealError) as caught:
        act()
    assert (caught.value.reason, caught.value.__context__) == ("key-unavailable", None)
    return str(caught.value)


@pytest.mark.clause("X9")
def test_any_ring_can_be_the_master(
    ring: MemoryKeyRing, cabinet: MemoryCabinet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = MemoryCabinet(cabinet.identity())
    made = MemoryKeyStore(RingMaster(ring), cabinet, fences=fences).mint("a", named=())
    monkeypatch.setenv("MASTERS", environment_text(ring, {"master"}))
    rings: list[KeyRing] = [restricted(ring, {"master"}), EnvKeyRing("MASTERS")]
    for one in rings:
        store = MemoryKeyStore(RingMaster(one), cabinet, fences=fences)
        assert store.find(made.key_id, "a") == made.key
    on_disk = FileKeyRing(tmp_path / "ring")
    first = on_disk.generate("master")
    store = MemoryKeyStore(RingMaster(on_disk))
    late = store.mint("a", named=())
    assert on_disk.rotate("master") != first
    assert [found.master for subject in store.subjects() for found in subject.keys] == [first.id]
    assert store.rotate("a").epoch == 2
    assert store.find(late.key_id, "a") == late.key


@pytest.mark.clause("H2.11a", "X10")
def test_a_ring_without_a_master_is_no_erasure(ring: MemoryKeyRing, cabinet: MemoryCabinet) -> None:
    fences = MemoryCabinet(cabinet.identity())
    made = MemoryKeyStore(RingMaster(ring), cabinet, fences=fences).mint("a", named=())
    others = restricted(ring, set(PURPOSES) - {"master"})
    store = MemoryKeyStore(RingMaster(others), cabinet, fences=fences)
    assert "does not unwrap" in unavailable(lambda: store.find(made.key_id, "a"))
    assert "no master key" in unavailable(lambda: store.mint("b", named=()))
    assert "no master key" in unavailable(lambda: list(store.rewrap()))
    assert store.was_destroyed("a") is False


@pytest.mark.clause("X10")
def test_a_master_that_was_destroyed_is_no_erasure_of_a_subject(
    ring: MemoryKeyRing, cabinet: MemoryCabinet
) -> None:
    fences = MemoryCabinet(cabinet.identity())
    made = MemoryKeyStore(RingMaster(ring), cabinet, fences=fences).mint("a", named=())
    old = ring.active("master")
    ring.rotate("master")
    ring.destroy(old.id)
    store = MemoryKeyStore(RingMaster(ring), cabinet, fences=fences)
    said = unavailable(lambda: store.find(made.key_id, "a"))
    assert old.id in said
    assert isinstance(ring.find(old.id), Destroyed)
    assert store.was_destroyed("a") is False
    *_, end = store.rewrap()
    assert end.unopened == (made.key_id,)


@pytest.mark.clause("X10")
def test_a_master_of_the_same_name_and_another_secret_does_not_open(ring: MemoryKeyRing) -> None:
    cabinet = MemoryCabinet()
    fences = MemoryCabinet(cabinet.identity())
    made = MemoryKeyStore(RingMaster(ring), cabinet, fences=fences).mint("a", named=())
    forged = MemoryKeyRing([Key(ring.active("master").id, "master", bytes(32))])
    store = MemoryKeyStore(RingMaster(forged), cabinet, fences=fences)
    assert "does not unwrap" in unavailable(lambda: store.find(made.key_id, "a"))


def test_a_master_shows_ids_alone(ring: MemoryKeyRing) -> None:
    master = RingMaster(ring)
    assert repr(master) == "<RingMaster over <RestrictedRing master>>"
    assert master.holder({}) == "unknown"


def test_neither_a_store_nor_a_master_is_copied(ring: MemoryKeyRing) -> None:
    master = RingMaster(ring)
    for one in (MemoryKeyStore(master), master):
        with pytest.raises(TypeError, match="never pickled or copied"):
            copy.copy(one)


def test_a_batch_has_at_least_one_subject(ring: MemoryKeyRing) -> None:
    with pytest.raises(SealError, match="at least one subject"):
        list(MemoryKeyStore(RingMaster(ring)).rewrap(0))


@pytest.mark.clause("X12")
def test_a_memory_store_under_the_fences_of_another_is_refused(ring: MemoryKeyRing) -> None:
    store = MemoryKeyStore(RingMaster(ring), MemoryCabinet(), fences=MemoryCabinet())
    with pytest.raises(KeyStoreError, match="found those of another store"):
        store.current("a")


@pytest.mark.clause("X11")
def test_an_epoch_in_memory_is_taken_once(ring: MemoryKeyRing, cabinet: MemoryCabinet) -> None:
    MemoryKeyStore(RingMaster(ring), cabinet).mint("a", named=())
    with cabinet.hold("a") as drawer:
        (first,) = drawer.look().keys
        assert drawer.add(first) is False
        assert drawer.look().keys == (first,)
