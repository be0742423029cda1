"""Stored content: once a chain by its hash, swept when nothing refers to it (clause E10)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, Row, outcome
from tests.inbox.box import Box, box
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase, in_background, wait_blocked


def put(b: Box, text: str | None = '{"n": 1.50}', fence: int | None = 1) -> Row:
    """Store a JSON text."""
    return b.k.call("put_content", b.id, text, fence)


def stored(b: Box, text: str) -> bytes:
    """Store what is accepted: its hash."""
    row = put(b, text)
    assert outcome(row) == ("stored", None), row
    return bytes(row["hash"])


def refer(b: Box, *hashes: bytes, text: str | None = None) -> None:
    """Record an event that refers to them; `text` is its data as it is."""
    data = {"deep": [{"$content": one.hex()} for one in hashes]}
    wanted = f'[{{"type": "STEP_COMPLETED", "data": {text or json.dumps(data)}}}]'
    row = b.k.call("append", b.id, b.fence, wanted)
    assert row["outcome"] == "appended", row


def sweep(b: Box, grace: str = "1 hour", most: int = 100) -> list[tuple[Any, ...]]:
    """Sweep, and what came of it."""
    rows = b.k.calls("sweep_content", most, grace)
    return [(row["chain_id"], row["outcome"], row["reason"], row["removed"]) for row in rows]


def kept(b: Box) -> set[bytes]:
    """The hashes that are left."""
    return {
        bytes(row["hash"])
        for row in b.k.rows("select hash from underseal.content where chain_id = %s", b.chain)
    }


@pytest.mark.clause("E10a")
def test_a_value_is_stored_once_under_the_hash_of_its_text(b: Box) -> None:
    text = '{"b": 1.50,  "a": "é"}'
    hashed = stored(b, text)
    assert hashed == hashlib.sha256(text.encode()).digest()
    assert stored(b, text) == hashed
    assert kept(b) == {hashed}
    row = b.k.call("get_content", b.id, hashed, "ann")
    assert (row["outcome"], row["body"]) == ("content", {"b": 1.5, "a": "é"})
    assert b.k.call("get_content", b.id, hashed, None) == row
    assert b.k.value("select body::text from underseal.content where hash = %s", hashed) == text
    assert outcome(b.k.call("get_content", b.id, b"x" * 32, "ann")) == ("none", None)


@pytest.mark.clause("E10a")
def test_it_belongs_to_the_chain(b: Box) -> None:
    hashed = stored(b, "1")
    other = box(b.k)
    assert outcome(b.k.call("get_content", other.id, hashed, "ann")) == ("none", None)
    b.go_on()
    assert outcome(b.k.call("get_content", b.id, hashed, "ann")) == ("content", None)


@pytest.mark.clause("E10a", "E2a")
@pytest.mark.parametrize(
    ("text", "fence", "expected"),
    [
        ("1", 2, ("conflict", "stale-fence")),
        ("1", None, ("conflict", "stale-fence")),
        ('{"a": {"__loomEnc": "x"}}', 1, ("refused", "envelope")),
        ('"\\u0000"', 1, ("refused", "unreadable")),
        (json.dumps("x" * (16 * 1024 * 1024 - 1)), 1, ("refused", "too-large")),
    ],
)
def test_only_the_driver_stores_and_nothing_sealed(
    b: Box, text: str, fence: int | None, expected: tuple[str, str]
) -> None:
    before = b.k.everything()
    assert outcome(put(b, text, fence)) == expected
    assert b.k.everything() == before


def test_what_is_as_large_as_may_be_is_stored(b: Box) -> None:
    assert outcome(put(b, json.dumps("x" * (16 * 1024 * 1024 - 2)))) == ("stored", None)


def test_an_end_stores_nothing(b: Box) -> None:
    b.write("complete")
    assert outcome(put(b)) == ("conflict", "ended")
    b.id = "nothing"
    assert outcome(put(b)) == ("not-found", None)


@pytest.mark.clause("E10b")
def test_what_nothing_refers_to_is_swept_when_it_is_not_young(b: Box) -> None:
    referred, escaped, state, message, capital, idle = (stored(b, str(n)) for n in range(6))
    refer(b, referred)
    key = "\\u0024content"
    refer(b, text=f'{{"x": {{"{key}": "{escaped.hex()}"}}}}')
    refer(b, text=f'{{"x": {{"$content": "{capital.hex().upper()}"}}}}')
    b.k.call("save_snapshot", b.id, 1, 3, json.dumps({"$content": state.hex()}))
    b.put("a", json.dumps([{"$content": message.hex()}]))
    everything = kept(b)
    assert sweep(b) == []
    b.k.clock.advance(minutes=59)
    assert sweep(b) == []
    b.k.clock.advance(minutes=1)
    assert sweep(b) == [(b.chain, "swept", None, 1)]
    assert kept(b) == everything - {idle}


@pytest.mark.clause("E10b")
def test_what_is_stored_again_is_young_again(b: Box) -> None:
    hashed = stored(b, "1")
    b.k.clock.advance(minutes=59)
    stored(b, "1")
    b.k.clock.advance(minutes=59)
    assert sweep(b) == []
    b.k.clock.advance(minutes=1)
    assert sweep(b) == [(b.chain, "swept", None, 1)]
    assert kept(b) == set()
    assert outcome(b.k.call("get_content", b.id, hashed, "ann")) == ("none", None)


@pytest.mark.clause("E10b")
def test_sweeps_come_to_every_chain(b: Box) -> None:
    """What was looked at longest ago is looked at first, so that what stays is in nobody's way."""
    chains = [b, *(box(b.k) for _ in range(3))]
    for one in chains:
        refer(one, stored(one, "1"))
        b.k.clock.advance(seconds=1)
    b.k.clock.advance(hours=1)
    looked_at = []
    for _ in range(4):
        looked_at += [chain for chain, *_ in sweep(b, most=1)]
        b.k.clock.advance(seconds=1)
    assert looked_at == [one.chain for one in chains]
    assert sweep(b) == []


@pytest.mark.clause("E10b")
@pytest.mark.parametrize("where", ["event", "snapshot", "message"])
def test_a_chain_that_cannot_be_looked_through_is_skipped_and_named(b: Box, where: str) -> None:
    idle = stored(b, "1")
    marker = json.dumps({"seal": {"v": 1, "cipher": "x", "covers": ["X.y"]}})
    if where == "event":
        b.k.do(
            "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
            " values (%s, '', 1, underseal.clock(), 'STEP_COMPLETED', '{}', %s)", b.chain, marker,
        )  # fmt: skip
    elif where == "message":
        b.seal(b.put("a"))
    else:
        b.k.do(
            "insert into underseal.snapshot (chain_id, member, seq, state, fold, metadata, saved_at)"
            " values (%s, '', 0, '1', underseal._fold(%s, ''), %s, underseal.clock())", b.chain, b.chain, marker,
        )  # fmt: skip
    assert sweep(b, "0") == [(b.chain, "skipped", "sealed", 0)]
    assert kept(b) == {idle}


@pytest.mark.clause("E10b")
def test_a_number_that_jsonb_has_no_room_for_hides_no_reference(b: Box) -> None:
    hashed, idle = stored(b, "1"), stored(b, "2")
    refer(b, text=f'{{"odd": 1e999999, "x": {{"$content": "{hashed.hex()}"}}}}')
    assert sweep(b, "0") == [(b.chain, "swept", None, 1)]
    assert kept(b) == {hashed}
    assert outcome(b.k.call("fork_execution", b.id, 1, "ann"))[0] == "forked"
    b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " values (%s, '', 2, underseal.clock(), 'STEP_COMPLETED', %s)",
        b.chain, '{"odd": 1e999999, "x": "\\u00e9"}',
    )  # fmt: skip
    b.k.clock.advance(hours=2)
    assert (b.chain, "skipped", "unreadable", 0) in sweep(b)
    assert idle not in kept(b)


@pytest.mark.clause("E12c", "T4b")
@pytest.mark.parametrize("verb", ["load_snapshot", "get_content"])
def test_what_is_read_is_what_was_judged(
    db: DictConnection, clock: TestClock, admin: DictConnection, database: TestDatabase, verb: str
) -> None:
    """While the policy thinks, the execution is deleted, and somebody else takes its id."""
    b = box(Kernel(db, clock))
    hashed = stored(b, "1")
    b.k.call("save_snapshot", b.id, 1, 0, "1")
    arguments = [b.id, "ann"] if verb == "load_snapshot" else [b.id, hashed, "ann"]
    host = database.create_role("host")
    admin.execute("create schema host")
    admin.execute(f"grant usage on schema host to {OWNER}")
    admin.execute(
        """create function host.may(text, text, text, text, text) returns boolean language sql security definer
           return pg_advisory_xact_lock_shared(7) is not null"""
    )
    admin.execute(f'grant all on schema host to "{host}"')
    admin.execute(f'alter function host.may owner to "{host}"')
    b.k.call("set_access_policy", "host.may(text,text,text,text,text)")
    assert outcome(b.k.call(verb, *arguments))[0] in ("snapshot", "content")

    admin.execute("select pg_advisory_lock(7)")
    reading = in_background(b.k.call, verb, *arguments)
    wait_blocked(admin, b.k.connection.info.backend_pid)
    with admin.transaction():
        admin.execute("alter table underseal.execution disable trigger all")
        admin.execute("update underseal.execution set owner = 'bob', incarnation = gen_random_uuid()")
    admin.execute("select pg_advisory_unlock(7)")
    assert outcome(reading.result(10)) == ("none", None)
