"""Where every random byte comes from: salts, IVs, keys, ids, tickets (clause M17).

There is one seam, so that tests and the simulator can replay a run byte for byte. What may be put into it is
a source that lives in ``underseal.testing`` and says so by its type, and it gives bytes only under a test
run.
"""

from __future__ import annotations

import os
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

_HOME = "underseal.testing."


class BrandedEntropy(ABC):
    """The brand of a deterministic source: only classes of ``underseal.testing`` can carry it."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith(_HOME):
            raise TypeError(
                f"{cls.__qualname__} of {cls.__module__} cannot be a source of entropy: "
                "deterministic sources exist in underseal.testing alone"
            )

    @abstractmethod
    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""


_source: BrandedEntropy | None = None


def random_bytes(size: int) -> bytes:
    """Return ``size`` unpredictable bytes.

    They come from the operating system, unless a test has installed a deterministic source.

    Raises:
        RuntimeError: a deterministic source is installed and this is no test run (clause M17).
    """
    source = _source
    if source is None:
        return secrets.token_bytes(size)
    _demand_test_run()
    return source.take(size)


@contextmanager
def deterministic(source: BrandedEntropy) -> Iterator[None]:
    """Use ``source`` for the whole process while the block lasts; for tests alone (clause M17).

    Raises:
        TypeError: ``source`` does not carry the brand, for example a plain function.
        RuntimeError: this is no test run, or another source is installed.
    """
    global _source
    if not isinstance(source, BrandedEntropy):
        raise TypeError(
            f"a source of entropy must come from underseal.testing, and this is a {type(source).__name__}"
        )
    _demand_test_run()
    if _source is not None:
        raise RuntimeError("a deterministic source of entropy is already installed; leave its block first")
    _source = source
    try:
        yield
    finally:
        _source = None


def _demand_test_run() -> None:
    # pytest sets the variable while a test runs and removes it after; the module alone would also be there in
    # a service that happens to import pytest, and the variable alone could be inherited.
    if "pytest" not in sys.modules or "PYTEST_CURRENT_TEST" not in os.environ:
        raise RuntimeError("deterministic entropy was asked for outside a test run; nothing was drawn")
