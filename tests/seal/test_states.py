"""Whole states: one envelope in the place of a snapshot, and what becomes of old ones."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from underseal.errors import (
    KeyUnavailableError,
    PayloadShreddedError,
    PlaintextSnapshotRefusedError,
    SnapshotUndecryptableError,
)
from underseal.seal import (
    COMMITTING,
    FIELD,
    MESSAGE,
    PLAIN,
    SNAPSHOT,
    Destroyed,
    Envelope,
    Key,
    SealError,
    seal,
)
from underseal.seal.state import open_state, seal_state
from underseal.testing import TestDatabase

KEY = Key("subject-1", "subject", bytes(range(32)))
OTHER = Key("subject-2", "subject", bytes(range(1, 33)))
STATE = {"v": 1, "events": [["STEP_COMPLETED", {"op": 1, "output": {"n": 1.5, "secret": "\ud800"}}]]}

jsons: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def lookup(key_id: str) -> Key | None:
    return {KEY.id: KEY, OTHER.id: OTHER}.get(key_id)


def opened(stored: Any, **more: Any) -> Any:
    slot: dict[str, Any] = {"lookup": lookup, "execution_id": "c", "seq": 41} | more
    return open_state(stored, slot.pop("lookup"), **slot)


def sealed(cipher: str = COMMITTING, state: Any = None, **more: Any) -> Envelope:
    slot: dict[str, Any] = {"execution_id": "c", "seq": 41} | more
    return seal_state(STATE if state is None else state, slot.pop("key", KEY), cipher=cipher, **slot)


@pytest.mark.clause("S1")
@given(jsons, st.sampled_from([COMMITTING, PLAIN]))
def test_every_state_comes_back_as_it_went_in(state: Any, cipher: str) -> None:
    envelope = seal_state(state, KEY, execution_id="c", seq=41, cipher=cipher)
    assert json.dumps(opened(json.loads(json.dumps(envelope)))) == json.dumps(state)


@pytest.mark.clause("S1")
@pytest.mark.parametrize("cipher", [COMMITTING, PLAIN])
def test_a_state_is_one_envelope_that_the_database_takes(database: TestDatabase, cipher: str) -> None:
    envelope = sealed(cipher)
    assert "secret" not in json.dumps(envelope)
    admin: psycopg.Connection[Any] = database.connect()
    row = admin.execute(
        "select underseal._is_envelope(%s, 'loom-snap-v1') as a", [Jsonb(envelope)]
    ).fetchone()
    assert row == {"a": True}


@pytest.mark.clause("S2")
@pytest.mark.parametrize("cipher", [COMMITTING, PLAIN])
@pytest.mark.parametrize("slot", [{"seq": 42}, {"seq": 4}, {"execution_id": "d"}, {"execution_id": "c~2"}])
def test_a_state_that_was_copied_or_rolled_does_not_open(cipher: str, slot: dict[str, Any]) -> None:
    envelope = sealed(cipher)
    for one in (envelope, envelope | {"org": slot.get("execution_id", "c")}):
        with pytest.raises(SnapshotUndecryptableError) as caught:
            opened(one, **slot)
        assert caught.value.reason == "does-not-open"
        assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.clause("S2")
@pytest.mark.parametrize(
    ("cipher", "change"),
    [
        (PLAIN, {"aad": None}),
        (PLAIN, {"org": "d"}),
        (PLAIN, {"aad": "loom-snap-v2"}),
        (PLAIN, {"ct": "A" * 40}),
        (COMMITTING, {"ct": "A" * 40}),
        (COMMITTING, {"fmt": None}),
        (COMMITTING, {"fmt": FIELD}),
        (COMMITTING, {"org": "d"}),
        (COMMITTING, {"kid": None}),
        (COMMITTING, {"v": 2}),
        (COMMITTING, {"__loomEnc": "another"}),
    ],
)
def test_a_state_that_was_changed_or_is_unmarked_does_not_open(cipher: str, change: dict[str, Any]) -> None:
    envelope = {name: value for name, value in (sealed(cipher) | change).items() if value is not None}
    with pytest.raises(SnapshotUndecryptableError):
        opened(envelope)


@pytest.mark.clause("S2")
def test_a_damaged_text_is_no_state() -> None:
    envelope = seal(b"{", KEY, fmt=SNAPSHOT, place=("c", "41"), origin="c")
    with pytest.raises(SnapshotUndecryptableError, match="damaged"):
        opened(envelope)


@pytest.mark.clause("S2", "M14")
@pytest.mark.parametrize(
    ("found", "shredded", "error"),
    [
        (None, False, KeyUnavailableError),
        (OTHER, False, KeyUnavailableError),
        (None, True, PayloadShreddedError),
        (Destroyed("subject-1", "subject"), False, PayloadShreddedError),
        (Key("subject-1", "subject", bytes(32)), True, SnapshotUndecryptableError),
    ],
)
def test_a_missing_key_is_told_from_an_erasure_and_from_tampering(
    found: Any, shredded: bool, error: type[SealError]
) -> None:
    with pytest.raises(SealError) as caught:
        opened(sealed(), lookup=lambda _: found, shredded=shredded)
    assert type(caught.value) is error


@pytest.mark.parametrize("state", [float("nan"), {1}, {"a": {"__loomEnc": "x"}}])
def test_what_is_no_state_is_not_sealed(state: Any) -> None:
    with pytest.raises(SealError) as caught:
        sealed(state=state)
    assert caught.value.reason == "malformed"


def test_a_state_is_sealed_under_a_subject_s_key() -> None:
    with pytest.raises(SealError) as caught:
        sealed(key=Key("k", "payload", bytes(32)))
    assert caught.value.reason == "unsupported"


# ---- old ones ----


def old_field(value: Any, fmt: str = FIELD, key: Key = KEY, cipher: str = PLAIN) -> Envelope:
    place = ("s", "o", "E", "[]", "/x") if fmt == FIELD else ("s", "o", "0" * 64, "/payload")
    return seal(json.dumps(value).encode(), key, fmt=fmt, place=place, origin="o", cipher=cipher)


@pytest.mark.clause("S3")
@pytest.mark.parametrize("state", [None, {}, {"state": sealed()}, [1], "x", {"__loomEnc": 1}])
def test_a_readable_state_is_loaded_or_refused(state: Any) -> None:
    assert opened(state) == state
    with pytest.raises(PlaintextSnapshotRefusedError, match="of c,") as caught:
        opened(state, legacy_plaintext="refuse")
    assert caught.value.reason == "not-sealed"


@pytest.mark.clause("S3")
def test_a_sealed_state_is_not_refused() -> None:
    assert opened(sealed(), legacy_plaintext="refuse") == STATE


@pytest.mark.clause("S3")
def test_what_opens_in_an_old_state_is_opened_and_the_rest_is_left_as_stored() -> None:
    foreign = {"__loomEnc": "somebody/else", "x": 1}
    state = {
        "a": old_field({"n": 1}),
        "b": [1, old_field("two", MESSAGE)],
        "other key": old_field(3, key=Key("subject-9", "subject", bytes(32))),
        "other secret": old_field(4, key=Key("subject-1", "subject", bytes(32))),
        "ours": old_field(5, cipher=COMMITTING),
        "foreign": foreign,
        "bare": {"__loomEnc": PLAIN},
    }
    assert opened(state) == state
    found = opened(state, open_legacy=True)
    assert found == state | {"a": {"n": 1}, "b": [1, "two"]}
    assert state["b"] != found["b"]


@pytest.mark.clause("S3")
def test_one_key_for_every_id_opens_what_is_sealed_under_it_alone() -> None:
    state = [old_field(1), old_field(2, key=OTHER)]
    assert opened(state, open_legacy=True, lookup=lambda _: KEY) == [1, state[1]]


@pytest.mark.clause("S3")
@pytest.mark.parametrize("paths", [["b", "/c/d"], ["/b/1", "c"]])
def test_only_the_paths_that_are_named_are_tried(paths: list[str]) -> None:
    state = {"a": old_field(1), "b": [0, old_field(2)], "c": {"d": old_field(3)}, "bb": old_field(4)}
    asked: list[str] = []

    def find(key_id: str) -> Key | None:
        asked.append(key_id)
        return lookup(key_id)

    found = opened(state, open_legacy=True, legacy_sensitive=paths, lookup=find)
    assert found == state | {"b": [0, 2], "c": {"d": 3}}
    assert opened(state, open_legacy=True, legacy_sensitive=[]) == state
    with pytest.raises(ValueError, match="a dotted path"):
        opened(state, open_legacy=True, legacy_sensitive=["/~"])
