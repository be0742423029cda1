"""Snapshots of flows: saved beside the run, gone on from like the log (clause E9)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.nodes import OWNER, Lost, World, until
from tests.flow.stories import Story, come_to, program, replayed, story
from underseal.errors import FlowError, StepError
from underseal.flow import checkpoints
from underseal.flow import replay as replay_module
from underseal.flow.context import FlowContext
from underseal.flow.definition import Retry, flow
from underseal.flow.gateway import Gateway
from underseal.flow.state import _MEMBERS, Event, Recorded, read_state
from underseal.log import kernel


@pytest.fixture(scope="module", autouse=True)
def no_chance() -> Iterator[None]:
    """What a flow draws behind its log is always the same."""
    with patch("underseal.flow.context.random_bytes", lambda size: b"\7" * size):
        yield


# -- what a replay needs of a log ------------------------------------------------------------------


def test_everything_that_a_replay_looks_at_is_kept() -> None:
    assert set(_MEMBERS) | {"EXECUTION_SUSPENDED"} == set(replay_module._HANDLERS)


@pytest.mark.clause("E9c", "E5a")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_replay_from_a_snapshot_and_its_tail_is_one_of_the_whole_log(seed: int) -> None:
    random = Random(seed)
    log = Story(random, program(random)).told()
    whole = come_to(replayed(story, log))
    assert whole["next"] > 1
    for at in range(1, len(log) + 1):
        kept = Recorded(log[:at]).events()
        assert come_to(replayed(story, [*kept, *log[at:]])) == whole, at
        assert come_to(replayed(story, kept)) == come_to(replayed(story, log[:at])), at


@pytest.mark.clause("E9c")
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_snapshot_of_a_snapshot_and_its_tail_is_one_of_the_log(seed: int) -> None:
    random = Random(seed)
    log = Story(random, program(random)).told()
    for _ in range(20):
        first, second = sorted(random.choices(range(1, len(log) + 1), k=2))
        again = Recorded([*Recorded(log[:first]).events(), *log[first:second]])
        at_once = Recorded(log[:second])
        assert again.text() == at_once.text()
        assert again.size == at_once.size == len(at_once.text().encode()) + 1
        assert read_state({"v": 1, "events": [list(one) for one in at_once.events()]}) == at_once.events()


@pytest.mark.clause("E9c")
def test_a_write_is_taken_once_and_not_behind_a_gap() -> None:
    log: list[Event] = [("EXECUTION_STARTED", {"flow_version": 1, "owner": "ann", "input": 1})]
    log += [("STEP_COMPLETED", {"op": op, "name": "s", "output": op}) for op in range(1, 8)]
    texts = [json.dumps({"type": kind, "data": data}) for kind, data in log]
    one = checkpoints.Gathering(Recorded(log[:3]), 2)
    assert not one.take(6, texts[5:7])  # 3 and 4 are missing
    assert not one.take(4, ())  # what came with 3 and 4 is not known
    assert (one.upto, one.recorded.text()) == (2, Recorded(log[:3]).text())
    assert one.take(4, texts[3:5])
    assert one.take(4, texts[3:5])
    assert one.take(3, texts[3:4])
    assert one.take(6, texts[4:7])
    assert (one.upto, one.recorded.text()) == (6, Recorded(log[:7]).text())


# -- saved beside a run, and taken over from ---------------------------------------------------------

RUNS: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def forget() -> None:
    """Nothing has run yet."""
    RUNS.clear()


def ran(name: str, result: Any = None) -> Any:
    """A step that counts."""
    RUNS[name] += 1
    return result


async def worked(name: str, seconds: float = 0.0) -> str:
    """A step that takes its time."""
    await asyncio.sleep(seconds)
    return str(ran(name, name))


def fragile() -> None:
    """A step that never succeeds."""
    raise ValueError(ran("fragile") or "no")


@flow("long", snapshot_every=10)
async def long(ctx: FlowContext, value: dict[str, Any]) -> list[Any]:
    """Steps, waits, a failure, chance, and again."""
    told: list[Any] = []
    for turn in range(value["turns"]):
        told += await asyncio.gather(
            ctx.run("left", worked, f"left{turn}"), ctx.run("right", worked, f"right{turn}")
        )
        ctx.random()
        ctx.uuid()
        await ctx.now()
        try:
            await ctx.run("fragile", fragile, retry=Retry(2, timedelta(milliseconds=1)))
        except StepError as error:
            told.append(error.type)
        picked = await ctx.select(ctx.receive("never"), ctx.sleep(seconds=0.01))
        told.append(picked.index)
        told.append(await ctx.receive("go"))
        told.append(await ctx.run("last", ran, f"last{turn}", turn))
    return told


@flow("steps", snapshot_every=20)
async def steps(ctx: FlowContext, value: dict[str, Any]) -> int:
    """Steps without a pause, then a wait."""
    for number in range(value["steps"]):
        await ctx.run("s", worked, f"s{number}", value.get("seconds", 0))
    said: int = await ctx.receive("go") if value.get("waits", True) else 0
    return said


def snapshots(w: World, execution_id: str) -> list[Any]:
    """What is kept, the newest last."""
    return w.admin.execute(
        "select seq, state, fold from underseal.snapshot where chain_id = %s and member = '' order by seq",
        [execution_id],
    ).fetchall()


async def history(w: World, execution_id: str) -> list[Event]:
    """Its log as a replay reads it."""
    return [(event.type or "", dict(event.data or {})) for event in await w.log(execution_id)]


async def compact(w: World, execution_id: str, before: int | None = None) -> None:
    """Drop what a snapshot covers; the newest if not said otherwise."""
    if before is None:
        before = snapshots(w, execution_id)[-1]["seq"] + 1
    done = await w.executions.compact(execution_id, before, None)
    assert done.outcome == "truncated", done


@pytest.mark.clause("E9c", "E9a", "E9b")
async def test_a_flow_goes_on_from_snapshot_and_tail_at_every_event(w: World) -> None:
    source = await w.begin("long", {"turns": 2})
    for _ in range(2):
        await w.send(source, "go", "on")
    first = w.node(long)
    expected = await first.result(source)
    await first.stop()
    log = await history(w, source)
    assert len(log) > 25
    forks: list[str] = []
    for at in range(1, len(log) - 1):
        for way in ("whole", "compacted"):
            fork = await w.executions.fork(source, at, OWNER, new_id=f"{way}{at}")
            forks.append(fork)
            if way == "compacted":
                fence = (await w.driver.acquire_fence(fork)).fence
                state = {"v": 1, "events": [list(one) for one in Recorded(log[: at + 1]).events()]}
                saved = await w.driver.save_snapshot(fork, fence or 0, at, state)
                assert saved.outcome == "saved"
                await compact(w, fork, at + 1)
                assert [event.seq for event in await w.log(fork)] == [0]
            for _ in range(2):
                await w.send(fork, "go", "on")
    node = w.node(long)
    for fork in forks:
        assert await node.result(fork) == expected, fork
    assert node.runtime.counts.completed == len(forks)


@pytest.mark.clause("E9a", "E9b", "E5a")
async def test_a_parked_flow_has_a_snapshot_and_goes_on_from_it_alone(w: World) -> None:
    node = w.node(steps)
    execution_id = await node.start("steps", {"steps": 30})
    await w.parks(execution_id)
    await until(lambda: snapshots(w, execution_id))
    await node.stop()
    kept = snapshots(w, execution_id)[-1]
    assert kept["seq"] >= 20
    assert read_state(kept["state"]) == Recorded((await history(w, execution_id))[: kept["seq"] + 1]).events()
    await compact(w, execution_id)
    await w.send(execution_id, "go", 7)
    other = w.node(steps)
    assert await other.result(execution_id) == 7
    assert set(RUNS.values()) == {1}
    assert (await w.executions.verify(execution_id)).outcome == "verified"


@pytest.mark.clause("E9a", "E9c")
async def test_a_flow_that_never_waits_is_saved_while_it_goes_on(w: World) -> None:
    node = w.node(steps)
    execution_id = await node.start("steps", {"steps": 120, "seconds": 0.004, "waits": False})
    seen: dict[int, Any] = {}

    def ended() -> bool:
        seen.update({row["seq"]: row["state"] for row in snapshots(w, execution_id)})
        return execution_id not in node.runtime.active

    await until(ended)
    assert len(seen) >= 3
    log = await history(w, execution_id)
    for seq, state in seen.items():
        assert read_state(state) == Recorded(log[: seq + 1]).events()
    assert set(RUNS.values()) == {1}


@pytest.mark.clause("E9c")
async def test_of_flows_without_a_pause_too_every_snapshot_is_true(w: World) -> None:
    node = w.node(steps)
    ids = [await node.start("steps", {"steps": 70, "waits": False}) for _ in range(20)]
    for execution_id in ids:
        await node.result(execution_id)
    await asyncio.sleep(0.1)
    found = [(execution_id, row) for execution_id in ids for row in snapshots(w, execution_id)]
    assert found
    for execution_id, row in found:
        log = await history(w, execution_id)
        assert read_state(row["state"]) == Recorded(log[: row["seq"] + 1]).events()


@pytest.mark.clause("E9a")
async def test_many_are_taken_over_in_one_reading_call(w: World) -> None:
    node = w.node(steps)
    ids = [await node.start("steps", {"steps": 25}) for _ in range(60)]
    for execution_id in ids:
        await until(lambda: snapshots(w, execution_id))  # noqa: B023 -- asked at once
    await node.stop()
    for place, execution_id in enumerate(ids):
        if place % 2:
            await compact(w, execution_id)
        await w.send(execution_id, "go", place)
    other = w.node(steps)
    await until(lambda: other.runtime.counts.completed == 60)
    assert other.faults.calls["read"] < 5
    assert [await other.result(execution_id) for execution_id in ids] == list(range(60))
    assert set(RUNS.values()) == {60}


@flow("steps", snapshot_every=None)
async def unsaved(ctx: FlowContext, value: dict[str, Any]) -> int:
    """The same, never saved."""
    done: int = await steps.body(ctx, value)
    return done


async def parked_unsaved(w: World, state: Any) -> str:
    """One that waits, with a snapshot that somebody else made."""
    node = w.node(unsaved)
    execution_id = await node.start("steps", {"steps": 25})
    await w.parks(execution_id)
    await node.stop()
    assert snapshots(w, execution_id) == []
    seen = await w.driver.acquire_fence(execution_id)
    saved = await w.driver.save_snapshot(execution_id, seen.fence or 0, seen.head or 0, state)
    assert saved.outcome == "saved"
    return execution_id


@pytest.mark.clause("E9a")
@pytest.mark.parametrize("state", [{"v": 2, "events": []}, {"v": 1, "events": [["X", {}]]}, 7], ids=str)
async def test_a_snapshot_of_another_kind_is_passed_over_where_the_log_is_whole(w: World, state: Any) -> None:
    execution_id = await parked_unsaved(w, state)
    await w.send(execution_id, "go", 1)
    assert await w.node(steps).result(execution_id) == 1
    assert set(RUNS.values()) == {1}


@pytest.mark.clause("E9a", "E5b")
async def test_where_only_a_snapshot_of_another_kind_is_left_it_is_parked_for_an_operator(w: World) -> None:
    execution_id = await parked_unsaved(w, {"v": 2})
    await compact(w, execution_id, 27)
    await w.send(execution_id, "go", 1)
    w.node(steps)
    await until(lambda: w.reports("flow-diverged"))
    await w.parks(execution_id)
    (told,) = await w.data(execution_id, "FLOW_DIVERGED")
    assert told["expected"] == "a state of version 1 in the snapshot of event 26"
    assert RUNS.total() == 25


@pytest.mark.clause("E9a")
async def test_a_flow_that_is_not_saved_any_more_still_goes_on_from_what_was(w: World) -> None:
    node = w.node(steps)
    execution_id = await node.start("steps", {"steps": 25})
    await until(lambda: snapshots(w, execution_id))
    await node.stop()
    await compact(w, execution_id)
    await w.send(execution_id, "go", 3)
    assert await w.node(unsaved).result(execution_id) == 3
    assert set(RUNS.values()) == {1}


async def turn(ctx: FlowContext, name: str) -> Any:
    """Steps, a message, a step more in version 2."""
    for number in range(6):
        await ctx.run(name, ran, f"{name}{number}")
    said = await ctx.receive("go")
    return [said, ctx.version] if ctx.version == 1 else [said, await ctx.run("more", ran, "more", "more")]


@flow("turn", version=1, snapshot_every=5)
async def turn_1(ctx: FlowContext) -> Any:
    """The first version."""
    return await turn(ctx, "s")


@flow("turn", version=2, snapshot_every=5)
async def turn_2(ctx: FlowContext) -> Any:
    """The second."""
    return await turn(ctx, "s")


@flow("turn", version=1, snapshot_every=5)
async def turn_wrong(ctx: FlowContext) -> Any:
    """Code that fits no log."""
    return await turn(ctx, "t")


async def compacted(w: World) -> str:
    """One that waits and has nothing but its snapshot."""
    node = w.node(turn_1)
    execution_id = await node.start("turn")
    await w.parks(execution_id)
    await until(lambda: snapshots(w, execution_id))
    await node.stop()
    await compact(w, execution_id)
    return execution_id


@pytest.mark.clause("E9c", "E6g")
async def test_a_compacted_execution_is_migrated(w: World) -> None:
    execution_id = await compacted(w)
    assert (await w.executions.migrate(execution_id, 2, OWNER)).outcome == "migrated"
    node = w.node(turn_2)
    await w.parks(execution_id)
    await w.send(execution_id, "go", 1)
    assert await node.result(execution_id) == [1, "more"]
    assert {**{f"s{number}": 1 for number in range(6)}, "more": 1} == RUNS
    assert (await w.executions.verify(execution_id)).outcome == "verified"


@pytest.mark.clause("E9c", "E5b")
async def test_a_compacted_execution_whose_code_does_not_fit_is_parked_and_goes_on_when_it_does(
    w: World,
) -> None:
    execution_id = await compacted(w)
    await w.send(execution_id, "go", 1)
    wrong = w.node(turn_wrong)
    await until(lambda: w.reports("flow-diverged"))
    await w.parks(execution_id)
    await wrong.stop()
    (told,) = await w.data(execution_id, "FLOW_DIVERGED")
    assert (told["op"], told["expected"], told["found"]) == (1, "step s", "step t")
    right = w.node(turn_1)
    await w.executions.resume(execution_id, "underseal.diverged", None, OWNER)
    assert await right.result(execution_id) == [1, 1]
    assert {f"s{number}": 1 for number in range(6)} == RUNS
    assert (await w.executions.verify(execution_id)).outcome == "verified"


@flow("big", snapshot_every=3)
async def big(ctx: FlowContext, value: int) -> int:
    """Results that do not fit into one snapshot."""
    for _ in range(6):
        await ctx.run("s", ran, "s", "x" * 200_000)
    return int(await ctx.receive("go"))


@pytest.mark.clause("E9a")
async def test_what_is_too_large_is_said_once_and_goes_on_from_its_log(
    w: World, caplog: pytest.LogCaptureFixture
) -> None:
    node = w.node(big)
    ids = [await node.start("big", 1) for _ in range(3)]
    for execution_id in ids:
        await w.parks(execution_id)
    await until(lambda: "too-large" in caplog.text)
    await asyncio.sleep(0.1)
    await node.stop()
    assert caplog.text.count("has no snapshot (too-large)") == 1
    other = w.node(big)
    for execution_id in ids:
        await w.send(execution_id, "go", 5)
        assert await other.result(execution_id) == 5
    assert RUNS == {"s": 18}


@pytest.mark.clause("E9a")
@pytest.mark.parametrize("error", [Lost("gone"), ValueError("odd"), None], ids=str)
async def test_a_snapshot_that_cannot_be_saved_harms_nothing(
    w: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    asked: list[int] = []

    async def save(_self: Gateway, _id: str, _fence: int, seq: int, _state: str) -> Any:
        asked.append(seq)
        if error is not None:
            raise error
        return {"outcome": "refused", "reason": "not-sealed", "message": "…"}

    monkeypatch.setattr(Gateway, "save_snapshot", save)
    node = w.node(steps)
    execution_id = await node.start("steps", {"steps": 90, "seconds": 0.002})
    await w.parks(execution_id)
    await until(lambda: asked)
    await asyncio.sleep(0.05)
    assert (len(asked) > 1) is (error is not None)  # what was refused once is not offered again
    assert ("(not-sealed)" in caplog.text) is (error is None)
    await w.send(execution_id, "go", 4)
    assert await node.result(execution_id) == 4
    assert set(RUNS.values()) == {1}


@pytest.mark.clause("E9a")
async def test_a_save_that_does_not_answer_delays_no_effect(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def save(*_: Any) -> Any:
        await never.wait()

    monkeypatch.setattr(Gateway, "save_snapshot", save)
    node = w.node(steps)
    assert await node.run("steps", {"steps": 100, "waits": False}) == 0
    for task in node.runtime._background:
        task.cancel()


@pytest.mark.clause("E9a")
async def test_more_at_once_than_can_be_gathered_go_without(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_MOST_WAITING", 0)
    node = w.node(steps)
    execution_id = await node.start("steps", {"steps": 30})
    await w.parks(execution_id)
    await asyncio.sleep(0.05)
    await w.send(execution_id, "go", 2)
    assert await node.result(execution_id) == 2
    assert snapshots(w, execution_id) == []


@pytest.mark.parametrize("every", [0, -1])
def test_a_number_of_events_that_makes_no_sense_is_refused(every: int) -> None:
    with pytest.raises(FlowError, match="a snapshot after 1 or more events"):
        flow("f", snapshot_every=every)


# -- reading them with the logs --------------------------------------------------------------------


async def read(w: World, *asked: dict[str, Any]) -> list[tuple[int, str, int | None]]:
    """Item, outcome and number of what `read_logs` answers with."""
    rows = await w.perform(kernel.read_logs(list(asked), 1000, None))
    return [(row["item"], row["outcome"], row["seq"]) for row in rows]


@pytest.mark.clause("E9a", "E11a")
async def test_a_log_is_read_from_its_newest_snapshot_on(w: World) -> None:
    node = w.node(unsaved)
    ids = [await node.start("steps", {"steps": 2}) for _ in range(2)]
    for execution_id in ids:
        await w.parks(execution_id)
    seen = await w.driver.acquire_fence(ids[0])
    await w.driver.save_snapshot(ids[0], seen.fence or 0, 3, {"v": 1, "events": []})
    await w.send(ids[0], "go", 1)
    await until(lambda: ids[0] not in node.runtime.active)
    await w.comes_to(ids[0], "completed")
    await node.stop()
    first, second = ids
    tail = [(1, "event", 4), (1, "event", 5)]
    whole = [(1, "event", seq) for seq in range(6)]
    other = [(2, "event", seq) for seq in range(4)]
    asked = {"execution_id": first, "snapshot": True}
    beside = {"execution_id": second, "after": -1, "snapshot": True}
    assert await read(w, asked, beside) == [(1, "snapshot", 3), *tail, *other]
    assert await read(w, asked | {"after": 2}) == [(1, "snapshot", 3), *tail]
    assert await read(w, asked | {"after": 3}) == tail  # no further than one is already
    assert await read(w, asked | {"after": 4}) == tail[1:]
    assert await read(w, {"execution_id": first, "snapshot": False}) == whole
    assert await read(w, {"execution_id": first}) == whole
    assert await read(w, {"execution_id": "none", "snapshot": True}) == [(1, "not-found", None)]


@pytest.mark.clause("E9a", "M5")
async def test_a_snapshot_that_does_not_open_is_denied_with_its_log(w: World) -> None:
    marker = {"v": 1, "cipher": "underseal/aes-256-gcm-hkdf", "covers": ["SNAPSHOT.state"]}
    execution_id = await w.begin("steps", {})
    w.admin.execute(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
        " values (%s, '', 1, underseal.clock(), 'STEP_COMPLETED', '{}', %s)",
        [execution_id, json.dumps({"seal": marker | {"covers": ["STEP_COMPLETED.output"]}})],
    )
    envelope = {
        "__loomEnc": "underseal/aes-256-gcm-hkdf", "v": 1, "kid": "k1", "fmt": "loom-snap-v1", "org": "o",
        "salt": "A" * 43, "iv": "A" * 16, "kc": "A" * 43, "ct": "abcd" * 10,
    }  # fmt: skip
    seen = await w.driver.acquire_fence(execution_id)
    assert (await w.driver.save_snapshot(execution_id, seen.fence or 0, 1, envelope)).outcome == "saved"

    def outcomes(*covers: str) -> list[str]:
        rows = w.admin.execute(
            "select outcome from underseal.read_logs(%s, 1000, %s)",
            [
                json.dumps([{"execution_id": execution_id, "snapshot": True}]),
                json.dumps({"ciphers": [marker["cipher"]], "covers": list(covers)}),
            ],
        )
        return [row["outcome"] for row in rows.fetchall()]

    assert outcomes("SNAPSHOT.state", "STEP_COMPLETED.output") == ["snapshot"]
    assert outcomes("STEP_COMPLETED.output") == ["denied"]
    assert await read(w, {"execution_id": execution_id, "snapshot": True}) == [(1, "denied", None)]
