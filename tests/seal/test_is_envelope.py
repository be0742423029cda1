"""The database knows the shape of an envelope, and that a held one commits to its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from underseal.foundation.server import Server
from underseal.seal import (
    COMMITTING,
    HELD_DECISION,
    HELD_PAYLOAD,
    PLAIN,
    SNAPSHOT,
    MemoryKeyRing,
    encoding,
    seal,
)
from underseal.testing import TestDatabase, unique_name

OPERATION = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a"
RING = MemoryKeyRing.with_all()
PAYLOAD = seal(b"{}", RING.active("payload"), fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION)
DECISION = seal(b"{}", RING.active("decision"), fmt=HELD_DECISION, place=(OPERATION, "ann"), origin=OPERATION)


def snapshot(cipher: str) -> dict[str, Any]:
    return seal(b"{}", RING.active("payload"), fmt=SNAPSHOT, place=("e", "1"), origin="e", cipher=cipher)


SOURCE = Path(__file__).parents[2] / "sql" / "seal" / "envelope.sql"


@pytest.fixture(scope="module")
def alone(postgres: Server) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A database with nothing but this function: it needs nothing else, and a hundred questions need no hundred."""
    name = unique_name("envelope")
    with psycopg.connect(postgres.conninfo("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(
                postgres.conninfo(name), autocommit=True, row_factory=dict_row
            ) as connection:
                connection.execute("create schema underseal")
                connection.execute(SOURCE.read_bytes())
                yield connection
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def is_envelope(alone: psycopg.Connection[dict[str, Any]]) -> Any:
    def ask(value: object, fmt: str | None) -> Any:
        row = alone.execute(
            "select underseal._is_envelope(%s, %s) as answer", [None if value is None else Jsonb(value), fmt]
        ).fetchone()
        assert row is not None
        return row["answer"]

    return ask


def test_what_we_seal_is_an_envelope_of_its_format_and_of_no_other(is_envelope: Any) -> None:
    made = {
        HELD_PAYLOAD: [PAYLOAD],
        HELD_DECISION: [DECISION],
        SNAPSHOT: [snapshot(COMMITTING), snapshot(PLAIN)],
    }
    for fmt, envelopes in made.items():
        for envelope in envelopes:
            assert [is_envelope(envelope, f) for f in made] == [f == fmt for f in made]


@pytest.mark.parametrize("value", [None, "x", 1, True, [], [PAYLOAD], {}, {"__loomEnc": 1}])
def test_anything_else_is_none_and_the_answer_is_never_null(is_envelope: Any, value: object) -> None:
    assert is_envelope(value, HELD_PAYLOAD) is False
    assert is_envelope(PAYLOAD, None) is False


def test_a_null_in_json_is_no_envelope(database: TestDatabase) -> None:
    row = (
        database.connect().execute("select underseal._is_envelope('null', 'held-payload-v1') as a").fetchone()
    )
    assert row == {"a": False}


@pytest.mark.parametrize("member", sorted(PAYLOAD))
def test_every_member_is_there_and_of_its_type(is_envelope: Any, member: str) -> None:
    assert is_envelope({m: v for m, v in PAYLOAD.items() if m != member}, HELD_PAYLOAD) is False
    others: list[object] = [None, 7, True, [], {}, ""]
    for value in others:
        assert is_envelope(PAYLOAD | {member: value}, HELD_PAYLOAD) is False


# Digits alone are base64url too, and a number of the right length must still not pass for text.
@pytest.mark.parametrize(("member", "digits"), [("salt", 43), ("kc", 43), ("iv", 16), ("ct", 22), ("kid", 9)])
def test_a_number_is_no_text(is_envelope: Any, member: str, digits: int) -> None:
    assert is_envelope(PAYLOAD | {member: "4" * digits}, HELD_PAYLOAD) is True
    assert is_envelope(PAYLOAD | {member: int("4" * digits)}, HELD_PAYLOAD) is False


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"v": 2}, id="version"),
        pytest.param({"v": "1"}, id="version as text"),
        pytest.param({"v": 1.5}, id="version as fraction"),
        pytest.param({"__loomEnc": "underseal/aes-256-gcm"}, id="cipher"),
        pytest.param({"alg": "x"}, id="unknown member"),
        pytest.param({"aad": HELD_PAYLOAD}, id="member of the other cipher"),
        pytest.param({"kid": "a b"}, id="key id with a space"),
        pytest.param({"kid": "k" * 129}, id="long key id"),
        pytest.param({"kid": "k\n"}, id="key id with a line feed"),
        pytest.param({"org": OPERATION.upper()}, id="origin in upper case"),
        pytest.param({"org": OPERATION[:-1]}, id="short origin"),
        pytest.param({"org": "x" + OPERATION}, id="long origin"),
        pytest.param({"salt": encoding.encode(bytes(31))}, id="short salt"),
        pytest.param({"salt": encoding.encode(bytes(33))}, id="long salt"),
        pytest.param({"salt": "A" * 42 + "B"}, id="salt with left-over bits"),
        pytest.param({"salt": "A" * 43 + "="}, id="padded salt"),
        pytest.param({"salt": "+" * 42 + "A"}, id="salt in the other alphabet"),
        pytest.param({"kc": encoding.encode(bytes(31))}, id="short commitment"),
        pytest.param({"kc": encoding.encode(bytes(64))}, id="long commitment"),
        pytest.param({"kc": "A" * 42 + "B"}, id="commitment with left-over bits"),
        pytest.param({"iv": encoding.encode(bytes(11))}, id="short IV"),
        pytest.param({"iv": encoding.encode(bytes(16))}, id="long IV"),
        pytest.param({"iv": "!" * 16}, id="IV that is no base64"),
        pytest.param({"ct": encoding.encode(bytes(15))}, id="ciphertext shorter than its tag"),
        pytest.param({"ct": "A" * 25}, id="ciphertext of an impossible length"),
        pytest.param({"ct": "A" * 23 + "\n"}, id="ciphertext with a line feed"),
        pytest.param({"ct": "+" * 24}, id="ciphertext in the other alphabet"),
        pytest.param({"ct": encoding.encode(bytes(1024 * 1024 + 17))}, id="ciphertext too long"),
    ],
)
def test_a_held_envelope_has_exactly_its_shape(is_envelope: Any, change: dict[str, Any]) -> None:
    assert is_envelope(PAYLOAD | change, HELD_PAYLOAD) is False


def test_a_held_envelope_may_be_as_large_as_the_client_allows(is_envelope: Any) -> None:
    largest = seal(
        b"x" * 1024 * 1024, RING.active("payload"), fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION
    )
    assert is_envelope(largest, HELD_PAYLOAD) is True


def test_a_held_envelope_never_has_the_plain_cipher(is_envelope: Any) -> None:
    plain = snapshot(PLAIN) | {"fmt": HELD_PAYLOAD, "aad": HELD_PAYLOAD, "org": OPERATION}
    assert is_envelope(plain, HELD_PAYLOAD) is False
    assert is_envelope(plain | {"fmt": "loom-snap-v1", "aad": "loom-snap-v1"}, SNAPSHOT) is True


@pytest.mark.parametrize("change", [{"aad": "x"}, {"aad": None}, {"salt": "A" * 43}, {"iv": "A" * 15}])
def test_an_envelope_in_the_plain_cipher_has_exactly_its_shape(
    is_envelope: Any, change: dict[str, Any]
) -> None:
    assert is_envelope(snapshot(PLAIN) | change, SNAPSHOT) is False


def test_it_inlines_and_no_search_path_changes_it(database: TestDatabase) -> None:
    admin = database.connect()
    admin.execute("create table public.slot (value jsonb)")
    plan = admin.execute(
        "explain (verbose, costs off) select 1 from public.slot where underseal._is_envelope(value, 'held-payload-v1')"
    ).fetchall()
    text = "\n".join(str(line["QUERY PLAN"]) for line in plan)
    assert "jsonb_typeof" in text
    assert "_is_envelope" not in text
    # A function that shadows one of pg_catalog's must not be taken.
    admin.execute("create schema evil")
    admin.execute(
        "create function evil.jsonb_typeof(jsonb) returns text language sql as $$ select 'object' $$"
    )
    admin.execute("set search_path = evil, pg_catalog")
    row = admin.execute("select underseal._is_envelope('[]', 'held-payload-v1') as a").fetchone()
    assert row == {"a": False}


def test_it_serves_in_a_check_constraint(database: TestDatabase) -> None:
    admin = database.connect()
    admin.execute(
        "create table public.slot (value jsonb check (underseal._is_envelope(value, 'held-decision-v1')))"
    )
    admin.execute("insert into public.slot values (%s)", [Jsonb(DECISION)])
    for wrong in (Jsonb(PAYLOAD), None):
        with pytest.raises(psycopg.errors.CheckViolation):
            admin.execute("insert into public.slot values (%s)", [wrong])


@pytest.mark.parametrize("origin", ["", 7, None, ["e"]])
def test_the_origin_of_any_format_is_text(is_envelope: Any, origin: object) -> None:
    assert is_envelope(snapshot(COMMITTING) | {"org": origin}, SNAPSHOT) is False
