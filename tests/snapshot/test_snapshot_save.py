"""Snapshots and compaction (clause E9)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from psycopg.types.json import Jsonb

from tests.held.sql.kernel import Row, outcome
from tests.inbox.box import Box

CIPHER: Final = "underseal/aes-256-gcm-hkdf"
CAPABLE: Final = {"ciphers": [CIPHER], "covers": ["SNAPSHOT.state", "STEP_COMPLETED.output"]}
ENVELOPE: Final = {
    "__loomEnc": CIPHER, "v": 1, "kid": "k1", "fmt": "loom-snap-v1", "org": "o", "salt": "A" * 43, "iv": "A" * 16,
    "kc": "A" * 43, "ct": "abcd" * 10,
}  # fmt: skip


def save(b: Box, seq: int | None = None, state: str | None = '{"total": 1.50}', fence: int | None = 1) -> Row:
    """Save, as of the head unless said otherwise."""
    return b.k.call("save_snapshot", b.id, fence, b.execution()["head"] if seq is None else seq, state)


def load(b: Box, who: str | None = "ann", capability: dict[str, Any] | None = None) -> Row:
    """Load."""
    return b.k.call("load_snapshot", b.id, who, None if capability is None else Jsonb(capability))


def saved(b: Box) -> list[int]:
    """The numbers of what is kept."""
    rows = b.k.rows(
        "select seq from underseal.snapshot where chain_id = %s and member = %s order by 1", *b.place
    )
    return [row["seq"] for row in rows]


def truncate(b: Box, before: int | None) -> Row:
    """Compact, as a worker."""
    return b.k.call("truncate_prefix", b.id, before, None)


def steps(b: Box, count: int) -> Box:
    """Record so many steps."""
    for _ in range(count):
        assert b.step()["outcome"] == "appended"
    return b


def seal_log(b: Box) -> None:
    """Append a marked event, as the sealing verbs will."""
    b.k.do(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
        " select chain_id, member, head + 1, underseal.clock(), 'STEP_COMPLETED', '{}', %s"
        " from underseal.execution where chain_id = %s and member = %s",
        json.dumps({"seal": {"v": 1, "cipher": CIPHER, "covers": ["STEP_COMPLETED.output"]}}), *b.place,
    )  # fmt: skip


@pytest.mark.clause("E9a")
def test_a_state_is_loaded_as_it_was_saved(b: Box) -> None:
    assert (load(b)["outcome"], load(b)["seq"]) == ("none", None)
    steps(b, 2)
    assert outcome(save(b)) == ("saved", None)
    row = load(b)
    assert (row["outcome"], row["seq"], row["state"]) == ("snapshot", 2, {"total": 1.5})
    stored = b.k.value("select state::text from underseal.snapshot where chain_id = %s", b.chain)
    assert stored == '{"total": 1.50}'
    assert load(b, None) == row
    steps(b, 1)
    assert load(b)["seq"] == 2


@pytest.mark.clause("E9c", "E4a")
def test_it_holds_what_the_log_had_folded_to(b: Box) -> None:
    b.put("a")
    b.park(w1=["a"])
    b.park(w2=["b"], w3=[5.0])
    save(b)
    fold = b.k.value("select fold from underseal.snapshot where chain_id = %s", b.chain)
    assert fold == b.k.value("select underseal._fold(%s, %s)", *b.place)
    assert (fold["status"], fold["inbox"]["cursors"]) == ("suspended", {"a": 1})
    assert [wait["wait"] for wait in fold["waits"]] == ["w2", "w3"]


@pytest.mark.clause("E9a", "E2a")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fence": 2}, ("conflict", "stale-fence")),
        ({"fence": None}, ("conflict", "stale-fence")),
        ({"seq": 1}, ("conflict", "moved")),
        ({"seq": 3}, ("conflict", "moved")),
        ({"state": '{"a": [{"__loomEnc": "x"}]}'}, ("refused", "envelope")),
        ({"state": json.dumps(ENVELOPE)}, ("refused", "envelope")),
        ({"state": '"\\u0000"'}, ("refused", "unreadable")),
        ({"state": json.dumps("x" * 1024 * 1024)}, ("refused", "too-large")),
    ],
)
def test_only_the_driver_saves_and_only_the_head(
    b: Box, change: dict[str, Any], expected: tuple[str, str]
) -> None:
    steps(b, 2)
    before = b.k.everything()
    assert outcome(save(b, **change)) == expected
    assert b.k.everything() == before


def test_nothing_is_saved_of_what_is_not_there(b: Box) -> None:
    b.id = "nothing"
    assert outcome(save(b, 0)) == ("not-found", None)
    assert outcome(load(b)) == ("denied", "execution")


@pytest.mark.clause("E9a")
def test_one_event_has_one_snapshot_and_two_are_kept(b: Box) -> None:
    for _ in range(4):
        steps(b, 1)
        assert outcome(save(b)) == ("saved", None)
        before = b.k.everything()
        assert outcome(save(b, state="2")) == ("unchanged", None)
        assert b.k.everything() == before
    assert saved(b) == [3, 4]
    assert load(b)["seq"] == 4


@pytest.mark.clause("E9a")
def test_every_execution_of_a_chain_has_its_own(b: Box) -> None:
    steps(b, 1)
    save(b)
    b.go_on()
    assert load(b)["outcome"] == "none"
    save(b, state="2")
    assert (load(b)["seq"], load(b)["state"]) == (0, 2)


# -- a log that is sealed ------------------------------------------------------------------------------


@pytest.mark.clause("E9a")
def test_a_readable_state_is_not_kept_beside_a_sealed_log(b: Box) -> None:
    seal_log(b)
    for _ in range(2):
        assert outcome(save(b)) == ("refused", "not-sealed")
    assert saved(b) == []
    assert outcome(save(b, state=json.dumps({"a": ENVELOPE}))) == ("refused", "envelope")
    (report,) = b.k.rows("select kind, times from underseal.operator_reports where subject = %s", b.id)
    assert report == {"kind": "snapshot-not-sealed", "times": 2}


@pytest.mark.clause("E9a", "E12c")
@pytest.mark.parametrize(
    "capability",
    [
        None,
        {},
        {"ciphers": [], "covers": CAPABLE["covers"]},
        {"ciphers": [CIPHER], "covers": ["STEP_COMPLETED.output"]},
    ],
)
def test_a_sealed_state_opens_for_who_can_open_it_alone(b: Box, capability: dict[str, Any] | None) -> None:
    seal_log(b)
    assert outcome(save(b, state=json.dumps(ENVELOPE))) == ("saved", None)
    assert load(b, capability=CAPABLE)["state"] == ENVELOPE
    for who in ("ann", None):
        denied = load(b, who, capability)
        assert denied == b.k.call("load_snapshot", "nothing", who)
        cause = b.k.rows("select cause from underseal.execution_denials where execution_id = %s", b.id)[0][
            "cause"
        ]
        assert cause == "sealed"


# -- compaction --------------------------------------------------------------------------------------


@pytest.mark.clause("E9b", "E1c")
def test_what_a_snapshot_covers_goes_but_the_first_event_stays(b: Box) -> None:
    steps(b, 5)
    save(b)
    steps(b, 1)
    before = b.execution()
    fold = b.k.value("select underseal._fold(%s, %s)", *b.place)
    row = truncate(b, 4)
    assert (outcome(row), row["log_start"], row["removed"]) == (("truncated", None), 4, 3)
    assert [event["seq"] for event in b.log()] == [0, 4, 5, 6]
    assert b.execution() == {**before, "log_start": 4}
    assert b.k.value("select underseal._fold(%s, %s)", *b.place) == fold
    assert [outcome(truncate(b, n)) for n in (4, 1)] == [("unchanged", None)] * 2
    assert truncate(b, 6)["removed"] == 2
    assert [event["seq"] for event in b.log()] == [0, 6]
    assert steps(b, 1).execution()["head"] == 7


@pytest.mark.clause("E9b", "E1c", "E1b")
def test_a_log_may_be_compacted_to_its_head(b: Box) -> None:
    steps(b, 2)
    save(b)
    assert truncate(b, 3)["removed"] == 2
    assert [event["seq"] for event in b.log()] == [0]
    assert steps(b, 1).execution()["head"] == 3


@pytest.mark.clause("E9b", "E1a")
@pytest.mark.parametrize(
    ("before_seq", "reason"),
    [(5, "no-snapshot"), (6, "no-snapshot"), (0, "beyond-head"), (7, "beyond-head"), (None, "beyond-head")],
)
def test_nothing_goes_that_no_snapshot_covers(b: Box, before_seq: int | None, reason: str) -> None:
    steps(b, 3)
    save(b)
    steps(b, 2)
    before = b.k.everything()
    row = truncate(b, before_seq)
    assert (outcome(row), row["log_start"]) == (("refused", reason), 1)
    assert b.k.everything() == before
    assert outcome(truncate(b, 4)) == ("truncated", None)


@pytest.mark.clause("E1a", "E9b")
def test_the_end_of_an_ended_log_stays(b: Box) -> None:
    steps(b, 2)
    save(b)
    b.write("complete")
    before = b.k.everything()
    assert outcome(truncate(b, 4)) == ("refused", "beyond-head")
    assert b.k.everything() == before
    assert truncate(b, 3)["removed"] == 2
    assert b.types() == ["EXECUTION_STARTED", "EXECUTION_COMPLETED"]


@pytest.mark.clause("E9c", "E9a")
def test_replay_from_the_snapshot_agrees_with_replay_from_the_log(b: Box) -> None:
    """A flow that counts: from all its events, and from its state with the events after it."""
    for n in range(6):
        b.write("append", events=[{"type": "STEP_COMPLETED", "data": {"n": n}}])
        if n == 3:
            total = sum(event["data"]["n"] for event in b.log()[1:])
            save(b, state=json.dumps({"total": total}))
    whole = sum(event["data"]["n"] for event in b.log()[1:])
    truncate(b, 5)
    found = load(b)
    rest = b.k.calls("read_events", b.id, "ann", found["seq"])
    assert found["state"]["total"] + sum(event["data"]["n"] for event in rest) == whole == 15
