"""Two sessions that really wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from tests.held.sql.kernel import Claimed, Kernel, Row
from underseal.testing import DictConnection, TestClock, in_background, unique_name, wait_blocked

T = TypeVar("T")
U = TypeVar("U")


@dataclass
class Arena:
    """Sessions in one database, with a type of operation that no other test has.

    Parameters:
        a, b, c: autocommit sessions of the schema's owner.
        admin: a superuser's session, which looks at the locks.
        clock: moved by hand.
        type: the type of this test's operations.
    """

    a: Kernel
    b: Kernel
    c: Kernel
    admin: DictConnection
    clock: TestClock
    type: str = field(default_factory=lambda: unique_name("race"))

    def register(self, **policy: Any) -> Row:
        """Register this test's type, or change its policy."""
        return self.a.register(self.type, **policy)

    def held(self, **changes: Any) -> UUID:
        """An operation that waits for votes."""
        return self.a.hold(type=self.type, **changes)

    def approved(self, **changes: Any) -> UUID:
        """An operation that waits for its run."""
        operation = self.held(**changes)
        assert self.a.approve(operation)["outcome"] == "approved"
        return operation

    def executing(self) -> Claimed:
        """A run under way."""
        operation = self.approved()
        (row,) = self.claim(self.a, operation)
        return Claimed(operation, row["run_id"], row["run_token"])

    def claim(self, k: Kernel, only: UUID | None = None, worker: str = "w1", most: int = 10) -> list[Row]:
        """Claim runs of this test's type."""
        return k.claims(worker, [self.type], [1], ["k1"], most, only)

    def resubmit(self, k: Kernel, operation: UUID) -> Row:
        """Claim as the requester."""
        return k.call("claim_resubmission", operation, "ann", "session", None, "w1", [self.type], [1], ["k1"])

    def sweep(self, k: Kernel) -> dict[UUID, str]:
        """What a sweep ended of this test's operations."""
        mine = {
            row["operation_id"]
            for row in k.rows("select operation_id from underseal.held_operation where type = %s", self.type)
        }
        return {
            row["operation_id"]: row["outcome"]
            for row in k.calls("sweep_operations", 1000)
            if row["operation_id"] in mine
        }

    def race(
        self,
        first: Callable[[Kernel], T],
        second: Callable[[Kernel], U],
        *,
        meanwhile: Callable[[], object] | None = None,
        rollback: bool = False,
    ) -> tuple[T, U]:
        """One session acts and stays in its transaction; the other acts and waits for it; then the first ends.

        Parameters:
            first: what session `a` does.
            second: what session `b` does; it must come to wait for a lock.
            meanwhile: done while `b` waits.
            rollback: whether `a` ends by undoing what it did.

        Returns: what the two got.
        """
        with self.a.connection.transaction(force_rollback=rollback):
            one = first(self.a)
            waiting = in_background(second, self.b)
            wait_blocked(self.admin, self.b.connection.info.backend_pid)
            if meanwhile is not None:
                meanwhile()
        return one, waiting.result(10)

    def behind_a_lock(self, operation: UUID, second: Callable[[Kernel], U], **duration: float) -> U:
        """Let a call wait for a lock whose holder changes nothing, and let time pass meanwhile.

        Parameters:
            operation: whose row is locked.
            second: the call.
            duration: how much time passes, as `timedelta` takes it.
        """
        until = self.clock.now() + timedelta(**duration)
        _, answer = self.race(
            lambda k: k.rows(
                "select from underseal.held_operation where operation_id = %s for no key update", operation
            ),
            second,
            meanwhile=lambda: self.clock.set(until),
        )
        return answer
