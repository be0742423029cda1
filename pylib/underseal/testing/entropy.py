"""Deterministic sources for the entropy seam: for vectors, tests and the simulator, never for a service (M17)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

from underseal.seal.entropy import BrandedEntropy, deterministic

__all__ = ["FixedEntropy", "SeededEntropy", "deterministic"]


class SeededEntropy(BrandedEntropy):
    """An endless stream that depends on nothing but ``seed``: SHA-256 of seed and counter.

    Safe to share between threads; which thread gets which bytes is then up to the scheduler.
    """

    def __init__(self, seed: int | str) -> None:
        self._seed = hashlib.sha256(f"underseal-test-entropy\n{seed}".encode()).digest()
        self._counter = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes of the stream; a draw never depends on the size of the one before."""
        drawn = b""
        with self._lock:
            while len(drawn) < size:
                drawn += hashlib.sha256(self._seed + self._counter.to_bytes(8, "big")).digest()
                self._counter += 1
        return drawn[:size]


class FixedEntropy(BrandedEntropy):
    """Hands out exactly the given byte strings, in order; any other size or one draw too many is an error."""

    def __init__(self, draws: Iterable[bytes]) -> None:
        self._draws = list(draws)

    def take(self, size: int) -> bytes:
        """Return the next byte string.

        Raises:
            AssertionError: nothing is left, or the next one has another size.
        """
        if not self._draws:
            raise AssertionError(f"{size} bytes were drawn, and none are left")
        drawn = self._draws.pop(0)
        if len(drawn) != size:
            raise AssertionError(f"{size} bytes were drawn, and the next draw has {len(drawn)}")
        return drawn
