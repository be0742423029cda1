"""What is due is claimed: once, for a lease, with a new fence."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.wake.wakes import FLOW, MINUTE, Wakes, claimed, outcome
from underseal.testing import OWNER, TestClock, TestDatabase

HOUR = timedelta(hours=1)
NEWS = {"topic": "news"}


@pytest.mark.clause("E2b", "E7e")
def test_a_claim_takes_a_new_fence_and_tells_all_a_driver_needs(w: Wakes) -> None:
    w.start("a")
    before = w.execution("a")
    (claim,) = w.claim()

    assert outcome(claim) == ("claimed", None)
    assert claim["fence"] == before["fence"] + 1 == w.execution("a")["fence"]
    assert (claim["kind"], claim["execution_id"], claim["flow"], claim["flow_version"]) == (
        "drive",
        "a",
        FLOW,
        1,
    )
    assert (claim["status"], claim["head"], claim["attempts"], claim["cancel_requested"]) == (
        "pending",
        0,
        1,
        False,
    )
    assert claim["incarnation"] == before["incarnation"]
    (stale,) = w.write(
        {"verb": "append", "execution_id": "a", "fence": before["fence"], "events": [{"type": "X"}]}
    )
    assert outcome(stale) == ("conflict", "stale-fence")
    w.complete(claim)


def test_what_is_claimed_is_nobody_elses(w: Wakes, v: Wakes) -> None:
    w.start("a")
    assert claimed(w.claim()) == ["a"]
    assert v.claim("w2") == []
    assert w.claim() == []


@pytest.mark.clause("E8b")
def test_a_claim_that_ran_out_is_claimable_and_its_attempts_are_counted(
    w: Wakes, v: Wakes, clock: TestClock
) -> None:
    w.start("a")
    (first,) = w.claim()
    clock.advance(seconds=59.999999)
    assert v.claim("w2") == []
    clock.advance(microseconds=1)
    (second,) = v.claim("w2")
    assert (second["attempts"], second["fence"]) == (2, first["fence"] + 1)
    assert w.renew("a") == {"a": "lost"}
    assert w.wakes("a")["drive"]["claimed_by"] == "w2"
    (stale,) = w.write({**w.mine(first), "verb": "complete"})
    assert outcome(stale) == ("conflict", "stale-fence")


@pytest.mark.clause("E8a")
def test_a_driver_that_is_answered_at_its_park_keeps_its_claim(w: Wakes, v: Wakes, clock: TestClock) -> None:
    w.start("a", "b")
    w.claim("w0")
    clock.advance(seconds=61)
    mine = {claim["execution_id"]: w.mine(claim) for claim in w.claim()}
    for one in "ab":
        w.row("select * from underseal.send(%s, 'news', '1', 'ann')", one)
    before = w.wakes("a")["drive"]
    assert (before["claimed_by"], before["attempts"]) == ("w1", 2)
    clock.advance(seconds=1)
    wait = [{"wait": "w", "arms": [NEWS]}]
    told = w.write(
        {**mine["a"], "verb": "park", "waits": wait},
        {**mine["b"], "verb": "park", "waits": [{"wait": "w", "arms": [{"topic": "other"}]}]},
    )
    assert [row["outcome"] for row in told] == ["answered", "parked"]
    after = w.wakes("a")["drive"]
    for name in ("claimed_by", "claimed_until", "attempts"):
        assert after[name] == before[name], name
    assert v.claim("w2") == []
    assert w.renew("a", "b") == {"a": "renewed", "b": "lost"}
    # whoever parks gives it up: the next one begins anew
    w.row("select * from underseal.send('b', 'other', '1', 'ann')")
    (claim,) = v.claim("w2")
    assert (claim["execution_id"], claim["attempts"]) == ("b", 1)


@pytest.mark.clause("E8a")
def test_two_that_are_answered_at_their_parks_keep_their_own_claims(w: Wakes, v: Wakes) -> None:
    mine = {}
    for one, driver, worker in (("a", w, "w1"), ("b", v, "w2")):
        w.start(one)
        (claim,) = driver.claim(worker)
        mine[one] = w.mine(claim)
        w.row("select * from underseal.send(%s, 'news', '1', 'ann')", one)
    wait = [{"wait": "w", "arms": [NEWS]}]
    w.done(*({**mine[one], "verb": "park", "waits": wait} for one in "ab"))
    assert [w.wakes(one)["drive"]["claimed_by"] for one in "ab"] == ["w1", "w2"]


def test_who_starts_what_they_drive_has_claimed_it(w: Wakes, clock: TestClock) -> None:
    w.start("a", worker="w1", lease="60 seconds")
    assert w.claim("w2") == []
    assert w.renew("a") == {"a": "renewed"}
    clock.advance(seconds=61)
    assert claimed(w.claim("w2")) == ["a"]


def test_a_start_put_off_is_due_when_its_time_comes(w: Wakes, clock: TestClock) -> None:
    w.start("a", after="90 seconds")
    assert w.claim() == []
    assert w.next_due(FLOW) == 90
    clock.advance(seconds=90)
    assert claimed(w.claim()) == ["a"]


@pytest.mark.clause("E7e")
def test_timer_and_message_of_one_execution_are_one_claim(w: Wakes, clock: TestClock) -> None:
    w.parked("a", arms=({"for": 30}, NEWS))
    clock.advance(seconds=40)
    w.message("a")
    (claim,) = w.claim()
    assert (claim["kind"], claim["status"]) == ("timer", "suspended")
    assert {kind: wake["claimed_by"] for kind, wake in w.wakes("a").items()} == {"timer": "w1", "inbox": "w1"}
    assert w.claim("w2") == []


@pytest.mark.clause("E7e")
def test_a_claim_covers_what_is_due_later(w: Wakes, clock: TestClock) -> None:
    w.parked("a", arms=({"for": 30}, NEWS))
    w.message("a")
    (claim,) = w.claim(lease=2 * MINUTE)
    assert claim["kind"] == "inbox"
    clock.advance(seconds=60)
    assert w.claim("w2") == []
    assert w.renew("a", lease=2 * MINUTE) == {"a": "renewed"}
    assert {wake["claimed_until"] for wake in w.wakes("a").values()} == {clock.now() + 2 * MINUTE}
    clock.advance(seconds=120)
    assert claimed(w.claim("w2")) == ["a"]


@pytest.mark.clause("E7e")
def test_a_message_for_what_is_claimed_is_passed_by_and_costs_nobody_a_place(
    w: Wakes, clock: TestClock
) -> None:
    w.parked("a", "b", arms=({"for": 30}, NEWS))
    clock.advance(seconds=40)
    assert len(w.claim()) == 2
    w.message("a")
    w.message("b")
    clock.advance(seconds=1)
    w.start("c")
    assert claimed(w.claim("w2", most=1)) == ["c"]
    assert w.claim("w2") == []


@pytest.mark.clause("E7e")
def test_whoever_claims_a_wait_goes_on_with_the_run_under_the_same_claim(w: Wakes, clock: TestClock) -> None:
    w.parked("a", arms=({"for": 30},))
    clock.advance(seconds=30)
    (claim,) = w.claim()
    delivered = w.row("select * from underseal.deliver(%s, %s)", "a", claim["fence"])
    assert delivered["answered"] == 1
    (drive,) = w.wakes("a").values()
    assert (drive["kind"], drive["claimed_by"], drive["claimed_until"]) == (
        "drive",
        "w1",
        clock.now() + MINUTE,
    )
    assert w.claim("w2") == []
    w.complete(claim)
    assert w.wakes("a") == {}


@pytest.mark.clause("E7a")
def test_a_message_that_is_sent_wakes_who_waits_for_it(w: Wakes) -> None:
    w.parked("a")
    assert w.claim() == []
    sent = w.row("select * from underseal.send('a', 'news', '1', 'ann')")
    assert sent["outcome"] == "sent"
    (claim,) = w.claim()
    assert (claim["kind"], claim["status"]) == ("inbox", "suspended")


def test_the_oldest_comes_first_and_no_more_than_asked(w: Wakes, clock: TestClock) -> None:
    for name in ("c", "a", "b"):
        w.start(name)
        clock.advance(seconds=1)
    assert claimed(w.claim(most=2)) == ["c", "a"]
    assert claimed(w.claim(most=2)) == ["b"]


def test_flows_take_turns(w: Wakes, clock: TestClock) -> None:
    w.start(*(f"a{n}" for n in range(10)), flow="busy")
    clock.advance(seconds=1)
    w.start("b0", "b1", flow="calm")
    assert sorted(claimed(w.claim(flows=["busy", "calm", "busy"], most=4))) == ["a0", "a1", "b0", "b1"]
    assert len(w.claim(flows=["busy", "calm"], most=4)) == 4


def test_a_flow_without_workers_starves_nobody(w: Wakes, clock: TestClock) -> None:
    w.start(*(f"x{n}" for n in range(50)), flow="unserved")
    clock.advance(seconds=1)
    w.start("a")
    assert claimed(w.claim(most=1)) == ["a"]
    assert w.claim(flows=["another"]) == []
    assert w.claim(flows=[]) == []


def test_other_kinds_of_wakes_are_not_claimed(w: Wakes) -> None:
    w.parked("a")
    w.rows(
        "insert into underseal.wake (chain_id, member, kind, flow, wake_at)"
        " values ('a', '', 'refusal', %s, underseal.clock()), ('a', '', 'schedule', '', underseal.clock())", FLOW,
    )  # fmt: skip
    assert w.claim() == []
    w.message("a")
    assert claimed(w.claim()) == ["a"]
    others = w.rows("select claimed_by from underseal.wake where kind in ('refusal', 'schedule')")
    assert others == [{"claimed_by": None}] * 2


@pytest.mark.parametrize("kind", ["drive", "inbox"])
def test_wakes_of_what_has_ended_or_vanished_are_retired(w: Wakes, clock: TestClock, kind: str) -> None:
    w.start("ended")
    w.complete(w.claim()[0])
    for name in ("ended", "vanished"):
        w.rows(
            "insert into underseal.wake (chain_id, member, kind, flow, wake_at)"
            " values (%s, '', %s, %s, underseal.clock())", name, kind, FLOW,
        )  # fmt: skip
    fence = w.execution("ended")["fence"]
    assert w.claim() == []
    assert w.rows("select chain_id from underseal.wake") == [{"chain_id": "vanished"}]
    clock.advance(seconds=10)  # it takes a sweep
    assert w.claim() == []
    assert w.rows("select 1 from underseal.wake") == []
    assert w.execution("ended")["fence"] == fence


@pytest.mark.parametrize(
    "lease", [None, timedelta(0), timedelta(milliseconds=999), HOUR + timedelta(microseconds=1)]
)
def test_a_malformed_lease_is_refused(w: Wakes, lease: timedelta | None) -> None:
    w.start("a")
    assert [outcome(row) for row in w.claim(lease=lease)] == [("refused", "malformed-claim")]
    assert w.wakes("a")["drive"]["claimed_by"] is None
    assert [*w.renew("a", lease=lease).values()] == ["refused"]
    assert [outcome(row) for row in w.claim_schedules(lease=lease)] == [("refused", "malformed-claim")]


@pytest.mark.parametrize("most", [None, 0, -1, 10_001])
def test_a_malformed_number_is_refused(w: Wakes, most: int | None) -> None:
    w.start("a")
    assert [outcome(row) for row in w.claim(most=most)] == [("refused", "malformed-claim")]
    assert claimed(w.claim(most=10_000, lease=HOUR)) == ["a"]


def test_the_shortest_lease_is_a_second(w: Wakes, clock: TestClock) -> None:
    w.start("a")
    assert claimed(w.claim(lease=timedelta(seconds=1))) == ["a"]
    clock.advance(seconds=1)
    assert claimed(w.claim("w2")) == ["a"]


@pytest.mark.clause("E13b")
def test_a_worker_bound_to_its_login_may_use_no_other_name(w: Wakes, database: TestDatabase) -> None:
    role = database.create_role("worker")
    w.rows(
        "select underseal.grant_access(%s, 'worker', 'login'), underseal.map_login(%s, 'node1')", role, role
    )
    w.start("a")
    bound = Wakes(database.connect(role))
    for answers in (
        bound.claim("w1"), bound.claim(""), bound.claim_schedules("w1"),
        bound.rows("select * from underseal.renew_claims('w1', '{a}', '1 minute')"),
        bound.rows("select * from underseal.release_claim('a', 'w1')"),
        bound.rows("select * from underseal.release_claims('w1', '{a}')"),
    ):  # fmt: skip
        assert [outcome(row) for row in answers] == [("denied", "no-principal")]
    assert claimed(bound.claim("node1")) == ["a"]


@pytest.mark.parametrize("access", ["client", "approver", "operator", "reader", "sealer"])
def test_only_workers_may_claim(w: Wakes, database: TestDatabase, access: str) -> None:
    role = database.create_role(access)
    w.rows("select underseal.grant_access(%s, %s)", role, access)
    other = Wakes(database.connect(role))
    for call in (other.claim, other.claim_schedules, lambda: other.renew("a"), lambda: other.next_due(FLOW)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            call()


@pytest.mark.parametrize(
    "call",
    [
        "claim_due('w1', '{onboard}', '1 minute')", "renew_claims('w1', '{a}', '1 minute')", "release_claim('a', 'w1')",
        "claim_schedules('w1', '1 minute')", "add_schedule('s', 'f', '* * * * *', 'UTC', '1 minute', 'ann')",
        "pause_schedule('s', 'ann')", "remove_schedule('s', 'ann')",
        "fire_schedule('s', 'w1', underseal.clock(), gen_random_uuid(), '{}', '1 minute')",
        "put_off_schedule('s', 'w1', underseal.clock(), gen_random_uuid(), 'x')",
    ],
)  # fmt: skip
def test_another_isolation_level_is_refused(w: Wakes, call: str) -> None:
    w.rows("set default_transaction_isolation = 'repeatable read'")
    with pytest.raises(psycopg.DatabaseError) as caught:
        w.rows(f"select * from underseal.{call}")
    assert caught.value.sqlstate == "US008"


def test_renewing_counts_from_now(w: Wakes, clock: TestClock) -> None:
    w.start("a", "b")
    w.claim()
    clock.advance(seconds=50)
    assert w.renew("a", "b", "a", "none", lease=2 * MINUTE) == {
        "a": "renewed",
        "b": "renewed",
        "none": "lost",
    }
    clock.advance(seconds=119)
    assert w.claim("w2") == []
    clock.advance(seconds=1)
    assert len(w.claim("w2")) == 2


def test_a_claim_that_ran_out_may_be_renewed_while_nobody_else_has_it(w: Wakes, clock: TestClock) -> None:
    w.start("a")
    w.claim()
    clock.advance(hours=1)
    assert w.renew("a") == {"a": "renewed"}
    assert w.claim("w2") == []


def test_nobody_renews_or_releases_anothers_claim(w: Wakes, clock: TestClock) -> None:
    w.start("a")
    w.claim()
    assert w.renew("a", worker="w2") == {"a": "lost"}
    assert outcome(w.release("a", "w2")) == ("lost", None)
    assert w.wakes("a")["drive"]["claimed_until"] == clock.now() + MINUTE


def test_an_old_instant_is_renewed_too_but_seldom(w: Wakes, clock: TestClock) -> None:
    w.start("a")
    began = clock.now()
    w.claim(lease=HOUR)
    clock.advance(minutes=5)
    w.renew("a")
    assert w.wakes("a")["drive"]["wake_at"] == began
    now = clock.advance(seconds=1)
    w.renew("a")
    assert w.wakes("a")["drive"]["wake_at"] == now


def test_what_is_given_back_is_due_as_it_was_or_later(w: Wakes, clock: TestClock) -> None:
    w.start("a")
    (first,) = w.claim()
    assert outcome(w.release("a")) == ("released", None)
    assert outcome(w.release("a")) == ("lost", None)
    (second,) = w.claim("w2")
    assert (second["fence"], second["attempts"]) == (first["fence"] + 1, 1)

    assert outcome(w.release("a", "w2", retry_in=timedelta(days=1))) == ("released", None)
    clock.advance(hours=23, minutes=59)
    assert w.claim() == []
    clock.advance(minutes=1)
    assert claimed(w.claim()) == ["a"]


@pytest.mark.clause("E8b")
@pytest.mark.parametrize("retry_in", [None, timedelta(0), timedelta(seconds=5)])
def test_what_is_given_back_was_no_crash(w: Wakes, clock: TestClock, retry_in: timedelta | None) -> None:
    w.start("a")
    for _ in range(2):
        w.claim()
        clock.advance(minutes=2)
    assert [row["attempts"] for row in w.claim()] == [3]
    w.release("a", retry_in=retry_in)
    clock.advance(seconds=5)
    assert [row["attempts"] for row in w.claim("w2")] == [1]
    clock.advance(minutes=2)
    assert [row["attempts"] for row in w.claim()] == [2], "and this worker is gone"


@pytest.mark.clause("E8a")
@pytest.mark.parametrize("due", ["timer", "inbox"])
def test_who_dies_after_it_has_answered_a_wait_is_known_to_be_gone(
    w: Wakes, clock: TestClock, due: str
) -> None:
    w.parked("a", arms=({"for": 30}, NEWS))
    if due == "timer":
        clock.advance(seconds=30)
    else:
        w.row("select * from underseal.send('a', 'news', '1', 'ann')")
    (claim,) = w.claim()
    assert w.row("select * from underseal.deliver(%s, %s)", "a", claim["fence"])["answered"] == 1
    assert w.wakes("a")["drive"]["attempts"] == 1
    clock.advance(minutes=2)
    (again,) = w.claim("w2")
    assert (again["kind"], again["attempts"]) == ("drive", 2)


@pytest.mark.parametrize("retry_in", [timedelta(microseconds=-1), timedelta(days=365, microseconds=1)])
def test_a_malformed_delay_is_refused(w: Wakes, retry_in: timedelta) -> None:
    w.start("a")
    w.claim()
    assert outcome(w.release("a", retry_in=retry_in)) == ("refused", "malformed-delay")
    assert w.wakes("a")["drive"]["claimed_by"] == "w1"


def test_a_day_is_24_hours_in_every_zone(w: Wakes, clock: TestClock) -> None:
    w.rows("set timezone = 'Europe/Berlin'")
    clock.set(clock.now().replace(year=2027, month=3, day=27, hour=12))
    w.start("a")
    w.claim()
    w.release("a", retry_in=timedelta(days=1))
    assert w.next_due(FLOW) == 86400


def test_many_claims_are_given_back_at_once(w: Wakes) -> None:
    w.start("a", "b", "c")
    w.claim()
    rows = w.rows("select * from underseal.release_claims('w1', '{a,c,none}')")
    assert {row["execution_id"]: row["outcome"] for row in rows} == {
        "a": "released",
        "c": "released",
        "none": "lost",
    }
    assert claimed(w.claim("w2")) == ["a", "c"]


def test_a_worker_knows_how_long_it_may_sleep(w: Wakes, clock: TestClock) -> None:
    assert w.next_due(FLOW) is None
    w.start("late", after="3600 seconds")
    assert w.next_due(FLOW) == 3600
    assert w.next_due("another") is None
    w.start("a")
    assert w.next_due(FLOW, "another") == 0
    w.claim()
    clock.advance(seconds=10)
    assert w.next_due(FLOW) == 50
    w.add(first_in=timedelta(seconds=5))
    assert (w.next_due(FLOW), w.next_due(FLOW, schedules=True)) == (50, 5)
    clock.advance(hours=2)
    assert w.next_due(FLOW, schedules=True) == 0


def test_wake_lag_tells_what_waits_for_how_long(w: Wakes, clock: TestClock) -> None:
    w.start("a", "b", "c")
    w.start("later", after="1000 seconds")
    w.claim(most=2)
    clock.advance(seconds=30)
    w.claim(most=1)
    lag = w.row("select * from underseal.wake_lag")
    assert (lag["flow"], lag["kind"], lag["due"], lag["claimed"], lag["expired"], lag["later"]) == (
        FLOW, "drive", 0, 3, 0, 1
    )  # fmt: skip
    assert (lag["lag"], lag["attempts"]) == (None, 1)
    clock.advance(seconds=40)
    lag = w.row("select * from underseal.wake_lag")
    assert (lag["due"], lag["claimed"], lag["expired"], lag["later"]) == (2, 1, 2, 1)
    assert lag["lag"] == timedelta(seconds=70)


def test_what_was_committed_late_is_found_by_the_sweep(w: Wakes, clock: TestClock) -> None:
    began = clock.now()
    assert w.claim() == []
    clock.set(began + MINUTE)
    assert w.claim() == []
    assert w.row("select * from underseal.wake_floor")["floor_at"] == began + timedelta(seconds=50)
    # committed only now, by a transaction that began long ago
    clock.set(began + timedelta(seconds=20))
    w.start("late")
    clock.set(began + timedelta(seconds=66))
    assert w.claim() == []
    clock.set(began + timedelta(seconds=71))
    assert claimed(w.claim()) == ["late"]


def test_the_floor_stays_below_what_is_left(w: Wakes, clock: TestClock) -> None:
    began = clock.now()
    w.start("a")
    w.claim(lease=HOUR)
    for _ in range(5):
        clock.advance(minutes=3)
        assert w.claim("w2") == []
        assert w.row("select * from underseal.wake_floor")["floor_at"] == began - timedelta(seconds=10)
    clock.advance(hours=1)
    assert claimed(w.claim("w2")) == ["a"]


def test_a_wakes_flow_is_empty_for_a_schedule_only(w: Wakes, database: TestDatabase) -> None:
    owner = database.connect(OWNER)
    for flow, kind in (("", "drive"), (FLOW, "schedule")):
        with pytest.raises(psycopg.errors.CheckViolation):
            owner.execute(
                "insert into underseal.wake (chain_id, member, kind, flow, wake_at)"
                " values ('a', '', %s, %s, underseal.clock())", [kind, flow],
            )  # fmt: skip
