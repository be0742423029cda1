"""A latency hint: whoever makes something due says so by NOTIFY, and workers look at once instead of soon.

Nothing depends on it. It travels on connections of its own, after the commit that made something due, so that no commit
of the log takes the lock that notifying commits take; and it says only "look", at most so often, whatever happened
meanwhile. Where it is lost, a worker finds the same at its next look.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import psycopg

from underseal.errors import FlowError
from underseal.foundation.sources import AsyncPoolSource, Place, PoolSource

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

log = logging.getLogger("underseal.worker")

CHANNEL: Final = "underseal_due"
EVERY: Final = 0.005
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_CONNECT_SECONDS: Final = 10
_KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


def hint_place(source: PoolSource | AsyncPoolSource, hint: bool | str) -> Place | None:
    """Where hints are sent and heard.

    Parameters:
        source: the client's connections.
        hint: whether at all; or a conninfo for hints alone, past a pgbouncer that shares sessions.

    Errors:
        FlowError: the host's pool does not tell where it leads.
    """
    if isinstance(hint, str):
        return hint, {}
    if not hint:
        return None
    place = source.place
    if place is None:
        raise FlowError(
            "expected a pool that tells its conninfo, found one that makes it: give hint='conninfo'"
        )
    conninfo, more = place
    return conninfo, {name: value for name, value in more.items() if name not in ("autocommit", "context")}


class Hinter:
    """Says that something is due: once at once, and once more for all that came within the next few milliseconds.

    One daemon thread, begun at the first hint, with one connection; sync and async callers alike use it, and none of
    them waits.
    """

    def __init__(self, place: Place, every: float = EVERY) -> None:
        """Prepare it; nothing is connected before the first hint.

        Parameters:
            place: where it connects.
            every: seconds between two notifications at least.
        """
        self._place = place
        self._every = every
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: int | None = None
        self.sent = 0

    def hint(self) -> None:
        """Something was made due and is committed."""
        if self._process != os.getpid():
            self._begin()
        self._wanted.set()

    def _begin(self) -> None:
        """Start the thread; again in a process that was forked off."""
        with self._lock:
            if self._process == os.getpid() or self._closing.is_set():
                return
            self._wanted, self._process = threading.Event(), os.getpid()
            threading.Thread(
                target=self._run, args=(self._wanted,), name="underseal-hint", daemon=True
            ).start()

    def close(self) -> None:
        """End it; what was hinted in the last milliseconds may stay unsaid."""
        self._closing.set()
        self._wanted.set()

    def _run(self, wanted: threading.Event) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            wanted.wait()
            try:
                conninfo, more = self._place
                with psycopg.connect(
                    conninfo, **{"connect_timeout": _CONNECT_SECONDS, **more, "autocommit": True}
                ) as conn:
                    pause = _FIRST_PAUSE
                    self._say(conn, wanted)
            except (psycopg.Error, OSError) as error:
                # a hint that cannot be given is not owed: whoever looks finds it
                wanted.clear()
                log.debug("no hint could be given (%s), trying again in %s s", type(error).__name__, pause)
                self._closing.wait(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)

    def _say(self, conn: psycopg.Connection[Any], wanted: threading.Event) -> None:
        while not self._closing.is_set():
            wanted.wait()
            wanted.clear()
            conn.execute(f"notify {CHANNEL}")
            self.sent += 1
            self._closing.wait(self._every)


class Listener:
    """Hears hints, on a connection of its own that it opens again and again."""

    def __init__(self, place: Place) -> None:
        """Prepare it.

        Parameters:
            place: where it connects.
        """
        self._place = place

    async def listen(self, look: Callable[[], None]) -> None:
        """Call `look` at every hint, until cancelled.

        Parameters:
            look: returns at once.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                conninfo, more = self._place
                told = {"connect_timeout": _CONNECT_SECONDS, **_KEEPALIVES, **more, "autocommit": True}
                async with await psycopg.AsyncConnection.connect(conninfo, **told) as conn:
                    await conn.execute(f"listen {CHANNEL}")
                    pause = _FIRST_PAUSE
                    look()  # what was said while nobody listened
                    async for _ in conn.notifies():
                        look()
            except (psycopg.Error, OSError) as error:
                log.info("hints are not heard for now (%s), looking instead", type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)


def hinter_of(client: Underseal | AsyncUnderseal, hint: bool | str) -> Hinter | None:
    """The hinter of a client; None where it gives no hints.

    Parameters:
        client: whose connections tell where.
        hint: as in `hint_place`.
    """
    place = hint_place(client._source, hint)
    return None if place is None else Hinter(place)
