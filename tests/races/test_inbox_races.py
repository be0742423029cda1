"""Sends, parks, deliveries and discards that meet: nothing is lost, nothing comes twice, a topic keeps its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.held.sql.kernel import outcome
from tests.inbox.box import Box, box
from tests.races.arena import Arena
from underseal.testing import in_background, wait_blocked

pytestmark = pytest.mark.clause("T4b")
Act = Callable[[Box], Any]


@pytest.fixture
def b(arena: Arena) -> Iterator[Box]:
    """An execution that runs, in session a; audited at the end."""
    made = box(arena.a, "inbox-race")
    yield made
    if arena.a.rows("select from underseal.execution where chain_id = %s", made.chain):
        made.on(arena.a).audit()


def meet(
    arena: Arena,
    b: Box,
    first: Act,
    second: Act,
    rollback: bool = False,
    meanwhile: Callable[[], object] | None = None,
) -> tuple[Any, Any]:
    """Session a acts and stays in its transaction, session b acts and waits for it."""
    return arena.race(
        lambda k: first(b.on(k)), lambda k: second(b.on(k)), rollback=rollback, meanwhile=meanwhile
    )


def send(b: Box) -> str:
    return str(b.send("a", message_id="m")["outcome"])


def park(b: Box) -> str:
    return b.park(w=["a"])


def settle(b: Box) -> None:
    """What a worker does that the wakes call."""
    while b.status == "suspended" and "inbox" in b.wakes():
        b.take()
        b.deliver()


@pytest.mark.clause("E7a")
def test_a_park_that_waits_for_a_send_is_answered(arena: Arena, b: Box) -> None:
    assert meet(arena, b, send, park) == ("sent", "answered")
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7a")
def test_a_park_that_waits_for_a_send_that_is_undone_is_parked(arena: Arena, b: Box) -> None:
    assert meet(arena, b, send, park, rollback=True) == ("sent", "parked")
    assert (b.wakes(), b.pending()) == ([], [])
    assert send(b) == "sent"
    assert b.wakes() == ["inbox"]


@pytest.mark.clause("E7a")
def test_a_send_that_waits_for_a_park_wakes(arena: Arena, b: Box) -> None:
    assert meet(arena, b, park, send) == ("parked", "sent")
    assert b.wakes() == ["inbox"]
    settle(b)
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7a")
def test_a_send_that_waits_for_a_park_that_is_undone_is_found_by_the_next(arena: Arena, b: Box) -> None:
    assert meet(arena, b, park, send, rollback=True) == ("parked", "sent")
    assert b.wakes() == ["drive"]
    assert park(b) == "answered"


@contextmanager
def held_up(arena: Arena, statement: str, *parameters: Any, rollback: bool = True) -> Iterator[None]:
    """Session c does something and stays in its transaction."""
    with arena.c.connection.transaction(force_rollback=rollback):
        arena.c.connection.execute(statement, parameters)
        yield


@pytest.mark.clause("E7a")
@pytest.mark.parametrize("order", [(send, park), (park, send)], ids=["send-park", "park-send"])
def test_both_wait_for_the_row_and_come_in_their_order(arena: Arena, b: Box, order: tuple[Act, Act]) -> None:
    with held_up(
        arena,
        "select from underseal.execution where chain_id = %s and member = '' for no key update",
        b.chain,
    ):
        waiting = []
        for act, k in zip(order, (arena.a, arena.b), strict=True):
            waiting.append(in_background(act, b.on(k)))
            wait_blocked(arena.admin, k.connection.info.backend_pid)
    for one in waiting:
        one.result(10)
    settle(b)
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7a")
def test_a_send_meets_a_park_that_is_half_done(arena: Arena, b: Box) -> None:
    with held_up(
        arena, "select from underseal.wake where chain_id = %s and kind = 'drive' for update", b.chain
    ):
        parking = in_background(park, b.on(arena.a))
        wait_blocked(arena.admin, arena.a.connection.info.backend_pid)
        sending = in_background(send, b.on(arena.b))
        wait_blocked(arena.admin, arena.b.connection.info.backend_pid)
    assert (parking.result(10), sending.result(10)) == ("parked", "sent")
    assert b.wakes() == ["inbox"]
    settle(b)
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7a")
def test_a_park_meets_a_send_that_is_half_done(arena: Arena, b: Box) -> None:
    with held_up(arena, "lock table underseal.inbox_message in share mode"):
        sending = in_background(send, b.on(arena.a))
        wait_blocked(arena.admin, arena.a.connection.info.backend_pid)
        parking = in_background(park, b.on(arena.b))
        wait_blocked(arena.admin, arena.b.connection.info.backend_pid)
    assert (sending.result(10), parking.result(10)) == ("sent", "answered")
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7a", "I6a")
@pytest.mark.parametrize("order", [(send, park), (park, send)], ids=["send-park", "park-send"])
def test_a_send_to_a_line_meets_the_park_of_the_one_that_goes_on(
    arena: Arena, b: Box, order: tuple[Act, Act]
) -> None:
    b.go_on()
    meet(arena, b, *order)
    settle(b)
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7a", "I1a")
def test_a_message_that_comes_during_a_delivery_is_not_lost(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    first = b.put("a")

    def sent(b: Box) -> int:
        return b.put("a")

    answer, second = meet(arena, b, lambda b: b.deliver()["answered"], sent)
    assert answer == 1
    assert b.delivered() == [("w", first)]
    assert b.park(w2=["a"]) == "answered"
    assert b.delivered()[1:] == [("w2", second)]


@pytest.mark.clause("E7a")
def test_a_message_that_comes_during_a_delivery_of_nothing_wakes(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    b.discard("a")
    answer, _ = meet(arena, b, lambda b: b.deliver()["outcome"], lambda b: b.put("a"))
    assert answer == "none"
    assert b.wakes() == ["inbox"]


@pytest.mark.clause("I2b")
@pytest.mark.parametrize("rollback", [False, True])
def test_of_two_sends_of_one_id_one_is_sent(arena: Arena, b: Box, rollback: bool) -> None:
    one, other = meet(
        arena, b, lambda b: b.send("a", message_id="m"), lambda b: b.send("a", message_id="m"), rollback
    )
    assert (one["outcome"], other["outcome"]) == ("sent", "sent" if rollback else "duplicate")
    assert (one["inbox_seq"], other["inbox_seq"]) == (1, 1)
    assert b.pending() == [1]


@pytest.mark.clause("I1a")
@pytest.mark.parametrize("rollback", [False, True])
def test_two_senders_get_numbers_in_the_order_in_which_they_commit(
    arena: Arena, b: Box, rollback: bool
) -> None:
    one, other = meet(arena, b, lambda b: b.put("a"), lambda b: b.put("b"), rollback)
    assert (one, other) == (1, 1 if rollback else 2)
    assert b.pending() == ([1] if rollback else [1, 2])


@pytest.mark.clause("I4")
def test_the_last_place_of_a_topic_is_taken_once(arena: Arena, b: Box) -> None:
    b.fill("a", 999)
    one, other = meet(arena, b, lambda b: outcome(b.send("a")), lambda b: outcome(b.send("a")))
    assert (one, other) == (("sent", None), ("refused", "inbox-full"))


@pytest.mark.clause("I3b")
def test_a_discard_that_waits_for_a_send_takes_it_along(arena: Arena, b: Box) -> None:
    _, discarded = meet(arena, b, send, lambda b: b.discard("a")["discarded"])
    assert (discarded, b.pending()) == (1, [])


@pytest.mark.clause("I3b")
def test_a_send_that_waits_for_a_discard_stays(arena: Arena, b: Box) -> None:
    b.put("a")
    meet(arena, b, lambda b: b.discard("a"), send)
    assert (b.told(), b.pending()) == ([("discarded", 1)], [2])


@pytest.mark.clause("I6a")
@pytest.mark.parametrize("rollback", [False, True])
def test_a_send_that_waits_for_a_continuation_goes_to_the_one_that_goes_on(
    arena: Arena, b: Box, rollback: bool
) -> None:
    b.go_on()
    old = b.id
    _, sent = meet(arena, b, lambda b: b.go_on(), lambda b: b.put("a"), rollback)
    assert sent == 1
    if not rollback:
        b.id, b.fence = f"{b.chain}~3", 1
    b.park(w=["a"])
    assert [event["member"] for event in b.log() if event["type"] == "MESSAGE_CONSUMED"] == [b.place[1]]
    assert (b.id == old) == rollback


@pytest.mark.clause("I6a")
@pytest.mark.parametrize("hops", [0, 1])
def test_a_continuation_that_waits_for_a_send_takes_it_along(arena: Arena, b: Box, hops: int) -> None:
    for _ in range(hops):
        b.go_on()
    _, after = meet(arena, b, send, lambda b: b.go_on().id)
    b.id, b.fence = after, 1
    assert b.park(w=["a"]) == "answered"


def end(b: Box) -> str:
    return str(b.write("cancelled", reason="no")["outcome"])


def test_a_send_that_waits_for_the_end_is_refused(arena: Arena, b: Box) -> None:
    ended, sent = meet(arena, b, end, lambda b: outcome(b.send("a")))
    assert (ended, sent) == ("cancelled", ("conflict", "ended"))
    assert b.pending() == []


def test_a_send_that_waits_for_an_end_that_is_undone_is_sent(arena: Arena, b: Box) -> None:
    assert meet(arena, b, end, send, rollback=True) == ("cancelled", "sent")


def test_an_end_that_waits_for_a_send_ends(arena: Arena, b: Box) -> None:
    assert meet(arena, b, send, end) == ("sent", "cancelled")
    assert (b.status, b.pending(), b.wakes()) == ("cancelled", [1], [])


def delete(b: Box) -> str:
    return str(b.k.call("delete_chain", b.chain, "op")["outcome"])


@pytest.mark.clause("I6b", "E12c")
@pytest.mark.parametrize("act", [lambda b: b.send("a"), lambda b: b.discard("a")], ids=["send", "discard"])
def test_who_waits_for_a_deletion_is_denied(arena: Arena, b: Box, act: Act) -> None:
    b.put("a")
    end(b)
    deleted, answer = meet(arena, b, delete, act)
    assert (deleted, outcome(answer)) == ("deleted", ("denied", "execution"))
    for table in ("execution", "event", "inbox_message", "inbox_cursor", "inbox_seen", "wake"):
        assert not arena.a.rows(f"select from underseal.{table} where chain_id = %s", b.chain)
    (denial,) = arena.a.rows("select cause from underseal.execution_denial where execution_id = %s", b.id)
    assert denial["cause"] == "missing"


@pytest.mark.clause("I6b", "E12c")
def test_who_waits_for_a_deletion_is_denied_although_the_id_is_taken_again(arena: Arena, b: Box) -> None:
    b.put("a")
    end(b)

    def anew(b: Box) -> None:
        assert delete(b) == "deleted"
        Box(b.k, b.id, owner="eve").start()

    _, answer = meet(arena, b, anew, lambda b: b.send("a"))
    assert outcome(answer) == ("denied", "execution")
    assert b.pending() == []


@pytest.mark.clause("I6b")
def test_a_deletion_that_waits_for_a_send_takes_it_along(arena: Arena, b: Box) -> None:
    b.send("a", message_id="m")
    b.park(w=["a"])
    end(b)
    again, deleted = meet(arena, b, lambda b: b.send("a", message_id="m")["outcome"], delete)
    assert (again, deleted) == ("duplicate", "deleted")
    assert b.pending() == []


@pytest.mark.clause("G16")
def test_of_two_consumers_one_consumes_and_the_other_writes_nothing(arena: Arena, b: Box) -> None:
    b.park(w=["a"], w2=["a"])
    b.put("a")
    found = b.next()
    head = b.execution()["head"]
    one, other = meet(arena, b, lambda b: b.consume(found), lambda b: b.consume(found))
    assert (outcome(one), outcome(other)) == (("consumed", None), ("conflict", "stale"))
    assert b.execution()["head"] == head + 1
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("G16")
def test_the_second_consumer_consumes_if_the_first_is_undone(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    _, other = meet(arena, b, lambda b: b.consume(found), lambda b: b.consume(found), rollback=True)
    assert other["outcome"] == "consumed"
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("G16", "I3b")
def test_a_consumer_that_waits_for_a_discard_writes_nothing(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    _, answer = meet(arena, b, lambda b: b.discard("a"), lambda b: b.consume(found))
    assert outcome(answer) == ("conflict", "stale")
    assert b.told() == [("discarded", 1)]


@pytest.mark.clause("G16", "I3b")
def test_a_discard_that_waits_for_a_consumer_finds_nothing(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    _, whole = meet(arena, b, lambda b: b.consume(found), lambda b: outcome(b.discard("a")))
    assert whole == ("unchanged", None)
    assert outcome(b.discard("a", number=1)) == ("conflict", "moved")
    assert b.told() == [("delivered", 1)]


@pytest.mark.clause("G16", "I1b")
def test_a_consumer_that_waits_for_a_send_to_an_earlier_arm_takes_that_first(arena: Arena, b: Box) -> None:
    b.park(w=["a", "b"])
    b.put("b")
    found = b.next()
    _, answer = meet(arena, b, send, lambda b: b.consume(found))
    assert outcome(answer) == ("conflict", "stale")
    assert b.next()["topic"] == "a"


@pytest.mark.clause("G16", "E7a")
def test_a_send_that_waits_for_a_consumer_waits_for_the_next_park(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    meet(arena, b, lambda b: b.consume(found), send)
    assert (b.wakes(), b.pending()) == (["drive"], [2])
    assert b.park(w2=["a"]) == "answered"


@pytest.mark.clause("E2b", "G16")
@pytest.mark.parametrize("verb", ["deliver", "consume"])
def test_who_waits_for_a_new_fence_delivers_nothing(arena: Arena, b: Box, verb: str) -> None:
    b.park(w=["a"])
    b.put("a")
    found = b.next()
    fence, answer = meet(
        arena, b, lambda b: b.take(), lambda b: b.consume(found) if verb == "consume" else b.deliver()
    )
    assert outcome(answer) == ("conflict", "stale-fence")
    assert b.facts() == []
    b.fence = fence
    assert b.deliver()["answered"] == 1


@pytest.mark.clause("E2b", "G16")
def test_a_new_fence_that_waits_for_a_delivery_finds_nothing_left(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    answer, fence = meet(arena, b, lambda b: b.deliver()["answered"], lambda b: b.take())
    b.fence = fence
    assert (answer, b.deliver()["outcome"]) == (1, "none")
    assert b.delivered() == [("w", 1)]


def behind(arena: Arena, b: Box, act: Act, **duration: float) -> Any:
    """Let a call wait for a lock whose holder changes nothing, and let time pass meanwhile."""
    _, answer = meet(
        arena,
        b,
        lambda b: b.k.rows(
            "select from underseal.execution where chain_id = %s and member = %s for no key update", *b.place
        ),
        act,
        meanwhile=lambda: arena.clock.advance(**duration),
    )
    return answer


@pytest.mark.clause("I3c")
def test_what_expires_while_a_delivery_waits_is_not_delivered(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a", expires="10 seconds")
    assert behind(arena, b, lambda b: b.deliver()["outcome"], seconds=10) == "none"
    assert b.told() == [("expired", 1)]


@pytest.mark.clause("I3c", "G16")
def test_what_expires_while_a_consumer_waits_is_not_consumed(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a", expires="10 seconds")
    found = b.next()
    assert outcome(behind(arena, b, lambda b: b.consume(found), seconds=10)) == ("conflict", "stale")


@pytest.mark.clause("E7b")
def test_an_instant_that_comes_while_a_delivery_waits_is_answered(arena: Arena, b: Box) -> None:
    b.park(w=[10.0])
    assert behind(arena, b, lambda b: b.deliver()["answered"], seconds=10) == 1


@pytest.mark.clause("I3c")
def test_a_message_expires_after_the_time_it_was_sent_for_not_asked_for(arena: Arena, b: Box) -> None:
    behind(arena, b, lambda b: b.put("a", expires="10 seconds"), seconds=30)
    (row,) = b.listed()
    assert (row["sent_at"], (row["expires_at"] - row["sent_at"]).total_seconds()) == (arena.clock.now(), 10)


@pytest.mark.clause("I3c")
@pytest.mark.parametrize("member", ["", "2"])
def test_a_sweep_passes_by_what_somebody_holds(arena: Arena, b: Box, member: str) -> None:
    free = box(arena.a)
    for _ in range(len(member)):
        b.go_on()
    for one in (b, free):
        one.put("a", expires="1 second")
    arena.clock.advance(seconds=1)
    lock = "select from underseal.execution where chain_id = %s and member = %s for no key update"
    with held_up(arena, lock, b.chain, member):
        free.expire()
        assert (free.told(), b.told()) == ([("expired", 1)], [])
    b.expire()
    assert b.told() == [("expired", 1)]


@pytest.mark.clause("I3c")
def test_many_of_one_that_is_held_hide_no_other(arena: Arena, b: Box) -> None:
    free = box(arena.a)
    for _ in range(5):
        b.put("a", expires="1 second")
    free.put("a", expires="2 seconds")
    arena.clock.advance(seconds=2)
    lock = "select from underseal.execution where chain_id = %s and member = '' for no key update"
    with held_up(arena, lock, b.chain):
        assert free.expire(1) == 1
        assert free.told() == [("expired", 1)]
    assert b.expire() == 5


@pytest.mark.clause("I3c")
def test_a_delivery_that_waits_for_a_sweep_finds_it_done(arena: Arena, b: Box) -> None:
    b.park(w=["a"])
    b.put("a", expires="1 second")
    arena.clock.advance(seconds=1)
    _, answer = meet(arena, b, lambda b: b.expire(), lambda b: b.deliver()["outcome"])
    assert answer == "none"
    assert b.told() == [("expired", 1)]


@pytest.mark.clause("G8", "G16")
def test_a_refusal_is_judged_again_under_the_lock(arena: Arena, b: Box) -> None:
    b.seal(b.put("a"))
    b.park(w=["a"])
    arena.a.do("delete from underseal.wake where chain_id = %s", b.chain)
    _, answer = meet(arena, b, lambda b: b.discard("a"), lambda b: b.next())
    assert answer["outcome"] == "none"
    assert b.wakes() == []
    assert not arena.a.rows("select from underseal.operator_report where subject = %s", b.id)


@pytest.mark.clause("G16", "E2b")
def test_a_refusal_under_a_fence_that_is_gone_leaves_nothing(arena: Arena, b: Box) -> None:
    b.seal(b.put("a"))
    b.park(w=["a"])
    _, answer = meet(arena, b, lambda b: b.take(), lambda b: b.next())
    assert outcome(answer) == ("conflict", "stale-fence")
    assert not arena.a.rows("select from underseal.operator_report where subject = %s", b.id)


@pytest.mark.clause("E12c", "I3a")
@pytest.mark.parametrize(
    "act", [lambda b: b.send("a", who="eve"), lambda b: b.discard("a", who="")], ids=["send", "discard"]
)
def test_who_is_denied_waits_for_nobody(arena: Arena, b: Box, act: Act) -> None:
    lock = "select from underseal.execution where chain_id = %s and member = '' for no key update"
    with held_up(arena, lock, b.chain):
        assert act(b)["outcome"] == "denied"
        assert b.send("a", '{"__loomEnc": "x"}')["outcome"] == "refused"
        assert b.listed() == []
