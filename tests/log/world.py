"""Executions in one session that undoes everything, driven by random calls of the verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.held.sql.kernel import Kernel
from underseal.errors import (
    ExecutionAlreadyExistsError,
    ExecutionDeniedError,
    ExecutionRefusedError,
    InboxMessageRefusedError,
)
from underseal.foundation.steps import Steps, drive
from underseal.log import batch, verbs
from underseal.log.client import ExecutionDriver, Executions
from underseal.log.model import FoldView, LogEvent
from underseal.log.verify import Verification
from underseal.testing import OWNER

NOS = (
    ExecutionAlreadyExistsError,
    ExecutionDeniedError,
    ExecutionRefusedError,
    InboxMessageRefusedError,
)
WHO = "ann"


@dataclass
class World:
    """What there is, and the calls that change it.

    Parameters:
        kernel: the session.
    """

    kernel: Kernel
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.executions = Executions("")
        self.driver = ExecutionDriver("")
        self.connection = self.kernel.connection

    def do(self, steps: Steps[Any]) -> Any:
        """Carry steps out in this session."""
        return drive(self.connection, steps)

    def fence(self, execution_id: str) -> int:
        """Take the fence; of one that has ended, the one it has."""
        return self.driver.acquire_fence(execution_id, connection=self.connection).fence or 0

    def write(self, *items: batch.Item) -> list[str]:
        """Write a batch: its outcomes."""
        answers = self.driver.append_batch(items, connection=self.connection)
        for answer in answers:
            if answer.outcome in ("started", "continued") and answer.execution_id is not None:
                successor = self.kernel.value(
                    "select underseal._execution_id(%s, underseal._successor_of(%s))",
                    *answer.execution_id.partition("~")[::2],
                )
                self.ids.append(answer.execution_id if answer.outcome == "started" else successor)
        return [answer.outcome for answer in answers]

    def attempt(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a verb whose no is raised; None for a no."""
        try:
            with self.connection.transaction():
                return call(*args, connection=self.connection, **kwargs)
        except NOS:
            return None

    def events(self, execution_id: str) -> list[LogEvent]:
        """A log."""
        return self.driver.events(execution_id, connection=self.connection)

    def view(self, execution_id: str) -> FoldView:
        """What the tables say."""
        found: FoldView = self.do(verbs.fold_view(execution_id, None))
        return found

    def verify(self, execution_id: str) -> Verification:
        """Compare one."""
        return self.executions.verify(execution_id, connection=self.connection)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.kernel.clock.advance(seconds=seconds)

    # -- whole stories -----------------------------------------------------------------------------

    def started(self, execution_id: str = "c") -> int:
        """Start one that has recorded two steps: its fence."""
        self.write(batch.start_item(execution_id, "f", WHO))
        self.write(batch.append_item(execution_id, 1, [batch.event("STEP", n=1), batch.event("STEP", n=2)]))
        return 1

    def parked(self, execution_id: str = "c") -> int:
        """Start one and park it on a topic and on time: its fence."""
        fence = self.started(execution_id)
        waits = [batch.wait("a", batch.topic("t")), batch.wait("b", batch.sleep(timedelta(hours=1)))]
        assert self.write(batch.park_item(execution_id, fence, waits)) == ["parked"]
        return fence


@contextmanager
def undone_world(kernel: Kernel) -> Iterator[World]:
    """A world as the schema's owner sees it, which is gone afterwards.

    Parameters:
        kernel: of `shared_kernel`.
    """
    kernel.clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    with kernel.connection.transaction(force_rollback=True):
        kernel.connection.execute(f"set local session authorization {OWNER}")
        yield World(kernel)
