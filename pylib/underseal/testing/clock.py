"""A clock that a test moves by hand.

It replaces `underseal.clock()` in one test database by a reading of a sequence: sequences stand outside
transactions, so every session sees a change at once, at every isolation level. Nothing of it is in the kernel.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from underseal.testing.database import TestDatabase

_INSTALL = """
create sequence underseal.test_clock start 1;
grant select on sequence underseal.test_clock to public;
create or replace function underseal.clock() returns timestamptz
language sql volatile parallel safe
as $$ select timestamptz 'epoch' + c.last_value * interval '1 microsecond' from underseal.test_clock c $$;
"""


class TestClock:
    """The hand-moved clock of one test database. It starts at the real time and then stands still.

    Parameters:
        database: where to install it.
    """

    __test__ = False

    def __init__(self, database: TestDatabase) -> None:
        self._connection = database.connect()
        self._connection.execute(_INSTALL)
        self.set(datetime.now(UTC).replace(microsecond=0))

    def now(self) -> datetime:
        """What `underseal.clock()` says, in UTC."""
        row = self._connection.execute("select underseal.clock() as now").fetchone()
        assert row is not None
        return row["now"].astimezone(UTC)  # type: ignore[no-any-return]

    def set(self, instant: datetime) -> None:
        """Move it to an instant.

        Parameters:
            instant: with a zone, after 1970.
        """
        micros = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        self._connection.execute("select setval('underseal.test_clock', %s)", [micros])

    def advance(self, **duration: float) -> datetime:
        """Move it on (or back, with a negative duration).

        Parameters:
            duration: as `timedelta` takes it: seconds=…, minutes=…, days=….

        Returns: the new time.
        """
        self.set(self.now() + timedelta(**duration))
        return self.now()
