"""Unwrapped keys for a little while, so that not every lookup asks the master; a destruction evicts them (DESIGN 6)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NoReturn

from underseal.seal.keys import Key
from underseal.seal.store.model import KeyPlace

LIMIT: Final = 1000
SECONDS: Final = 60.0


class KeyCache:
    """At most ``limit`` keys, each for at most ``seconds``. Safe between threads.

    A store looks at its files before it looks here, so a destroyed key is not served from any process's cache; what
    a cache prolongs is how long the bytes stay in memory, and how long a withdrawn master goes unnoticed.

    Parameters:
        limit: how many keys; the one that was not used for longest goes first.
        seconds: how long after it was unwrapped; 0 keeps none.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, limit: int = LIMIT, seconds: float = SECONDS, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: OrderedDict[KeyPlace, tuple[float, Key]] = OrderedDict()
        self._evictions = 0

    @property
    def evictions(self) -> int:
        """How many there were: read it before what is put here is read."""
        return self._evictions

    def get(self, place: KeyPlace) -> Key | None:
        """Return the key, if it is here and not too old."""
        with self._lock:
            self._expire()
            if place not in self._keys:
                return None
            self._keys.move_to_end(place)
            return self._keys[place][1]

    def put(self, place: KeyPlace, key: Key, evictions: int) -> None:
        """Keep a key, unless there was an eviction since ``evictions`` was read: it may be of what was destroyed."""
        with self._lock:
            if evictions != self._evictions:
                return
            self._keys[place] = (self._clock() + self._seconds, key)
            self._keys.move_to_end(place)
            self._expire()
            while len(self._keys) > self._limit:
                self._keys.popitem(last=False)

    def evict(self, subject: str) -> None:
        """Forget every key of ``subject``."""
        with self._lock:
            self._evictions += 1
            for place in [place for place in self._keys if place.subject == subject]:
                del self._keys[place]

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._keys)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a cache of keys is never pickled or copied")

    def __repr__(self) -> str:
        return f"<KeyCache of at most {self._limit} keys for {self._seconds:g} s>"

    def _expire(self) -> None:
        now = self._clock()
        for place in [place for place, (until, _) in self._keys.items() if until <= now]:
            del self._keys[place]
