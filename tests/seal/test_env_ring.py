"""Keys for a container, from one environment variable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from underseal.seal import (
    HELD_PAYLOAD,
    Destroyed,
    EnvKeyRing,
    KeyRing,
    KeyRingError,
    MemoryKeyRing,
    SealError,
    encoding,
    environment_text,
    fingerprint,
    seal,
)

OPERATION = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a"
ID = "payload-" + "0" * 31
SECRET = encoding.encode(bytes(range(32)))


def entry(number: int = 1, purpose: str = "payload", **more: Any) -> dict[str, Any]:
    secret = encoding.encode(bytes([number] * 32))
    return {"id": f"{purpose}-{number:032x}", "purpose": purpose, "secret": secret} | more


def refusal(monkeypatch: pytest.MonkeyPatch, text: str) -> KeyRingError:
    monkeypatch.setenv("UNDERSEAL_KEYS", text)
    with pytest.raises(KeyRingError) as caught:
        EnvKeyRing()
    return caught.value


@pytest.mark.clause("H2.11c")
def test_a_container_gets_the_keys_of_its_purposes_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = MemoryKeyRing.with_all()
    ring.rotate("payload")
    monkeypatch.setenv("UNDERSEAL_KEYS", environment_text(ring, {"payload", "fingerprint"}))
    given = EnvKeyRing()
    assert isinstance(given, KeyRing)
    assert given.live("payload") == ring.live("payload")
    assert given.key_ids("payload") == ring.key_ids("payload")
    assert given.active("payload") == ring.active("payload")
    assert given.active("fingerprint") == ring.active("fingerprint")
    seal(b"{}", given.active("payload"), fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION)
    assert len(fingerprint(given.active("fingerprint"), "ann", "payout.send", 1, "{}")) == 32
    assert given.live("decision") == []
    assert given.find(ring.active("decision").id) is None
    with pytest.raises(SealError, match="holds no decision key") as caught:
        given.active("decision")
    assert caught.value.reason == "key-unavailable"


def test_the_variable_may_have_another_name_and_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEYS", json.dumps({"v": 1, "keys": [entry()]}))
    ring = EnvKeyRing("MY_KEYS")
    monkeypatch.delenv("MY_KEYS")
    assert ring.key_ids("payload") == [entry()["id"]]
    assert entry()["secret"] not in repr(ring)


@pytest.mark.clause("X10")
def test_a_key_that_is_listed_as_destroyed_is_destroyed_even_if_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = entry(1)
    text = json.dumps({"v": 1, "keys": [gone, entry(2)], "destroyed": [gone["id"]]})
    monkeypatch.setenv("UNDERSEAL_KEYS", text)
    ring = EnvKeyRing()
    assert ring.find(gone["id"]) == Destroyed(gone["id"], "payload")
    assert ring.key_ids("payload") == [entry(2)["id"]]


@pytest.mark.clause("X10")
def test_a_missing_variable_is_no_empty_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDERSEAL_KEYS", raising=False)
    with pytest.raises(KeyRingError, match="UNDERSEAL_KEYS is not set") as caught:
        EnvKeyRing()
    assert caught.value.reason == "key-unavailable"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"v": 1},
        {"v": 2, "keys": []},
        {"v": 1, "keys": {}},
        {"v": 1, "keys": [], "active": "x"},
        {"v": 1, "keys": [None]},
        {"v": 1, "keys": [entry(active=True)]},
        {"v": 1, "keys": [entry(note="x")]},
        {"v": 1, "keys": [{"id": entry()["id"], "purpose": "payload"}]},
        {"v": 1, "keys": [entry(id=7)]},
        {"v": 1, "keys": [entry(id="payload-1")]},
        {"v": 1, "keys": [entry(purpose="everything")]},
        {"v": 1, "keys": [entry(id=entry(1, "decision")["id"])]},
        {"v": 1, "keys": [entry(secret=SECRET + "=")]},
        {"v": 1, "keys": [entry(secret=encoding.encode(bytes(31)))]},
        {"v": 1, "keys": [entry(secret=encoding.encode(bytes(33)))]},
        {"v": 1, "keys": [entry(secret="secretive")]},
        {"v": 1, "keys": [entry(), entry()]},
        {"v": 1, "keys": [entry(1), entry(2, secret=entry(1)["secret"])]},
        {"v": 1, "keys": [], "destroyed": "x"},
        {"v": 1, "keys": [], "destroyed": ["payload-1"]},
        {"v": 1, "keys": [], "destroyed": [1]},
    ],
)
def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    error = refusal(monkeypatch, json.dumps(value))
    assert "UNDERSEAL_KEYS" in str(error)


@pytest.mark.clause("H2.4b")
@pytest.mark.parametrize("text", ["", SECRET, '{"v":1,"keys":[{"secret":"' + SECRET + '"}]', "[" * 100_000])
def test_a_refusal_quotes_nothing_of_the_value(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    error = refusal(monkeypatch, text)
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    wrong_secret = json.dumps({"v": 1, "keys": [entry(secret=SECRET + "x", id=ID)]})
    assert SECRET not in str(refusal(monkeypatch, wrong_secret))
