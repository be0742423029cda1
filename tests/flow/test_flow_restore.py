"""A flow's state as a document, and executions that go on from one as their own (clauses E6, E9)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.nodes import OWNER, World, a_world, until
from tests.flow.stories import Story, come_to, program, replayed, story
from underseal.errors import (
    AccessDenied,
    ChildFailed,
    ExecutionAlreadyExistsError,
    ExecutionDeniedError,
    ExecutionRefusedError,
    HoldEnded,
    StepError,
)
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.flow.ids import child_id
from underseal.flow.state import Event, Recorded
from underseal.flow.transfer import carried, checked_state
from underseal.log.client import Executions
from underseal.testing import DictConnection, TestDatabase

RUNS: Counter[str] = Counter()
OTHERS = ("child", "hold", "pick")


@pytest.fixture(scope="module", autouse=True)
def no_chance() -> Iterator[None]:
    """What a flow draws behind its log is always the same."""
    with patch("underseal.flow.context.random_bytes", lambda size: b"\7" * size):
        yield


@pytest.fixture(autouse=True)
def forget() -> None:
    """Nothing has run yet."""
    RUNS.clear()


def ran(name: str, result: Any = None) -> Any:
    """A step that counts."""
    RUNS[name] += 1
    return result


def as_restored(log: list[Event], version: int) -> list[Event]:
    """The log of an execution that goes on from what another log had come to."""
    told = carried(Recorded(log).events())
    start = {"flow": "story", "flow_version": version, "owner": "bob", "input": told["input"]}
    restored = {
        "flow_version": told["began_as"], "events": told["events"], "not_carried": told["not_carried"],
    }  # fmt: skip
    return [("EXECUTION_STARTED", start), ("STATE_RESTORED", json.loads(json.dumps(restored)))]


def without_others(operations: list[Any]) -> list[Any]:
    """A program that begins neither children nor held operations."""
    kept = [op for op in operations if op[0] not in OTHERS]
    return [[*op[:2], *(without_others(inner) for inner in op[2:])] for op in kept]


# -- what goes along -------------------------------------------------------------------------------


@pytest.mark.clause("E6f", "E9c")
@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_a_restored_flow_has_come_as_far_as_the_other(seed: int) -> None:
    random = Random(seed)
    log = Story(random, without_others(program(random))).told()
    for at in range(1, len(log) + 1):
        there, here = replayed(story, log[:at]), replayed(story, as_restored(log[:at], 9))
        expected = come_to(there)
        # what it was asked and what it waits for is its own
        expected |= {"owner": "bob", "waits": {}, "version": 9, "cancels": [], "cancel_requested": False}
        for number, op in expected["ops"].items():
            if op[4] is not None:
                expected["ops"][number] = (*op[:4], None, f"{number}:retry:{op[2]}", op[6])
        got = come_to(here)
        if expected["end"] is not None and there.version != 9:
            del expected["end"], got["end"]  # the version of its last line is the new one's
        assert got == expected, at


@pytest.mark.clause("E6f")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_was_under_way_a_restored_flow_is_no_divergence_and_owns_nothing(seed: int) -> None:
    random = Random(seed)
    log = Story(random, program(random)).told()
    for at in range(1, len(log) + 1):
        replay = replayed(story, as_restored(log[:at], 1))
        assert replay.begun == {}
        assert replay.cancels == []
        assert all(op.intent is None or op.future.done() for op in replay.ops.values())
        again = replayed(story, as_restored(as_restored(log[:at], 1), 1))
        assert come_to(again) == come_to(replay)


@flow("story")
async def waiting(ctx: FlowContext, _: Any) -> list[Any]:
    """Begins things, and asks for their ends later."""
    child, held, late = ctx.child("other", 1, name="one"), ctx.hold("pay", {}), ctx.hold("late", {})
    told: list[Any] = [await ctx.run("s", ran, "s")]
    for arm in (child, held, late):
        try:
            told.append(await arm)
        except ChildFailed as error:
            told.append([error.execution_id, error.status, error.error])
        except HoldEnded as error:
            told.append([error.operation_id, error.state, error.reason])
        except StepError as error:
            told.append([error.step, error.type])
    return told


@pytest.mark.clause("E6f")
def test_what_had_not_told_its_end_is_listed_and_its_waits_are_answered() -> None:
    log: list[Event] = [
        ("EXECUTION_STARTED", {"flow": "story", "flow_version": 1, "owner": "ann", "input": None}),
        ("CHILD_STARTED", {"op": 1, "name": "one", "flow": "other", "execution_id": "old~one-1"}),
        ("HOLD_REQUESTED", {"op": 2, "type": "pay", "operation_id": "11"}),
        ("HOLD_REQUESTED", {"op": 3, "type": "late", "operation_id": "22"}),
        ("HOLD_OPENED", {"op": 2, "type": "pay", "operation_id": "11"}),
        ("STEP_COMPLETED", {"op": 4, "name": "s", "output": 5}),
        ("EXECUTION_SUSPENDED", {"waits": [{"wait": "5:child:one", "arms": [{"topic": "$child/one-1"}]}]}),
    ]
    assert carried(Recorded(log).events())["not_carried"] == [
        {"child": "old~one-1"}, {"hold": "11"}, {"hold": "22"},
    ]  # fmt: skip
    restored = replayed(waiting, as_restored(log, 1))
    end = restored.end()
    assert end is not None
    told = json.loads(end.text)
    why = "belongs to the execution from which this state was exported"
    assert told == [
        5,
        [
            child_id("c", "one", 1),
            "not-carried-over",
            {"type": "NotCarriedOver", "message": f"the child {why}"},
        ],
        ["11", "NOT_CARRIED_OVER", f"the hold {why}"],
        ["late", "NotCarriedOver"],
    ]
    message = {"wait": "5:child:one", "arm": 0, "topic": "$child/one-1", "payload": {"status": "completed"}}
    log += [("MESSAGE_CONSUMED", message)]
    assert carried(Recorded(log).events())["not_carried"] == [{"hold": "11"}, {"hold": "22"}]


@pytest.mark.clause("E6f")
def test_what_was_only_the_others_does_not_go_along() -> None:
    log: list[Event] = [
        ("EXECUTION_STARTED", {"flow": "story", "flow_version": 3, "owner": "ann", "input": 1}),
        ("HOLD_REQUESTED", {"op": 1, "type": "pay", "operation_id": "11"}),
        ("EXECUTION_CANCEL_REQUESTED", {"principal": "ann"}),
        ("FLOW_DIVERGED", {"op": 1, "expected": "a", "found": "b", "flow_version": 3}),
        (
            "EXECUTION_SUSPENDED",
            {"waits": [{"wait": "diverged", "arms": [{"topic": "$gate/underseal.diverged"}]}]},
        ),
        (
            "MESSAGE_CONSUMED",
            {"wait": "diverged", "arm": 0, "topic": "$gate/underseal.diverged", "payload": 1},
        ),
        ("CANCELLATION_DELIVERED", {"cancels": [{"hold": "11"}]}),
        ("CALL_REFUSED", {"op": 1, "kind": "hold", "name": "pay", "error": {"type": "X", "message": "y"}}),
    ]
    assert carried(Recorded(log).events()) == {
        "began_as": 3,
        "input": 1,
        "events": [
            ["HOLD_REQUESTED", {"op": 1, "type": "pay", "operation_id": "11"}],
            ["CANCELLATION_DELIVERED", {"cancels": []}],
            [
                "CALL_REFUSED",
                {"op": 1, "kind": "hold", "name": "pay", "error": {"type": "X", "message": "y"}},
            ],
        ],
        "not_carried": [],
    }


# -- in databases ----------------------------------------------------------------------------------


@flow("trip", version=2, also_drives=[1])
async def trip(ctx: FlowContext, value: int) -> list[Any]:
    """Steps, chance, a child, waits."""
    told: list[Any] = [ctx.version, await ctx.run("book", ran, "book", value), str(ctx.uuid())]
    told.append(await ctx.receive("go"))
    told += [ctx.version, await ctx.run("pay", ran, "pay", value + 1)]
    try:
        told.append(await ctx.child("nap", 30, name="nap"))
    except ChildFailed as error:
        told.append(error.status)
    told.append(await ctx.run("end", ran, "end"))
    return told


@flow("nap")
async def nap(ctx: FlowContext, value: int) -> str:
    """Waits for long."""
    await ctx.sleep(seconds=value)
    return "slept"


@asynccontextmanager
async def elsewhere(database: TestDatabase) -> Any:
    """Another database."""
    async with a_world(database) as world:
        yield world


@pytest.mark.clause("E6f", "E5a", "E12b")
async def test_an_execution_moves_to_another_database(w: World, database: TestDatabase) -> None:
    node = w.node(trip, nap)
    here = await w.begin("trip", 1)
    await w.comes_to(here, "suspended")
    await w.executions.migrate(here, 2, OWNER)
    await w.send(here, "go", "on")
    await until(lambda: RUNS["pay"])
    await w.comes_to(here, "suspended")
    (child,) = await w.data(here, "CHILD_STARTED")
    state = json.loads(json.dumps(await w.executions.export_state(here, OWNER)))
    before = await w.log(here)
    assert state["not_carried"] == [{"child": child["execution_id"]}]
    assert (state["flow"], state["flow_version"], state["began_as"], state["input"]) == ("trip", 2, 1, 1)
    assert (state["owner"], state["status"], state["seq"]) == (OWNER, "suspended", before[-1].seq)
    async with elsewhere(database) as there:
        moved = await there.executions.restore_from_state(state, "bob", execution_id="moved")
        assert moved == "moved"
        assert await there.executions.verify(moved)
        (started, restored) = await there.executions.events(moved, "bob")
        assert started.data == {"flow": "trip", "flow_version": 2, "owner": "bob", "input": 1}
        assert (restored.type, restored.data["events"]) == ("STATE_RESTORED", state["events"])
        with pytest.raises(ExecutionDeniedError):
            await there.executions.get(moved, OWNER)
        told = await there.node(trip, nap).result(moved)
        assert told[0] == 1
        assert told[1] == 1
        assert told[3:] == ["on", 2, 2, "not-carried-over", None]
        assert (await there.executions.verify(moved)).outcome == "verified"
    assert RUNS == {"book": 1, "pay": 1, "end": 1}
    assert await w.log(here) == before
    assert await w.status(child["execution_id"]) == "suspended"
    await node.stop()


@flow("pair")
async def pair(ctx: FlowContext) -> list[Any]:
    """Waits twice."""
    await ctx.run("one", ran, "one")
    return [await ctx.receive("a"), await ctx.select(ctx.sleep(seconds=0.2), ctx.receive("b"))]


@flow("cancels")
async def cancels(ctx: FlowContext) -> None:
    """Begins a child, and is cancelled."""
    await ctx.child("nap", 30, name="nap")


@pytest.mark.clause("E6f")
async def test_a_restored_flow_that_is_cancelled_touches_nothing_of_the_other(w: World) -> None:
    node = w.node(cancels, nap)
    first = await w.begin("cancels")
    await w.comes_to(first, "suspended")
    (child,) = await w.data(first, "CHILD_STARTED")
    await node.stop()
    state = await w.executions.export_state(first, OWNER)
    state["events"].append(["CANCELLATION_DELIVERED", {"cancels": [{"child": child["execution_id"]}]}])
    second = await w.executions.restore_from_state(state, OWNER)
    w.node(cancels, nap)
    await w.comes_to(second, "cancelled")
    third = await w.executions.restore_from_state({**state, "events": state["events"][:-1]}, OWNER)
    await w.comes_to(third, "failed")
    await asyncio.sleep(0.05)
    assert await w.status(first) == "suspended"
    assert await w.types(child["execution_id"]) == ["EXECUTION_STARTED", "EXECUTION_SUSPENDED"]


@flow("mended", version=1)
async def broken(ctx: FlowContext, value: int) -> int:
    """Its own code fails behind a step."""
    await ctx.run("costly", ran, "costly")
    return value // 0


@flow("mended", version=1)
async def mended(ctx: FlowContext, value: int) -> int:
    """The same, mended."""
    await ctx.run("costly", ran, "costly")
    return value


@pytest.mark.clause("E6f")
async def test_one_that_failed_by_its_code_goes_on_with_mended_code(w: World) -> None:
    node = w.node(broken)
    failed = await node.start("mended", 7)
    await w.comes_to(failed, "failed")
    await node.stop()
    again = await w.executions.restore_from_state(await w.executions.export_state(failed, OWNER), OWNER)
    assert await w.node(mended).result(again) == 7
    assert RUNS == {"costly": 1}


@flow("saved", snapshot_every=5)
async def saved(ctx: FlowContext, value: int) -> int:
    """Long enough for a snapshot."""
    for number in range(value):
        await ctx.run("s", ran, f"s{number}")
    return int(await ctx.receive("go"))


@pytest.mark.clause("E6f", "E9b")
async def test_a_compacted_log_is_exported_and_a_restored_one_is_saved_and_restored_again(w: World) -> None:
    def kept(execution_id: str) -> list[Any]:
        return w.admin.execute(
            "select seq from underseal.snapshot where chain_id = %s order by seq", [execution_id]
        ).fetchall()

    node = w.node(saved)
    first = await node.start("saved", 12)
    whole = await w.executions.export_state(first, OWNER)
    await w.parks(first)
    await until(lambda: kept(first))
    whole = await w.executions.export_state(first, OWNER)
    await node.stop()
    await w.executions.compact(first, kept(first)[-1]["seq"] + 1, None)
    assert await w.executions.export_state(first, OWNER) == whole
    second = await w.executions.restore_from_state(whole, OWNER)
    third = await w.executions.restore_from_state(await w.executions.export_state(second, OWNER), "carl")
    other = w.node(saved)
    for place, (execution_id, owner) in enumerate([(first, OWNER), (second, OWNER), (third, "carl")]):
        await w.executions.send(execution_id, "go", place, owner)
        assert await other.result(execution_id) == place
    assert set(RUNS.values()) == {1}


# -- what is refused -------------------------------------------------------------------------------

GOOD = {
    "format": "underseal-state", "v": 1, "flow": "saved", "flow_version": 1, "began_as": 1, "input": 3,
    "events": [["STEP_COMPLETED", {"op": 1, "name": "s", "output": 1}]], "not_carried": [],
}  # fmt: skip
STEP = GOOD["events"][0]  # type: ignore[index]
BAD: dict[str, Any] = {
    "no object": [],
    "another format": GOOD | {"format": "x"},
    "another version": GOOD | {"v": 2},
    "no flow": {name: value for name, value in GOOD.items() if name != "flow"},
    "a version in words": GOOD | {"flow_version": "1"},
    "a true version": GOOD | {"began_as": True},
    "version nought": GOOD | {"flow_version": 0},
    "events in an object": GOOD | {"events": {}},
    "an event that is none": GOOD | {"events": [STEP, {}]},
    "an event of three": GOOD | {"events": [[*STEP, 1]]},
    "a fact of the kernel's": GOOD | {"events": [["EXECUTION_STARTED", {"flow_version": 1, "owner": "x", "input": 1}]]},
    "a wish that was another's": GOOD | {"events": [["EXECUTION_CANCEL_REQUESTED", {}]]},
    "a park": GOOD | {"events": [["EXECUTION_SUSPENDED", {"waits": []}]]},
    "an unknown type": GOOD | {"events": [["SECRET", {}]]},
    "no number": GOOD | {"events": [["STEP_COMPLETED", {"name": "s", "output": 1}]]},
    "a number in words": GOOD | {"events": [["STEP_COMPLETED", {"op": "1", "name": "s", "output": 1}]]},
    "a nested one that is none": GOOD | {"events": [["STATE_RESTORED", {"flow_version": 1, "events": [["X", {}]]}]]},
    "no JSON": GOOD | {"input": {1, 2}},
}  # fmt: skip


@pytest.mark.clause("E6f")
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_state_is_refused_before_it_is_sent(name: str) -> None:
    assert checked_state(GOOD)["events"] == GOOD["events"]
    with pytest.raises(ExecutionRefusedError, match=r"^Expected .*, found ") as caught:
        checked_state(BAD[name])
    assert caught.value.reason == "malformed-state"
    assert "SECRET" not in str(caught.value)


@pytest.mark.clause("E6f")
@pytest.mark.parametrize(
    "state",
    [
        None, 1, [], {}, GOOD | {"v": 2}, GOOD | {"flow": 1}, GOOD | {"flow_version": "x"}, GOOD | {"began_as": 0},
        GOOD | {"events": {}}, GOOD | {"events": [1]}, GOOD | {"events": [["A"]]}, GOOD | {"events": [[1, {}]]},
        GOOD | {"events": [["A", 1]]}, GOOD | {"flow_version": 10**12}, GOOD | {"input": "\0"},
    ],
    ids=lambda state: json.dumps(state)[-40:],
)  # fmt: skip
def test_the_database_refuses_what_has_not_the_form(db: DictConnection, state: Any) -> None:
    row = db.execute("select * from underseal.restore_execution(%s, 'ann')", [json.dumps(state)]).fetchone()
    assert row is not None
    assert (row["outcome"], row["reason"]) == ("refused", "malformed-state")
    assert row["message"].startswith("Expected a state")
    assert db.execute("select count(*) as n from underseal.execution").fetchall() == [{"n": 0}]


@pytest.mark.clause("E3", "E12a", "E13a")
def test_who_may_restore_and_under_which_id(database: TestDatabase, db: DictConnection) -> None:
    def login(access: str, mode: str | None) -> Executions:
        role = database.create_role(access)
        db.execute("select underseal.grant_access(%s, %s, %s)", [role, access, mode])
        db.execute("select underseal.map_login(%s, 'ann')", [role])
        return Executions(database.conninfo_as(role))

    with login("client", "asserted") as service, login("client", "login") as bound:
        assert service.restore_from_state(GOOD, "ann", execution_id="x") == "x"
        with pytest.raises(ExecutionAlreadyExistsError):
            service.restore_from_state(GOOD, "bob", execution_id="x")
        with pytest.raises(
            ExecutionRefusedError, match="whoever restores a state says what its steps returned"
        ):
            bound.restore_from_state(GOOD, "ann", execution_id="y")
        with pytest.raises(AccessDenied):
            bound.restore_from_state(GOOD, "bob", execution_id="y")
        with pytest.raises(ExecutionDeniedError):
            service.export_state("x", "bob")
        with pytest.raises(ExecutionDeniedError):
            service.export_state("nobody's", "ann")
        for change, reason in (
            (
                {"events": [["STEP_COMPLETED", {"op": 1, "name": "s", "output": "x" * 1_048_576}]]},
                "too-large",
            ),
            (
                {"events": [["STEP_COMPLETED", {"op": 1, "name": "s", "output": {"$shredded": True}}]]},
                "envelope",
            ),
            ({"input": {"__loomEnc": "x"}}, "envelope"),
            ({"flow": ""}, "malformed-flow"),
        ):
            with pytest.raises(ExecutionRefusedError) as caught:
                service.restore_from_state({**GOOD, **change}, "ann")
            assert caught.value.reason == reason
        with pytest.raises(ExecutionRefusedError) as caught:
            service.restore_from_state(GOOD, "ann", execution_id="x" * 201)
        assert caught.value.reason == "malformed-id"
        with pytest.raises(ExecutionRefusedError):
            service.restore_from_state(GOOD, "bob", execution_id="x~child")
    assert [one["chain_id"] for one in db.execute("select chain_id from underseal.execution").fetchall()] == [
        "x"
    ]


@pytest.mark.clause("E5b")
async def test_a_state_that_the_code_does_not_fit_parks_as_diverged(w: World) -> None:
    state = {**GOOD, "events": [["STEP_COMPLETED", {"op": 1, "name": "other", "output": 1}]]}
    execution_id = await w.executions.restore_from_state(state, OWNER)
    w.node(saved)
    await w.parks(execution_id)
    (told,) = await w.data(execution_id, "FLOW_DIVERGED")
    assert (told["expected"], told["found"]) == ("step other", "step s")


@pytest.mark.clause("E5a")
async def test_a_fact_of_the_kernels_in_a_state_is_not_applied(w: World) -> None:
    # by a client that does not look at what it sends
    state = {**GOOD, "events": [["EXECUTION_STARTED", {"flow_version": 1, "owner": "eve", "input": 1}]]}
    w.admin.execute("select * from underseal.restore_execution(%s, %s, 'x')", [json.dumps(state), OWNER])
    w.node(saved)
    await w.parks("x")
    (told,) = await w.data("x", "FLOW_DIVERGED")
    assert (told["expected"], told["found"]) == ("a state as it is exported", "EXECUTION_STARTED")
    assert RUNS == {}
