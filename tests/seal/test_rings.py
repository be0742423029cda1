"""What every ring that mints keys promises; the same tests for the one in memory and the one on disk (X9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from underseal.seal import (
    PURPOSES,
    Destroyed,
    FileKeyRing,
    Key,
    KeyRing,
    KeyRingError,
    MemoryKeyRing,
    SealError,
)

Ring = MemoryKeyRing | FileKeyRing


@pytest.fixture(params=["memory", "files"])
def ring(request: pytest.FixtureRequest, tmp_path: Path) -> Ring:
    if request.param == "memory":
        return MemoryKeyRing()
    ring = FileKeyRing(tmp_path / "ring")
    ring.generate("fingerprint")
    return ring


@pytest.mark.clause("X9", "X10")
def test_a_ring_without_a_key_for_a_purpose_says_what_to_do(ring: Ring) -> None:
    assert isinstance(ring, KeyRing)
    with pytest.raises(SealError, match=r"holds no payload key; .*generate") as caught:
        ring.active("payload")
    assert caught.value.reason == "key-unavailable"
    assert ring.live("payload") == ring.key_ids("payload") == []


@pytest.mark.clause("X11")
def test_generating_again_gives_the_same_key(ring: Ring) -> None:
    key = ring.generate("payload")
    assert ring.generate("payload") == key == ring.active("payload")
    assert ring.key_ids("payload") == [key.id]


@pytest.mark.clause("H2.6a", "H2.6b", "X8")
def test_rotation_puts_a_new_key_in_front_and_keeps_the_old_ones(ring: Ring) -> None:
    keys = [ring.rotate("payload") for _ in range(3)]
    assert ring.active("payload") == keys[2]
    assert ring.live("payload") == keys[::-1]
    assert ring.key_ids("payload") == [key.id for key in keys[::-1]]
    assert [ring.find(key.id) for key in keys] == keys
    assert len({key.secret for key in keys}) == 3


def test_purposes_are_apart(ring: Ring) -> None:
    keys = {purpose: ring.generate(purpose) for purpose in PURPOSES}
    ring.rotate("payload")
    assert ring.live("decision") == [keys["decision"]]
    assert ring.active("fingerprint") == keys["fingerprint"]


@pytest.mark.clause("H2.6d", "X9", "X10")
def test_a_destroyed_key_is_destroyed_and_an_unknown_one_unknown(ring: Ring) -> None:
    old = ring.generate("payload")
    new = ring.rotate("payload")
    ring.destroy(old.id)
    assert ring.find(old.id) == Destroyed(old.id, "payload")
    assert ring.live("payload") == [new]
    assert ring.find("payload-" + "0" * 32) is None
    assert ring.find("../../etc/passwd") is None


def test_destroying_again_changes_nothing(ring: Ring) -> None:
    old = ring.generate("payload")
    ring.rotate("payload")
    ring.destroy(old.id)
    ring.destroy(old.id)
    assert ring.find(old.id) == Destroyed(old.id, "payload")


@pytest.mark.clause("H2.6d")
def test_the_active_key_is_not_destroyed(ring: Ring) -> None:
    key = ring.generate("payload")
    with pytest.raises(KeyRingError, match="is the active payload key; rotate"):
        ring.destroy(key.id)
    assert ring.find(key.id) == key


@pytest.mark.clause("X10")
def test_an_unknown_key_is_not_destroyed(ring: Ring) -> None:
    unknown = "payload-" + "0" * 32
    with pytest.raises(KeyRingError, match="nothing was destroyed"):
        ring.destroy(unknown)
    assert ring.find(unknown) is None


@pytest.mark.clause("X12")
def test_after_a_destruction_a_new_key_is_a_new_one(ring: Ring) -> None:
    old = ring.generate("payload")
    ring.rotate("payload")
    ring.destroy(old.id)
    newer = ring.rotate("payload")
    assert newer.id != old.id
    assert newer.secret != old.secret
    assert ring.active("payload") == newer


@pytest.mark.clause("H2.4b")
def test_a_repr_of_a_ring_shows_no_secret(ring: Ring) -> None:
    key = ring.generate("payload")
    assert repr(key.secret) not in repr(ring)
    assert key.secret.hex() not in repr(ring)


@pytest.mark.clause("H2.11a")
def test_two_keys_with_one_secret_are_refused() -> None:
    secret = bytes(32)
    with pytest.raises(KeyRingError, match="keys a and b have one secret; every key needs its own") as caught:
        MemoryKeyRing([Key("a", "payload", secret), Key("b", "decision", secret)])
    assert caught.value.reason == "key-unavailable"


def test_two_keys_with_one_id_are_refused() -> None:
    with pytest.raises(KeyRingError, match="holds key a twice"):
        MemoryKeyRing([Key("a", "payload", bytes(32)), Key("a", "payload", b"\x01" * 32)])


def test_the_first_key_of_a_purpose_is_the_active_one_in_memory() -> None:
    first, second = Key("a", "payload", bytes(32)), Key("b", "payload", b"\x01" * 32)
    assert MemoryKeyRing([first, second]).active("payload") == first
