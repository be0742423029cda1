"""Writers in any interleaving, and a reader among them: every event once, in its log's order (clause E11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.shared import shared_kernel
from tests.log.logs import Key, Logs, Reader, well_ordered
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestDatabase

WRITERS: Final = 3
EXECUTIONS: Final = 3
_examples = count(1)


@dataclass
class Writer:
    """A host's transactions, some of them long.

    Parameters:
        logs: its session.
    """

    logs: Logs
    open: bool = False
    locked: set[str] = field(default_factory=set)
    written: list[list[str]] = field(default_factory=list)

    def begin(self) -> None:
        """Begin, and take a number at once."""
        self.logs.rows("begin")
        self.logs.rows("select pg_current_xact_id()")
        self.open, self.locked, self.written = True, set(), [[]]


@dataclass
class Scene:
    """Some writers, readers at their own pace, and a count of what was committed."""

    writers: list[Writer]
    readers: list[Reader]
    prefix: str
    heads: dict[str, int] = field(default_factory=dict)

    def step(self, action: str, who: int, which: int) -> None:
        """Do one thing, if it can be done without waiting for somebody."""
        writer, execution = self.writers[who], f"{self.prefix}-{which}"
        if action == "read":
            self.readers[who % len(self.readers)].page()
        elif action == "begin":
            if not writer.open:
                writer.begin()
        elif action == "append":
            if any(execution in other.locked for other in self.writers if other is not writer):
                return
            writer.logs.append(execution, steps=which + 1)
            if writer.open:
                writer.locked.add(execution)
                writer.written[-1] += [execution] * (which + 1)
            else:
                self.commit([execution] * (which + 1))
        elif writer.open:
            self.within(writer, action)

    def within(self, writer: Writer, action: str) -> None:
        """Do what belongs to a transaction."""
        if action == "savepoint":
            writer.logs.rows("savepoint s")
            writer.written.append([])
        elif action == "undo" and len(writer.written) > 1:
            writer.logs.rows("rollback to savepoint s; release savepoint s")
            writer.written.pop()
        elif action in ("commit", "rollback"):
            writer.logs.rows(action)
            writer.open, writer.locked = False, set()
            if action == "commit":
                for part in writer.written:
                    self.commit(part)

    def commit(self, executions: list[str]) -> None:
        """Count events that are committed."""
        for execution in executions:
            self.heads[execution] += 1


@pytest.fixture(scope="module")
def arena(postgres: Server, template: NoopExecutor) -> Iterator[tuple[TestDatabase, list[Logs]]]:
    """Sessions of one database, whose differences are cut at the fewest events."""
    with shared_kernel(postgres, template.template_dbname) as kernel:
        database = TestDatabase(postgres, str(kernel.connection.info.dbname))
        yield (
            database,
            [Logs(database.connect(OWNER, options="-c lock_timeout=8s")) for _ in range(WRITERS + 3)],
        )
        database.close_connections()


ACTIONS = st.tuples(
    st.sampled_from(
        [
            "begin",
            "append",
            "append",
            "append",
            "commit",
            "commit",
            "rollback",
            "savepoint",
            "undo",
            "read",
            "read",
        ]
    ),
    st.integers(0, WRITERS - 1),
    st.integers(0, EXECUTIONS - 1),
)


@pytest.mark.clause("E11b", "T4b")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(ACTIONS, min_size=30, max_size=60),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 50)),
    cut=st.sampled_from([1, 2, 3, 5, 4096]),
)
def test_a_reader_audits_any_interleaving(
    arena: tuple[TestDatabase, list[Logs]],
    actions: list[tuple[str, int, int]],
    sizes: tuple[int, int],
    cut: int,
) -> None:
    _, sessions = arena
    audit(sessions, actions, sizes, cut)


def audit(
    sessions: list[Logs], actions: list[tuple[str, int, int]], sizes: tuple[int, int], cut: int
) -> None:
    """Play a scene and see what its readers were given."""
    *writers, one, two, owner = sessions
    owner.rows(
        f"create or replace function underseal._cut_size() returns integer language sql immutable return {cut}"
    )
    begun: Any = owner.call("read_all", "now")["cursor"]
    prefix = f"e{next(_examples)}"
    scene = Scene(
        [Writer(logs) for logs in writers],
        [Reader(one, begun, sizes[0]), Reader(two, begun, sizes[1])],
        prefix,
        {f"{prefix}-{which}": 0 for which in range(EXECUTIONS)},
    )
    owner.start(*scene.heads)
    try:
        for action in actions:
            scene.step(*action)
    finally:
        for writer in scene.writers:
            scene.within(writer, "commit") if writer.open else None
    expected: list[Key] = [
        (execution, seq) for execution, head in scene.heads.items() for seq in range(head + 1)
    ]
    for reader in [*scene.readers, Reader(owner, begun, 7)]:
        reader.drain()
        well_ordered(reader.seen)
        assert sorted(reader.seen) == sorted(expected)
    assert Reader(owner, None, 100_000).drain() == owner.keys()
