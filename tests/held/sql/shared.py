"""One database for the many tests that need no second session: each runs in a transaction that is rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tests.databases import own_database
from tests.held.sql.kernel import Kernel
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestClock


@contextmanager
def shared_kernel(server: Server, template: str | None) -> Iterator[Kernel]:
    """A database with the kernel, a clock moved by hand, and a session that a superuser opened.

    Parameters:
        server: where.
        template: name of the database to clone.
    """
    with own_database(server, template, "shared") as database:
        yield Kernel(database.connect(), TestClock(database))


@contextmanager
def rolled_back(kernel: Kernel) -> Iterator[Kernel]:
    """The schema owner's view of it, for one test; what the test does is undone.

    Parameters:
        kernel: of `shared_kernel`.
    """
    kernel.clock.set(datetime.now(UTC).replace(microsecond=0))
    with kernel.connection.transaction(force_rollback=True):
        kernel.connection.execute(f"set local session authorization {OWNER}")
        yield kernel
