"""A fingerprint finds the same request again, and only with its key (H1.7)."""

from __future__ import annotations

from typing import Any

import pytest

from underseal.seal import Key, MemoryKeyRing, SealError, fingerprint

KEY = Key("fingerprint-1", "fingerprint", bytes(range(32)))
ASKED: dict[str, Any] = {"requester": "ann", "type": "payout.send", "version": 1, "canonical": '{"to":"bob"}'}


@pytest.mark.clause("H1.7d")
def test_it_is_the_same_for_the_same_request_and_32_bytes_long() -> None:
    assert fingerprint(KEY, **ASKED) == fingerprint(KEY, **ASKED)
    assert len(fingerprint(KEY, **ASKED)) == 32


@pytest.mark.clause("H1.7d")
@pytest.mark.parametrize(
    "change",
    [{"requester": "bob"}, {"type": "payout.sent"}, {"version": 2}, {"canonical": '{"to":"eve"}'}],
    ids=lambda change: next(iter(change)),
)
def test_it_covers_every_part(change: dict[str, Any]) -> None:
    assert fingerprint(KEY, **(ASKED | change)) != fingerprint(KEY, **ASKED)


@pytest.mark.clause("H1.7d")
def test_parts_cannot_run_into_each_other() -> None:
    made = {
        fingerprint(KEY, requester, kind, version, canonical)
        for requester, kind, version, canonical in [
            ("ab", "c", 1, "{}"),
            ("a", "bc", 1, "{}"),
            ("", "abc", 1, "{}"),
            ("ab", "c1", 1, "{}"),
            ("ab", "c", 11, "{}"),
            ("ab", "c", 1, "1{}"),
        ]
    }
    assert len(made) == 6


@pytest.mark.clause("H1.7c", "H1.7d")
def test_it_depends_on_the_key() -> None:
    other = Key("fingerprint-2", "fingerprint", bytes(32))
    assert fingerprint(other, **ASKED) != fingerprint(KEY, **ASKED)


@pytest.mark.clause("H1.7d", "H2.11a")
@pytest.mark.parametrize("purpose", ["payload", "decision"])
def test_a_key_for_something_else_makes_none(purpose: Any) -> None:
    key = MemoryKeyRing().generate(purpose)
    with pytest.raises(SealError, match=f"needs a fingerprint key, not a {purpose} key") as caught:
        fingerprint(key, **ASKED)
    assert (caught.value.reason, caught.value.key_id) == ("unsupported", key.id)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": -1},
        {"version": True},
        {"version": "1"},
        {"requester": "\ud800"},
        {"canonical": "\udfff"},
    ],
)
def test_what_is_no_request_has_none(change: dict[str, Any]) -> None:
    with pytest.raises(SealError) as caught:
        fingerprint(KEY, **(ASKED | change))
    assert caught.value.reason == "malformed"
    assert caught.value.__context__ is None
