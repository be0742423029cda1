"""Races that were lost in the field, each by its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Barrier
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Json

from tests.races.log_audit import World, audit
from tests.races.log_rivals import LEASE, OWNER, PARK, STEP, Case, Ring, Rival, Row, item, starting, told
from underseal.testing import OWNER as LOGIN
from underseal.testing import unique_name

pytestmark = pytest.mark.clause("T4b")

MIB: Final = 1024 * 1024


def everything(ring: Ring, chain: str) -> object:
    """Every row of a chain."""
    return World.of(ring.admin, chain).tables


def types(rival: Rival, execution_id: str) -> list[str]:
    """The types of an execution's events, in order."""
    chain, _, member = execution_id.partition("~")
    rows = rival.rows(
        "select type from underseal.event where chain_id = %s and member = %s order by seq", chain, member
    )
    return [row["type"] for row in rows]


def meet(
    ring: Ring, first: Callable[[Rival], Any], second: Callable[[Rival], Any], *, undone: bool = False
) -> tuple[Any, Any]:
    """One acts and stays in its transaction, the other comes to wait for it, the first ends."""
    with ring.a.connection.transaction(force_rollback=undone):
        one = first(ring.a)
        work = ring.background(lambda: second(ring.b))
        assert ring.waits(ring.b, work), "the second did not wait"
    return one, work.result(20)


# ---- an event and a wait ----


def parking(case: Case, *arms: Row) -> Callable[[Rival], list[Row]]:
    """Park on one wait."""
    waits = [{"wait": "w", "arms": list(arms)}]
    return lambda rival: rival.done(item("park", case.id, case.fence, events=STEP, waits=waits))


def sending(case: Case) -> Callable[[Rival], Row]:
    """Send to topic bell."""
    return lambda rival: rival.call("send", case.id, "bell", Json("rings"), OWNER)


def answering(case: Case) -> Callable[[Rival], Row]:
    """Answer gate ok."""
    return lambda rival: rival.call("resume_gate", case.id, "ok", Json("yes"), OWNER)


EVENTS: Final = {"message": (sending, {"topic": "bell"}), "gate": (answering, {"gate": "ok"})}


@pytest.mark.clause("E7a", "E7c", "I1b")
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_an_event_before_its_wait(log_ring: Ring, event: str, continued: bool, together: bool) -> None:
    """The park finds what is there already, also what comes to be there while it waits for its lock."""
    case, (act, arm) = log_ring.stage("running", continued), EVENTS[event]
    if together:
        _, parked = meet(log_ring, act(case), parking(case, arm))
    else:
        act(case)(log_ring.a)
        parked = parking(case, arm)(log_ring.b)
    assert told(parked) == [("answered", None)]
    assert types(log_ring.a, case.id)[-2:] == ["EXECUTION_SUSPENDED", "MESSAGE_CONSUMED"]
    world = case.world(log_ring.admin)
    audit(world)
    assert [wake["kind"] for wake in world.tables["wake"]] == ["drive"]


@pytest.mark.clause("E7a", "E7c", "I1b")
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_a_wait_before_its_event(log_ring: Ring, event: str, continued: bool, together: bool) -> None:
    """The event finds the wait, also one that is recorded while it waits for its lock, and wakes whoever drives it."""
    case, (act, arm) = log_ring.stage("running", continued), EVENTS[event]
    if together:
        meet(log_ring, parking(case, arm), act(case))
    else:
        parking(case, arm)(log_ring.a)
        act(case)(log_ring.b)
    world = case.world(log_ring.admin)
    audit(world)
    assert [wake["kind"] for wake in world.tables["wake"]] == ["inbox"]
    (claim,) = log_ring.a.calls("claim_due", "w", [case.flow], LEASE, 1)
    assert (claim["kind"], claim["execution_id"]) == ("inbox", case.id)
    assert log_ring.a.call("deliver", case.id, claim["fence"])["answered"] == 1
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E7a")
@pytest.mark.parametrize("undone", ["event", "park"])
def test_neither_is_lost_with_what_was_undone(log_ring: Ring, undone: str) -> None:
    case = log_ring.stage("running")
    park, send = parking(case, {"topic": "bell"}), sending(case)
    if undone == "event":
        _, parked = meet(log_ring, send, park, undone=True)
        assert told(parked) == [("parked", None)]
        send(log_ring.a)
    else:
        meet(log_ring, park, send, undone=True)
        assert told(park(log_ring.a)) == [("answered", None)]
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E7b")
def test_a_timer_that_is_due_while_the_park_waits_for_its_lock(log_ring: Ring) -> None:
    case = log_ring.stage("running")
    with log_ring.c.connection.transaction():
        log_ring.c.rows("select from underseal.execution where chain_id = %s for no key update", case.chain)
        work = log_ring.background(lambda: parking(case, {"for": 30})(log_ring.a))
        assert log_ring.waits(log_ring.a, work)
        log_ring.clock.advance(seconds=60)
    assert told(work.result(20)) == [("parked", None)]
    assert log_ring.a.call("next_due", [case.flow])["seconds"] == 30
    log_ring.clock.advance(seconds=30)
    (claim,) = log_ring.a.calls("claim_due", "w", [case.flow], LEASE, 1)
    assert claim["kind"] == "timer"
    assert log_ring.a.call("deliver", case.id, claim["fence"])["answered"] == 1
    audit(case.world(log_ring.admin))


# ---- who drives ----


def observe(case: Case, incarnation: UUID | None = None) -> dict[str, Callable[[Rival], Row]]:
    """Everything a driver may do by what it observed."""
    seen = (case.id, case.head, case.fence, incarnation or case.incarnation)
    return {
        "append": lambda rival: rival.call("append", case.id, case.fence, Json(STEP)),
        "append_if_unchanged": lambda rival: rival.call("append_if_unchanged", *seen, Json(STEP)),
        "batch": lambda rival: rival.write(
            item("append", case.id, case.fence, incarnation=str(incarnation or case.incarnation), events=STEP)
        )[0],
        "acquire_fence_if": lambda rival: rival.call("acquire_fence_if", *seen),
        "recover": lambda rival: rival.call("recover_execution", *seen, "w", LEASE),
        "deliver": lambda rival: rival.call("deliver", case.id, case.fence),
        "save_snapshot": lambda rival: rival.call("save_snapshot", case.id, case.fence, case.head, Json(1)),
        "put_content": lambda rival: rival.call("put_content", case.id, Json(1), case.fence),
    }


BY_INCARNATION: Final = ("append_if_unchanged", "batch", "acquire_fence_if", "recover")
BY_FENCE: Final = ("append", "deliver", "save_snapshot", "put_content")


@pytest.mark.clause("E2a", "E2b", "E8a")
@pytest.mark.parametrize("verb", ["complete", "fail", "cancelled", "append", "park", "continue"])
def test_a_stale_driver_of_the_same_name_is_refused(log_ring: Ring, verb: str) -> None:
    """A node that was restarted under its old name is another driver: the name is no guard, the fence is."""
    case, a, b = log_ring.stage("running"), log_ring.a, log_ring.b
    (old,) = a.calls("claim_due", "node-1", [case.flow], LEASE, 1)
    log_ring.clock.advance(minutes=2)
    (new,) = b.calls("claim_due", "node-1", [case.flow], LEASE, 1)
    assert new["fence"] > old["fence"]
    before = everything(log_ring, case.chain)
    (answer,) = a.write(item(verb, case.id, old["fence"], events=STEP, waits=[], output=1))
    assert told([answer]) == [("conflict", "stale-fence")]
    assert everything(log_ring, case.chain) == before
    b.done(item("complete", case.id, new["fence"], output=2))
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2b", "E8a")
@pytest.mark.parametrize("undone", [False, True])
def test_a_completion_that_waits_behind_the_claim_of_its_own_name(log_ring: Ring, undone: bool) -> None:
    case = log_ring.stage("running")
    (old,) = log_ring.b.calls("claim_due", "node-1", [case.flow], LEASE, 1)
    log_ring.clock.advance(minutes=2)
    (claims, (answer,)) = meet(
        log_ring,
        lambda rival: rival.calls("claim_due", "node-1", [case.flow], LEASE, 1),
        lambda rival: rival.write(item("complete", case.id, old["fence"], output=1)),
        undone=undone,
    )
    assert len(claims) == 1
    assert told([answer]) == ([("completed", None)] if undone else [("conflict", "stale-fence")])
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2c", "E8a")
@pytest.mark.parametrize("same_name", [False, True])
@pytest.mark.parametrize("undone", [False, True])
def test_two_that_recover_one_execution(log_ring: Ring, same_name: bool, undone: bool) -> None:
    """One wins; the other writes nothing and takes no fence, whatever it calls itself."""
    case = log_ring.stage("running")

    def recover(rival: Rival) -> Row:
        name = "node-1" if same_name else rival.name
        return rival.call("recover_execution", case.id, case.head, case.fence, case.incarnation, name, LEASE)

    one, other = meet(log_ring, recover, recover, undone=undone)
    assert one["outcome"] == "recovered"
    assert told([other]) == ([("recovered", None)] if undone else [("conflict", "stale-fence")])
    assert types(log_ring.a, case.id).count("EXECUTION_RECOVERED") == 1
    state = log_ring.a.state(case.id)
    assert (state["fence"], state["head"]) == (case.fence + 1, case.head + 1)
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E8a")
@pytest.mark.parametrize("undone", [False, True])
def test_a_recovery_that_waits_for_a_renewal(log_ring: Ring, undone: bool) -> None:
    """A driver that was taken for dead renews its claim just then: whether it lives is judged under the lock."""
    case = log_ring.stage("running")
    (claim,) = log_ring.c.calls("claim_due", "node-1", [case.flow], LEASE, 1)
    log_ring.clock.advance(minutes=2)
    observed = (case.id, claim["head"], claim["fence"], claim["incarnation"])
    _, answer = meet(
        log_ring,
        lambda rival: rival.calls("renew_claims", "node-1", [case.id], LEASE),
        lambda rival: rival.call("recover_execution", *observed, "node-2", LEASE),
        undone=undone,
    )
    assert told([answer]) == ([("recovered", None)] if undone else [("conflict", "claimed")])
    (wake,) = case.world(log_ring.admin).tables["wake"]
    assert wake["claimed_by"] == ("node-2" if undone else "node-1")
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2c")
@pytest.mark.parametrize("verb", ["acquire_fence_if", "append_if_unchanged", "recover_execution"])
@pytest.mark.parametrize("undone", [False, True])
def test_what_was_observed_before_another_wrote_holds_no_more(
    log_ring: Ring, verb: str, undone: bool
) -> None:
    case = log_ring.stage("running")
    more: dict[str, tuple[object, ...]] = {
        "append_if_unchanged": (Json(STEP),),
        "recover_execution": ("w", LEASE),
    }
    observed = (case.id, case.head, case.fence, case.incarnation, *more.get(verb, ()))
    _, answer = meet(
        log_ring,
        lambda rival: rival.call("append", case.id, case.fence, Json(STEP)),
        lambda rival: rival.call(verb, *observed),
        undone=undone,
    )
    assert answer["reason"] == (None if undone else "moved")
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2a", "E2b", "E2c")
@pytest.mark.parametrize("name", [*BY_INCARNATION, *BY_FENCE])
@pytest.mark.parametrize("undone", [False, True])
def test_what_was_observed_before_another_took_the_fence_holds_no_more(
    log_ring: Ring, name: str, undone: bool
) -> None:
    case = log_ring.stage("running")
    _, answer = meet(
        log_ring, lambda rival: rival.call("acquire_fence", case.id), observe(case)[name], undone=undone
    )
    assert answer["reason"] == (None if undone else "stale-fence")
    audit(case.world(log_ring.admin), {case.place: case.fence + (not undone)})


@pytest.mark.clause("E2d")
@pytest.mark.parametrize("name", BY_INCARNATION)
def test_what_was_observed_of_another_incarnation_is_gone(log_ring: Ring, name: str) -> None:
    """Head and fence alone would say that it is the same."""
    case = log_ring.stage("running")
    untouched = everything(log_ring, case.chain)
    answer = observe(case, uuid4())[name](log_ring.a)
    assert told([answer]) == [("conflict", "gone")]
    assert everything(log_ring, case.chain) == untouched


@pytest.mark.clause("E2c")
@pytest.mark.parametrize("verb", ["acquire_fence", "acquire_fence_if"])
@pytest.mark.parametrize("undone", [False, True])
def test_nobody_takes_the_fence_of_what_ended_meanwhile(log_ring: Ring, verb: str, undone: bool) -> None:
    case = log_ring.stage("running")
    seen = (case.head, case.fence, case.incarnation) if verb == "acquire_fence_if" else ()
    _, answer = meet(
        log_ring,
        lambda rival: rival.done(item("complete", case.id, case.fence)),
        lambda rival: rival.call(verb, case.id, *seen),
        undone=undone,
    )
    assert answer["reason"] == (None if undone else "ended")
    assert log_ring.a.state(case.id)["fence"] == case.fence + undone


# ---- who starts ----


@pytest.fixture
def crowd(log_ring: Ring) -> Iterator[list[Rival]]:
    """Eight sessions more."""
    rivals = [Rival(log_ring.database.connect(LOGIN), f"r{number}") for number in range(8)]
    yield rivals
    for rival in rivals:
        rival.connection.close()


STARTS: Final[dict[str, Callable[[Rival, str], Row]]] = {
    "start_execution": lambda rival, one: rival.call(
        "start_execution", "f", rival.name, Json(rival.name), one
    ),
    "batch": lambda rival, one: rival.write(starting(one, principal=rival.name))[0],
    "fork": lambda rival, one: rival.call("fork_execution", rival.name, 0, OWNER, one),
}


@pytest.mark.clause("E3")
@pytest.mark.parametrize("how", STARTS)
def test_many_that_start_one_id(log_ring: Ring, crowd: list[Rival], how: str) -> None:
    for rival in crowd:
        rival.name = unique_name("r")
        if how == "fork":
            rival.start(rival.name)
    for _ in range(10):
        one, barrier = unique_name("x"), Barrier(len(crowd))

        def start(rival: Rival, one: str = one, barrier: Barrier = barrier) -> str:
            barrier.wait(20)
            return str(STARTS[how](rival, one)["outcome"])

        works = [log_ring.background(lambda rival=rival: start(rival)) for rival in crowd]  # type: ignore[misc]
        outcomes = Counter(work.result(20) for work in works)
        assert outcomes == {"forked" if how == "fork" else "started": 1, "exists": len(crowd) - 1}
        audit(World.of(log_ring.admin, one))


@pytest.mark.clause("E3")
@pytest.mark.parametrize("first", STARTS)
@pytest.mark.parametrize("second", STARTS)
@pytest.mark.parametrize("undone", [False, True])
def test_a_start_that_waits_for_another_of_its_id(
    log_ring: Ring, first: str, second: str, undone: bool
) -> None:
    log_ring.a.rows("select from underseal.start_execution('f', 'ann', null, 'a')")
    log_ring.a.rows("select from underseal.start_execution('f', 'ann', null, 'b')")
    one = unique_name("x")
    _, other = meet(
        log_ring,
        lambda rival: STARTS[first](rival, one),
        lambda rival: STARTS[second](rival, one),
        undone=undone,
    )
    assert other["outcome"] == ("forked" if second == "fork" else "started") if undone else "exists"
    audit(World.of(log_ring.admin, one))


# ---- a chain that goes, and its id that comes again ----


def replace(ring: Ring, case: Case, how: str) -> Callable[[Rival], None]:
    """End an execution, delete its chain and start another of its id that is as far."""

    def act(rival: Rival) -> None:
        rival.call("cancel_execution", case.id, OWNER, None, True)
        if how == "purge":
            rival.calls("purge_executions", timedelta(), 100000)
        else:
            assert rival.call("delete_chain", case.chain, "op")["outcome"] == "deleted"
        rival.start(case.chain, flow=case.flow)

    return act


@pytest.mark.clause("E2d", "E2e", "I6b")
@pytest.mark.parametrize("how", ["delete", "purge"])
def test_an_id_that_is_taken_again(log_ring: Ring, how: str) -> None:
    case, rival = log_ring.stage("running"), log_ring.a
    before = case.world(log_ring.admin).fences()
    replace(log_ring, case, how)(rival)
    new = rival.state(case.id)
    assert new["fence"] > case.fence + 1, "above the fence that the cancelling took"
    rival.done(item("append", case.id, new["fence"], events=STEP))
    untouched = everything(log_ring, case.chain)
    for name, act in observe(case).items():
        expected = "gone" if name in BY_INCARNATION else "stale-fence"
        assert told([act(rival)]) == [("conflict", expected)], name
    assert everything(log_ring, case.chain) == untouched
    world = case.world(log_ring.admin)
    audit(world, before)
    assert not world.tables["inbox_message"]
    assert rival.call("acquire_fence", case.id)["fence"] == new["fence"] + 1


@pytest.mark.clause("E2e")
def test_an_id_that_is_taken_again_and_again(log_ring: Ring) -> None:
    case, rival = log_ring.stage("running"), log_ring.a
    fences = [case.fence]
    for how in ("delete", "purge", "delete"):
        fences.append(rival.call("acquire_fence", case.id)["fence"])
        replace(log_ring, case, how)(rival)
        fences.append(rival.state(case.id)["fence"])
    assert fences == sorted(set(fences))
    audit(case.world(log_ring.admin), {case.place: fences[-1]})


@pytest.mark.clause("E2d", "E2e")
@pytest.mark.parametrize("name", [*BY_INCARNATION, *BY_FENCE])
def test_a_driver_that_waits_while_the_id_is_taken_again(log_ring: Ring, name: str) -> None:
    """It waited for a row that is gone, and must not take the new one's place for its own."""
    case = log_ring.stage("running")
    act = replace(log_ring, case, "delete")
    _, answer = meet(log_ring, act, observe(case)[name])
    assert answer["outcome"] in ("not-found", "conflict")
    assert answer["reason"] in (None, "gone", "stale-fence")
    assert types(log_ring.a, case.id) == ["EXECUTION_STARTED"]
    audit(case.world(log_ring.admin), {case.place: case.fence + 1})


@pytest.mark.clause("E2d", "E2e")
def test_a_delivery_to_many_that_waits_while_the_id_is_taken_delivers_nothing(log_ring: Ring) -> None:
    """Not even where it names the fence that the new one has: that one came after the locks."""
    case = log_ring.stage("running")
    fence = case.fence + 2

    def act(rival: Rival) -> None:
        replace(log_ring, case, "delete")(rival)
        assert rival.state(case.id)["fence"] == fence
        rival.done(item("park", case.id, fence, waits=PARK))
        rival.call("send", case.id, "bell", Json(1), OWNER)

    wanted = Json([{"execution_id": case.id, "fence": fence}])
    _, answer = meet(log_ring, act, lambda rival: rival.call("deliver_batch", wanted))
    assert told([answer]) == [("not-found", None)]
    assert types(log_ring.a, case.id) == ["EXECUTION_STARTED", "EXECUTION_SUSPENDED"]
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2d", "E12c")
@pytest.mark.parametrize(
    "verb",
    [
        "send",
        "resume_gate",
        "cancel_execution",
        "migrate_execution",
        "record_outcome",
        "fork_execution",
        "discard_inbox",
    ],
)
def test_a_caller_that_waits_while_the_id_is_taken_by_another_owner(log_ring: Ring, verb: str) -> None:
    case = log_ring.stage("running")
    arguments: dict[str, tuple[object, ...]] = {
        "send": ("bell", Json(1), OWNER),
        "resume_gate": ("go", Json(1), OWNER),
        "cancel_execution": (OWNER,),
        "migrate_execution": (2, OWNER),
        "record_outcome": (Json(1), OWNER),
        "fork_execution": (0, OWNER, unique_name("x")),
        "discard_inbox": ("news", "op"),
    }

    def act(rival: Rival) -> None:
        rival.call("cancel_execution", case.id, OWNER, None, True)
        rival.call("delete_chain", case.chain, "op")
        rival.done(starting(case.chain, case.flow, principal="bob"))

    _, answer = meet(log_ring, act, lambda rival: rival.call(verb, case.id, *arguments[verb]))
    assert told([answer]) == [("denied", "execution")]
    assert types(log_ring.a, case.id) == ["EXECUTION_STARTED"]
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E6c", "I6b")
@pytest.mark.parametrize("how", ["deleted", "taken again", "undone"])
def test_a_child_that_waits_for_the_deletion_of_its_chain(log_ring: Ring, how: str) -> None:
    """It comes into the chain that it found, or not at all."""
    case = log_ring.stage("ended")
    child = f"{case.chain}~kid"

    def delete(rival: Rival) -> None:
        assert rival.call("delete_chain", case.chain, "op")["outcome"] == "deleted"
        if how == "taken again":
            rival.start(case.chain)

    _, answer = meet(log_ring, delete, lambda rival: rival.write(starting(child))[0], undone=how == "undone")
    assert told([answer]) == [("started" if how == "undone" else "not-found", None)]
    assert types(log_ring.a, child) == (["EXECUTION_STARTED"] if how == "undone" else [])
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E6c", "I6b")
@pytest.mark.parametrize("how", ["delete", "purge", "by hand"])
@pytest.mark.parametrize("undone", [False, True])
def test_a_deletion_that_waits_for_a_child(log_ring: Ring, how: str, undone: bool) -> None:
    """No child is left behind without its chain."""
    case = log_ring.stage("ended")
    child = f"{case.chain}~kid"
    with log_ring.a.connection.transaction(force_rollback=undone):
        log_ring.a.done(starting(child))
        if how == "purge":
            # which waits for nobody
            assert case.chain not in {
                row["chain_id"] for row in log_ring.b.calls("purge_executions", timedelta(), 100000)
            }
            return
        work = log_ring.background(
            lambda: (
                log_ring.b.call("delete_chain", case.chain, "op")
                if how == "delete"
                else log_ring.b.rows("delete from underseal.execution where chain_id = %s", case.chain)
            )
        )
        assert log_ring.waits(log_ring.b, work)
    if how == "delete":
        assert told([work.result(20)]) == [("deleted", None) if undone else ("conflict", "open")]
    elif not undone:
        with pytest.raises(psycopg.Error) as caught:
            work.result(20)
        assert caught.value.sqlstate == "US007"
    else:
        work.result(20)
    assert types(log_ring.a, child) == ([] if undone else ["EXECUTION_STARTED"])
    assert types(log_ring.a, case.chain)[:1] == ([] if undone else ["EXECUTION_STARTED"])
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2e")
@pytest.mark.parametrize("how", ["delete", "purge"])
@pytest.mark.parametrize("undone", [False, True])
def test_a_start_that_waits_for_the_deletion_of_its_id(log_ring: Ring, how: str, undone: bool) -> None:
    case = log_ring.stage("ended")

    def delete(rival: Rival) -> None:
        if how == "delete":
            rival.call("delete_chain", case.chain, "op")
        else:
            rival.calls("purge_executions", timedelta(), 100000)

    _, answer = meet(log_ring, delete, lambda rival: rival.write(starting(case.chain))[0], undone=undone)
    assert answer["outcome"] == ("exists" if undone else "started")
    if not undone:
        assert answer["fence"] > case.fence
    audit(case.world(log_ring.admin), {case.place: case.fence})


# ---- a batch whose items are not all good ----


def text_of(size: int) -> Row:
    """Data whose JSON has so many bytes, or a few more."""
    return {"text": "x" * size}


@pytest.mark.clause("E2f")
def test_a_batch_with_bad_items_and_good_neighbours(log_ring: Ring) -> None:
    a = log_ring.a
    good, stale, large, ended, last = ids = [unique_name(f"x{number}") for number in range(5)]
    a.start(*ids)
    a.done(item("complete", ended, 1))
    before = {one: everything(log_ring, one) for one in (stale, large, ended)}
    answers = a.write(
        item("append", large, 1, events=[*STEP, {"type": "BIG", "data": text_of(MIB)}]),
        item("append", good, 1, events=STEP),
        item("append", stale, 7, events=STEP),
        item("append", unique_name("nobody"), 1, events=STEP),
        item("append", ended, 1, events=STEP),
        item("append", good, 1, events=STEP),
        item("nonsense", stale, 1),
        item("park", last, 1, waits=[{"wait": "w", "arms": [{"topic": "t"}]}]),
        starting(good),
        starting(one := unique_name("new")),
    )
    assert told(answers) == [
        ("refused", "too-large"),
        ("appended", None),
        ("conflict", "stale-fence"),
        ("not-found", None),
        ("conflict", "ended"),
        ("conflict", "same-execution"),
        ("conflict", "same-execution"),
        ("parked", None),
        ("conflict", "same-execution"),
        ("started", None),
    ]
    assert [answer["item"] for answer in answers] == list(range(1, 11))
    assert {name: everything(log_ring, name) for name in before} == before
    assert types(a, good) == ["EXECUTION_STARTED", "STEP_COMPLETED"]
    audit(World.of(log_ring.admin, *ids, one))


@pytest.mark.clause("E2f")
def test_what_came_after_a_batch_took_its_locks_is_not_there_yet(log_ring: Ring) -> None:
    """It is not locked, so nothing may be written to it; its neighbour is written."""
    case, late = log_ring.stage("running"), unique_name("x")
    with log_ring.a.connection.transaction():
        log_ring.a.call("acquire_fence", case.id)
        work = log_ring.background(
            lambda: log_ring.b.write(
                item("append", case.id, case.fence + 1, events=STEP), item("append", late, 1, events=STEP)
            )
        )
        assert log_ring.waits(log_ring.b, work)
        log_ring.c.start(late)
    assert told(work.result(20)) == [("appended", None), ("not-found", None)]
    assert types(log_ring.a, late) == ["EXECUTION_STARTED"]
    log_ring.b.done(item("append", late, 1, events=STEP))
    audit(World.of(log_ring.admin, case.chain, late), {case.place: case.fence + 1})


@pytest.mark.clause("E2f", "E2b")
def test_a_batch_judges_each_item_by_what_it_waited_for(log_ring: Ring) -> None:
    """While it waits, one of its executions gets another driver and one ends; their neighbour is written."""
    _, fenced, ended = ids = [unique_name(f"x{number}") for number in range(3)]
    log_ring.a.start(*ids)

    def act(rival: Rival) -> None:
        rival.call("cancel_execution", ended, OWNER, None, True)
        rival.call("acquire_fence", fenced)

    _, answers = meet(
        log_ring, act, lambda rival: rival.write(*(item("append", one, 1, events=STEP) for one in ids))
    )
    assert told(answers) == [("appended", None), ("conflict", "stale-fence"), ("conflict", "stale-fence")]
    audit(World.of(log_ring.admin, *ids))


# ---- a payload of 1 MiB ----


def json_of(size: int) -> str:
    """JSON text of so many bytes, an object."""
    frame = '{"text":""}'
    return frame[:-2] + "x" * (size - len(frame)) + frame[-2:]


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("how", ["append", "append_if_unchanged", "batch", "complete", "start", "outcome"])
def test_a_payload_of_one_mebibyte_and_one_byte_more(log_ring: Ring, how: str) -> None:
    case, rival = log_ring.stage("running"), log_ring.a

    def write(text: str) -> Row:
        # as text, since the limit is on the bytes of the JSON as it came
        event = f'[{{"type":"BIG","data":{text}}}]'
        batch = f'[{{"verb":"append","execution_id":"{case.id}","fence":1,"events":{event}}}]'
        end = f'[{{"verb":"complete","execution_id":"{case.id}","fence":1,"output":{text}}}]'
        query, *arguments = {
            "append": ("append(%s, %s, %s::json)", case.id, case.fence, event),
            "append_if_unchanged": (
                "append_if_unchanged(%s, %s, %s, %s, %s::json)",
                case.id, case.head, case.fence, case.incarnation, event,
            ),
            "batch": ("append_batch(%s::json)", batch),
            "complete": ("append_batch(%s::json)", end),
            "start": ("start_execution('f', 'ann', %s::json)", text),
            "outcome": ("record_outcome(%s, %s::json, 'ann')", case.id, text),
        }[how]  # fmt: skip
        (row,) = rival.rows(f"select * from underseal.{query}", *arguments)
        return row

    before = everything(log_ring, case.chain)
    refused = write(json_of(MIB + 1))
    assert told([refused]) == [("refused", "too-large")]
    assert "1 MiB" in refused["message"]
    assert everything(log_ring, case.chain) == before
    assert write(json_of(MIB))["reason"] is None
    audit(case.world(log_ring.admin))


@pytest.mark.clause("E2f")
def test_two_events_of_one_mebibyte_are_two(log_ring: Ring) -> None:
    case = log_ring.stage("running")
    events = [{"type": "BIG", "data": {"text": "x" * (MIB - 20)}}] * 2
    log_ring.a.done(item("append", case.id, 1, events=events))
    audit(case.world(log_ring.admin))
