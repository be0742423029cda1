"""An erasure that begins finds all that was sealed before it, and nothing is sealed after it (clauses X2, T4b)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import Box
from tests.log.seals import envelope, key_of, sealed_event, sealing_box, subject
from tests.log.test_log_control_races import Pair, lock, pair
from underseal.testing import in_background, wait_blocked

__all__ = ["pair"]


def fence(whose: str) -> Any:
    """Fence a subject."""
    return lambda k: k.do(
        "insert into underseal.subject_fence values (%s, underseal.clock(), 'erasing')", whose
    )


@pytest.mark.clause("X2", "T4b")
@pytest.mark.parametrize("verb", ["append", "append_batch", "complete"])
def test_who_waits_while_its_subject_is_fenced_is_refused(pair: Pair, verb: str) -> None:
    b, kid = sealing_box(pair.a)
    (whose,) = pair.a.rows("select subject from underseal.chain_subject where chain_id = %s", b.chain)

    def write(k: Kernel) -> tuple[str, str | None]:
        if verb == "append":
            return outcome(k.call("append", b.id, 1, json.dumps([sealed_event(kid)])))
        if verb == "complete":
            return outcome(b.on(k).write("complete", output=envelope(kid), sealed=["/output"]))
        return outcome(b.on(k).write("append", events=[sealed_event(kid)]))

    third = Kernel(pair.admin, pair.clock)
    _, said = pair.race(lock(b), write, lambda: fence(whose["subject"])(third))
    assert said == ("refused", "subject-erasing")
    assert b.execution()["head"] == 0


@pytest.mark.clause("X2", "T4b")
def test_a_chain_that_begins_is_found_by_the_erasure(pair: Pair) -> None:
    whose = subject(pair.a)
    fence_it = fence(whose)
    keys = "select key_id from underseal.subject_key where subject = %s for update"
    chains = "select chain_id from underseal.chain_subject where subject = %s"
    item = {"verb": "start", "execution_id": "new", "flow": "f", "flow_version": 1, "principal": "ann"}
    sealed = {**item, "subject": whose, "input": envelope(key_of(whose)), "sealed": ["/input"]}

    def erase(k: Kernel) -> list[str]:
        fence_it(k)
        k.rows(keys, whose)
        return [row["chain_id"] for row in k.rows(chains, whose)]

    with pair.a.connection.transaction():
        (row,) = pair.a.calls("append_batch", json.dumps([sealed]))
        assert row["outcome"] == "started"
        waiting = in_background(erase, pair.b)
        wait_blocked(pair.admin, pair.b.connection.info.backend_pid)
    assert waiting.result(10) == ["new"]
    (row,) = pair.a.calls("append_batch", json.dumps([{**sealed, "execution_id": "newer"}]))
    assert outcome(row) == ("refused", "subject-erasing")


@pytest.mark.clause("X2", "T4b")
def test_who_waits_for_a_key_that_an_erasure_holds_is_refused(pair: Pair) -> None:
    whose = subject(pair.a)
    item = {"verb": "start", "execution_id": "new", "flow": "f", "flow_version": 1, "principal": "ann"}
    sealed = {**item, "subject": whose, "input": envelope(key_of(whose)), "sealed": ["/input"]}

    def erase(k: Kernel) -> None:
        k.rows("select from underseal.subject_key where subject = %s for update", whose)
        fence(whose)(k)

    _, rows = pair.race(erase, lambda k: k.calls("append_batch", json.dumps([sealed])))
    assert [outcome(row) for row in rows] == [("refused", "subject-erasing")]


@pytest.mark.clause("X1", "X11", "T4b")
def test_two_that_register_a_key_agree(pair: Pair) -> None:
    first, second = pair.race(
        lambda k: k.call("register_subject_key", "a", "key-1", 1),
        lambda k: k.call("register_subject_key", "a", "key-2", 1),
    )
    assert (outcome(first), outcome(second)) == (("registered", None), ("conflict", "epoch-taken"))
    first, second = pair.race(
        lambda k: k.call("register_subject_key", "b", "key-3", 1),
        lambda k: k.call("register_subject_key", "b", "key-3", 1),
    )
    assert (outcome(first), outcome(second)) == (("registered", None), ("unchanged", None))


@pytest.mark.clause("X2", "T4b")
def test_a_key_and_a_fence_wait_for_each_other(pair: Pair) -> None:
    first, _ = pair.race(lambda k: k.call("register_subject_key", "a", "key-1", 1), fence("a"))
    assert outcome(first) == ("registered", None)
    _, second = pair.race(fence("b"), lambda k: k.call("register_subject_key", "b", "key-2", 1))
    assert outcome(second) == ("refused", "subject-erasing")
    assert pair.a.value("select array_agg(key_id) from underseal.subject_key") == ["key-1"]


@pytest.mark.clause("X1", "E3", "T4b")
def test_two_that_start_one_id_leave_one_subject(pair: Pair) -> None:
    def start(whose: str) -> Any:
        return lambda k: k.call("start_execution", "f", "ann", None, "one", 1, None, whose)["outcome"]

    assert pair.race(start("a"), start("b")) == ("started", "exists")
    assert pair.a.value("select subject from underseal.chain_subject") == "a"
    assert Box(pair.a, "one").execution()["head"] == 0
