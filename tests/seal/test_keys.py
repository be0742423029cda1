"""A key shows nothing, goes nowhere, and has one purpose."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from underseal.seal import Destroyed, Key, KeyRing, MemoryKeyRing, SealError, restricted
from underseal.seal.keys import mint

SECRET = bytes(range(32))
KEY = Key("payload-1", "payload", SECRET)


@pytest.mark.clause("H2.4b")
@pytest.mark.parametrize("shown", [repr(KEY), str(KEY), f"{KEY}", f"{[KEY]}", f"{ {'k': KEY} }"])
def test_no_text_of_a_key_holds_its_secret(shown: str) -> None:
    assert "payload-1" in shown
    assert repr(SECRET) not in shown
    assert SECRET.hex() not in shown


@pytest.mark.clause("H2.4a")
@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy, lambda key: key.__getstate__()])
def test_a_key_is_never_pickled_or_copied(act: Any) -> None:
    with pytest.raises(TypeError, match="never pickled or copied"):
        act(KEY)


def test_a_key_cannot_be_changed() -> None:
    for name in ("id", "purpose", "secret", "note"):
        with pytest.raises(AttributeError):
            setattr(KEY, name, "x")
    assert not hasattr(KEY, "__dict__")


@pytest.mark.parametrize(
    ("key_id", "purpose", "secret"),
    [
        ("", "payload", SECRET),
        ("a b", "payload", SECRET),
        ("k" * 129, "payload", SECRET),
        (7, "payload", SECRET),
        ("k", "everything", SECRET),
        ("k", "payload", SECRET[:31]),
        ("k", "payload", SECRET + b"\0"),
        ("k", "payload", SECRET.hex()),
    ],
)
def test_a_key_of_the_wrong_shape_is_refused_without_showing_it(
    key_id: Any, purpose: Any, secret: Any
) -> None:
    with pytest.raises(SealError) as caught:
        Key(key_id, purpose, secret)
    assert caught.value.reason == "malformed"
    assert SECRET.hex()[:20] not in str(caught.value)
    assert repr(SECRET)[:20] not in str(caught.value)


def test_keys_are_equal_where_id_purpose_and_secret_are() -> None:
    assert Key("payload-1", "payload", SECRET) == KEY
    assert hash(Key("payload-1", "payload", SECRET)) == hash(KEY)
    assert Key("payload-2", "payload", SECRET) != KEY
    assert Key("payload-1", "decision", SECRET) != KEY
    assert Key("payload-1", "payload", bytes(32)) != KEY
    assert KEY != "payload-1"


def test_a_minted_key_has_a_random_opaque_id_that_names_its_purpose() -> None:
    keys = [mint("decision") for _ in range(50)]
    assert all(key.id.startswith("decision-") and len(key.id) == len("decision-") + 32 for key in keys)
    assert len({key.id for key in keys}) == len({key.secret for key in keys}) == 50


@pytest.fixture
def ring() -> MemoryKeyRing:
    ring = MemoryKeyRing.with_all()
    old = ring.active("payload").id
    ring.rotate("payload")
    ring.destroy(old)
    return ring


@pytest.mark.clause("H2.11b")
def test_a_restricted_ring_has_nothing_of_another_purpose(ring: MemoryKeyRing) -> None:
    view = restricted(ring, {"decision"})
    assert isinstance(view, KeyRing)
    assert view.active("decision") == ring.active("decision")
    assert view.find(ring.active("decision").id) == ring.active("decision")
    assert view.live("decision") == ring.live("decision")
    assert view.key_ids("decision") == ring.key_ids("decision")
    hidden = ring.active("payload")
    with pytest.raises(SealError) as caught:
        view.active("payload")
    assert caught.value.reason == "key-unavailable"
    assert view.find(hidden.id) is None
    assert view.live("payload") == view.key_ids("payload") == []
    assert hidden.id not in repr(view)


def test_a_restricted_ring_tells_of_a_destruction_only_in_its_purposes(ring: MemoryKeyRing) -> None:
    gone = Destroyed("payload-x", "payload")

    class Ring(MemoryKeyRing):
        def find(self, *_: str) -> Key | Destroyed | None:
            return gone

    assert restricted(Ring(), {"payload"}).find("payload-x") == gone
    assert restricted(Ring(), {"decision"}).find("payload-x") is None


def test_a_ring_is_not_restricted_to_what_does_not_exist(ring: MemoryKeyRing) -> None:
    with pytest.raises(SealError, match="no such key purpose: everything"):
        restricted(ring, {"everything"})  # type: ignore[arg-type]
