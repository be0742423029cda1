"""How an inherited suite gets its marks: those of its promises, and of the promise that the suite itself is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from underseal.testing.conformance import promises_of


def cases_of(suite: type) -> dict[str, Callable[..., None]]:
    """The tests of a suite, by name."""
    return {name: test for name, test in vars(suite).items() if name.startswith("test_")}


def pinned(*clauses: str) -> Callable[[type], type]:
    """Give each inherited test the marks of its promises, and of those that the suite itself is."""

    def give(case: type) -> type:
        for name, test in cases_of(case.__mro__[1]).items():
            body = pytest.mark.clause(*promises_of(test), *clauses)(_copy(test))
            setattr(case, name, body)
        return case

    return give


def _copy(test: Callable[..., None]) -> Callable[..., None]:
    def inherited(self: Any, store: Any) -> None:
        test(self, store)

    inherited.__name__ = test.__name__
    return inherited
