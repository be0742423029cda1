"""Who comes to be claimed: behind what fails, and after the clock was set back."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.wake.wakes import FLOW, MINUTE, Wakes
from underseal.testing import TestDatabase


@pytest.mark.clause("E8b")
def test_what_takes_its_worker_down_goes_to_the_back(w: Wakes) -> None:
    assert w.clock is not None
    w.start("bad-1", "bad-2")
    w.clock.advance(seconds=1)
    w.start("good")
    claimed: list[str] = []
    for _ in range(3):  # a worker that dies of what it claims, and starts again
        w.clock.advance(seconds=90)
        claimed += [row["execution_id"] for row in w.claim(most=2)]
    assert "good" in claimed


@pytest.mark.clause("E8a")
def test_a_first_claim_leaves_the_instant_as_it_is(w: Wakes) -> None:
    assert w.clock is not None
    w.start("a")
    due = w.wakes("a")["drive"]["wake_at"]
    w.clock.advance(seconds=5)
    assert [row["attempts"] for row in w.claim()] == [1]
    assert w.wakes("a")["drive"]["wake_at"] == due
    now = w.clock.advance(seconds=90)
    assert [(row["attempts"], row["wake_at"]) for row in w.claim()] == [(2, due)]
    assert w.wakes("a")["drive"]["wake_at"] == now


@pytest.mark.clause("E8a")
def test_a_later_instant_of_what_is_claimed_again_stays(w: Wakes) -> None:
    assert w.clock is not None
    w.parked("a", arms=[{"topic": "news"}, {"for": 86400}])
    later = w.wakes("a")["timer"]["wake_at"]
    w.message("a")
    for _ in range(2):
        assert len(w.claim()) == 1
        w.clock.advance(seconds=90)
    assert w.wakes("a")["timer"]["wake_at"] == later


@pytest.mark.clause("E7e")
def test_nothing_is_hidden_while_the_clock_catches_up_with_a_floor(w: Wakes) -> None:
    assert w.clock is not None
    w.clock.advance(days=30)
    for _ in range(2):  # the first look is a sweep, and the next sweep lies ahead too
        assert w.claim() == []
        w.clock.advance(seconds=6)
    w.clock.advance(days=-30)
    w.start("a")
    w.clock.advance(seconds=30)
    assert [row["execution_id"] for row in w.claim()] == ["a"]
    floor = w.row("select floor_at from underseal.wake_floor where flow = %s", FLOW)["floor_at"]
    assert floor < w.clock.now()


@pytest.mark.clause("E7e")
def test_a_flow_without_a_name_is_no_flow(w: Wakes) -> None:
    w.start("a")
    rows = w.rows("select * from underseal.claim_due('w1', %s::text[], %s)", [None, FLOW], MINUTE)
    assert [row["execution_id"] for row in rows] == ["a"]


@pytest.mark.parametrize("delay", ["1000000 years", "-1000000 years", "366 days"])
def test_a_delay_that_no_instant_holds_is_refused(w: Wakes, delay: str) -> None:
    w.start("a")
    w.claim()
    row = w.row("select * from underseal.release_claim('a', 'w1', %s::interval)", delay)
    assert (row["outcome"], row["reason"]) == ("refused", "malformed-delay")


def test_an_input_that_cannot_be_read_is_refused_in_words(w: Wakes) -> None:
    row = w.row(
        """select * from underseal.add_schedule('s', 'backup', '0 3 * * *', 'UTC', %s, 'ann', %s::json)""",
        timedelta(hours=1), '{"a": "\\u0000"}',
    )  # fmt: skip
    assert (row["outcome"], row["reason"]) == ("refused", "unreadable")
    assert "U+0000" in row["message"]


def test_a_schedule_that_runs_again_tells_the_instant_that_is_due(w: Wakes, database: TestDatabase) -> None:
    w.add("nightly", first_in=MINUTE)
    w.row("select * from underseal.pause_schedule('nightly', 'ann')")
    # a clock that goes on between one reading and the next
    database.connect().execute("""
        grant usage on sequence underseal.test_clock to public;
        create or replace function underseal.clock() returns timestamptz language sql volatile
        as $$ select timestamptz 'epoch' + nextval('underseal.test_clock') * interval '1 microsecond' $$;
        alter sequence underseal.test_clock increment by 700000""")
    row = w.row("select * from underseal.pause_schedule('nightly', 'ann', false, %s)", MINUTE)
    due = w.row("select wake_at from underseal.wake where chain_id = 'nightly'")["wake_at"]
    assert (row["outcome"], row["due_at"]) == ("resumed", due)


@pytest.mark.clause("E2a")
@pytest.mark.parametrize("edit", ["fence = 9223372036854775807", "last_inbox_seq = 9223372036854775807"])
def test_nobody_takes_a_number_to_the_end_of_its_range(w: Wakes, edit: str) -> None:
    w.start("a")
    with pytest.raises(psycopg.Error, match="to grow step by step") as refused:
        w.rows(f"update underseal.execution set {edit}")
    assert refused.value.sqlstate == "US002"


@pytest.mark.clause("E7e")
def test_attempts_at_the_end_of_their_range_stop_no_claim(w: Wakes) -> None:
    w.start("a", "b")
    w.rows("update underseal.wake set attempts = 2147483647 where chain_id = 'a'")
    assert {row["execution_id"]: row["attempts"] for row in w.claim()} == {"a": 2147483647, "b": 1}
