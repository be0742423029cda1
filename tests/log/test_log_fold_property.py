"""The fold in SQL and the reference fold say the same of any log, however it was written (clause E4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Json, Jsonb

from tests.held.sql.kernel import Kernel
from tests.log.histories import History, chains, current, groupings, impossible, is_impossible
from tests.log.world import WHO, World, undone_world
from underseal.log import batch
from underseal.log.fold import fold
from underseal.log.model import LogEvent
from underseal.testing import OWNER

EXAMPLES = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@contextmanager
def undone(kernel: Kernel) -> Iterator[Kernel]:
    """The schema owner's view of it, for one example."""
    with kernel.connection.transaction(force_rollback=True):
        kernel.connection.execute(f"set local session authorization {OWNER}")
        yield kernel


def insert(kernel: Kernel, events: Iterable[LogEvent]) -> None:
    """Insert events in one statement, as somebody who writes the table by hand."""
    rows = [
        (
            *event.execution_id.partition("~")[::2],
            event.seq,
            event.recorded_at,
            event.type,
            Json(event.data),
            None if event.metadata is None else Jsonb(event.metadata),
        )
        for event in events
    ]
    places = ", ".join(["(%s, %s, %s::bigint, %s::timestamptz, %s, %s::json, %s::jsonb)"] * len(rows))
    columns = "chain_id, member, seq, recorded_at, type, data, metadata"
    kernel.connection.execute(
        f"insert into underseal.event ({columns}) values {places}".encode(),
        [value for row in rows for value in row],
    )


def folded(kernel: Kernel, history: History) -> object:
    """What the tables say."""
    return kernel.value("select underseal._fold(%s, %s)", *history.place)


def agrees(kernel: Kernel, histories: Sequence[History]) -> None:
    """See that the tables say what the reference fold says."""
    for history in histories:
        assert folded(kernel, history) == fold(
            history.events, history.execution_id, current=current(histories, history)
        )


@pytest.mark.clause("E4a", "T6c")
@EXAMPLES
@given(data=st.data(), histories=chains())
def test_both_folds_agree_on_any_history_in_any_statements(
    log_kernel: Kernel, data: st.DataObject, histories: list[History]
) -> None:
    with undone(log_kernel) as kernel:
        for statement in data.draw(groupings(histories)):
            insert(kernel, statement)
        agrees(kernel, histories)


@pytest.mark.clause("E1b", "E4a", "T6c")
@EXAMPLES
@given(data=st.data(), case=impossible())
def test_both_folds_refuse_what_cannot_follow(
    log_kernel: Kernel, data: st.DataObject, case: tuple[History, LogEvent]
) -> None:
    history, wrong = case
    assume(is_impossible(history, wrong))
    kept = data.draw(st.integers(0, len(history.events)))
    with undone(log_kernel) as kernel:
        if kept:
            insert(kernel, history.events[:kept])
        with pytest.raises(psycopg.Error) as caught, kernel.connection.transaction():
            insert(kernel, [*history.events[kept:], wrong])
        assert caught.value.sqlstate in {"US002", "US005", "23505", "23514"}, caught.value


TOPICS = st.sampled_from(["order", "other"])
DURATIONS = st.sampled_from([0.0, 0.5, 10.0, 4000.0])
ARMS = st.one_of(
    TOPICS.map(batch.topic),
    st.just(batch.gate("ok")),
    DURATIONS.map(lambda seconds: batch.sleep(timedelta(seconds=seconds))),
)
WAITS = st.lists(st.sampled_from(["w1", "w2", "w3"]), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*[st.lists(ARMS, min_size=1, max_size=2) for _ in names]).map(
        lambda found: [batch.wait(name, *arms) for name, arms in zip(names, found, strict=True)]
    )
)


@dataclass
class Moves:
    """One random move at a time, by the verbs that callers, drivers and operators have."""

    world: World
    draw: Callable[[st.SearchStrategy[Any]], Any]

    def item(self, execution_id: str) -> batch.Item:
        """One write of a driver's, mostly under its fence."""
        fence = self.world.fence(execution_id) - (self.draw(st.integers(0, 9)) == 9)
        steps = [batch.event("STEP_COMPLETED", n=n) for n in range(self.draw(st.integers(0, 3)))]
        make = self.draw(st.sampled_from(["append", "append", "park", "park", "park", "end", "continue"]))
        if make == "append":
            return batch.append_item(execution_id, fence, steps)
        if make == "park":
            return batch.park_item(execution_id, fence, self.draw(WAITS), steps)
        if make == "continue":
            return batch.continue_item(execution_id, fence, {"next": 1}, steps)
        end = self.draw(st.sampled_from([batch.complete_item, batch.fail_item, batch.cancelled_item]))
        item: batch.Item = end(execution_id, fence, None, steps)
        return item

    def batch(self) -> None:
        """A batch of writes, some of them starts."""
        known = list(dict.fromkeys(self.world.ids))
        chosen = self.draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        items = [self.item(one) for one in chosen]
        if self.draw(st.booleans()):
            name = self.draw(st.sampled_from(["c1", "c2", "c1~child"]))
            after = timedelta(seconds=self.draw(DURATIONS)) if self.draw(st.booleans()) else None
            if name not in chosen:
                items.append(batch.start_item(name, "f", WHO, after=after, events=[batch.event("STEP")]))
        self.world.write(*items)

    def call(self, one: str) -> None:
        """What callers and operators do."""
        w, draw, ex = self.world, self.draw, self.world.executions
        kind = draw(
            st.sampled_from(["send"] * 4 + ["resume", "cancel", "migrate", "fork", "outcome", "discard"])
        )
        if kind == "send":
            message_id = draw(st.sampled_from(["m1", "m2", "m3", None]))
            expires = draw(st.sampled_from([None, timedelta(seconds=1)]))
            w.attempt(ex.send, one, draw(TOPICS), {"x": 1}, WHO, message_id=message_id, expires_in=expires)
        elif kind == "resume":
            w.attempt(ex.resume, one, "ok", True, WHO)
        elif kind == "cancel":
            w.attempt(ex.cancel, one, WHO, "why", force=draw(st.booleans()))
        elif kind == "migrate":
            w.attempt(ex.migrate, one, draw(st.integers(1, 3)), WHO)
        elif kind == "fork":
            forked = w.attempt(ex.fork, one, draw(st.integers(0, 8)), WHO, new_id=f"fork{len(w.ids)}")
            w.ids += [forked] if forked else []
        elif kind == "outcome":
            w.attempt(ex.record_outcome, one, {"paid": True}, WHO)
        else:
            w.attempt(ex.discard, one, draw(TOPICS), WHO)

    def drive(self, one: str) -> None:
        """What drivers do beside writing."""
        w, draw, dr = self.world, self.draw, self.world.driver
        kind = draw(
            st.sampled_from(
                ["deliver", "deliver to all", "consume", "recover", "snapshot", "compact", "expire"]
            )
        )
        fence = w.fence(one)
        seen = dr.head(one, connection=w.connection)
        if kind == "deliver":
            dr.deliver(one, fence, connection=w.connection)
        elif kind == "deliver to all":
            everybody = [(name, w.fence(name)) for name in reversed(w.ids)]
            dr.deliver_batch([item for item in everybody if item[1]], connection=w.connection)
        elif kind == "consume":
            found = dr.next_message(one, fence, connection=w.connection)
            if found.outcome == "message":
                dr.consume_message(one, fence, found, connection=w.connection)
        elif kind == "recover":
            dr.recover(one, seen, "w", timedelta(seconds=30), connection=w.connection)
        elif kind == "expire":
            dr.expire_inbox(connection=w.connection)
        elif kind == "snapshot":
            dr.save_snapshot(one, fence, seen.head or 0, {}, connection=w.connection)
        else:
            w.attempt(w.executions.compact, one, draw(st.integers(1, 8)), None)

    def move(self) -> None:
        """Anything."""
        kind = self.draw(
            st.sampled_from(["batch", "batch", "batch", "call", "call", "drive", "drive", "time"])
        )
        if kind == "batch" or not self.world.ids:
            self.batch()
        elif kind == "time":
            self.world.advance(self.draw(DURATIONS))
        else:
            {"call": self.call, "drive": self.drive}[kind](self.draw(st.sampled_from(self.world.ids)))


@pytest.mark.clause("E4a", "E4b", "E4c", "E9c", "T6c")
@EXAMPLES
@given(data=st.data())
def test_both_folds_agree_whatever_the_verbs_did(log_kernel: Kernel, data: st.DataObject) -> None:
    with undone_world(log_kernel) as world:
        moves = Moves(world, data.draw)
        for _ in range(data.draw(st.integers(1, 25))):
            moves.move()
        for execution_id in dict.fromkeys(world.ids):
            assert world.verify(execution_id).differences == (), world.events(execution_id)
