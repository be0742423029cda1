"""The formats of what executions seal: fields of events, and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from underseal.seal import (
    COMMITTING,
    FIELD,
    MESSAGE,
    PLAIN,
    Envelope,
    Key,
    MemoryKeyRing,
    SealError,
    open_seal,
    seal,
)
from underseal.testing import TestDatabase

KEY = Key("subject-1", "subject", bytes(range(32)))
RING = MemoryKeyRing([KEY])
PLACES: dict[str, tuple[str, ...]] = {
    FIELD: ("user:7", "c~2", "STEP_COMPLETED", "[3]", "/output"),
    MESSAGE: ("user:7", "c~pay", "0a" * 32, "/payload"),
}
OTHERS: list[tuple[str, int, str]] = [
    *(
        (FIELD, element, other)
        for element, other in enumerate(["user:8", "c~3", "STEP_FAILED", "[4]", "/error"])
    ),
    *(
        (MESSAGE, element, other)
        for element, other in enumerate(["user:8", "c~ship", "0b" * 32, "/payload/a"])
    ),
]


def sealed(fmt: str, cipher: str = COMMITTING, key: Key = KEY) -> Envelope:
    place = PLACES[fmt]
    return seal(b'{"a":1.50}', key, fmt=fmt, place=place, origin=place[1], cipher=cipher)


def opened(fmt: str, envelope: object, place: Sequence[str] | None = None, **more: Any) -> bytes:
    return open_seal(envelope, RING, purpose="subject", fmt=fmt, place=place or PLACES[fmt], **more)


@pytest.mark.parametrize("fmt", PLACES)
def test_it_opens_in_its_place(fmt: str) -> None:
    assert opened(fmt, sealed(fmt)) == b'{"a":1.50}'
    assert opened(fmt, sealed(fmt, PLAIN), open_legacy=True) == b'{"a":1.50}'


@pytest.mark.clause("M19")
@pytest.mark.parametrize(("fmt", "element", "other"), OTHERS)
def test_it_does_not_open_elsewhere(fmt: str, element: int, other: str) -> None:
    place = [*PLACES[fmt]]
    place[element] = other
    relabelled = sealed(fmt) | {"org": place[1]}
    for envelope in (sealed(fmt), relabelled):
        with pytest.raises(SealError) as caught:
            opened(fmt, envelope, place)
        assert caught.value.reason == "does-not-open"


@pytest.mark.clause("M19")
@pytest.mark.parametrize("fmt", PLACES)
def test_what_is_tied_to_no_place_opens_only_where_that_is_asked_for(fmt: str) -> None:
    envelope = sealed(fmt, PLAIN)
    assert "aad" not in envelope
    with pytest.raises(SealError, match="open_legacy") as caught:
        opened(fmt, envelope)
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize("fmt", PLACES)
@pytest.mark.parametrize("purpose", ["payload", "decision"])
def test_it_is_sealed_under_a_subject_s_key_alone(fmt: str, purpose: Any) -> None:
    with pytest.raises(SealError) as caught:
        sealed(fmt, key=Key("k", purpose, bytes(32)))
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize(
    ("fmt", "element", "wrong"),
    [
        (FIELD, 0, ""),
        (FIELD, 1, ""),
        (FIELD, 2, "step_completed"),
        (FIELD, 2, "A.B"),
        (FIELD, 3, "3"),
        (FIELD, 4, ""),
        (FIELD, 4, "output"),
        (FIELD, 4, "/a~2"),
        (MESSAGE, 2, "0A" * 32),
        (MESSAGE, 3, ""),
        (MESSAGE, 3, "/payloads"),
        (MESSAGE, 3, "/wait"),
    ],
)
def test_a_place_has_its_shape(fmt: str, element: int, wrong: str) -> None:
    place = [*PLACES[fmt]]
    place[element] = wrong
    with pytest.raises(SealError) as caught:
        seal(b"1", KEY, fmt=fmt, place=place, origin=place[1])
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("fmt", PLACES)
def test_the_origin_is_the_one_of_the_place(fmt: str) -> None:
    with pytest.raises(SealError) as caught:
        seal(b"1", KEY, fmt=fmt, place=PLACES[fmt], origin="c~4")
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("cipher", [COMMITTING, PLAIN])
def test_the_database_knows_their_shape(database: TestDatabase, cipher: str) -> None:
    admin: psycopg.Connection[Any] = database.connect()

    def answer(value: object, fmt: str) -> object:
        row = admin.execute("select underseal._is_envelope(%s, %s) as a", [Jsonb(value), fmt]).fetchone()
        assert row is not None
        return row["a"]

    for fmt in PLACES:
        envelope = sealed(fmt, cipher)
        assert [answer(envelope, one) for one in PLACES] == [one == fmt for one in PLACES]
        for aad in (fmt, None, "loom-snap-v1"):
            assert answer(envelope | {"aad": aad}, fmt) is False
