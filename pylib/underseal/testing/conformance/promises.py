"""Which promises of docs/clauses.md a test of a suite is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def promise(*clauses: str) -> Callable[[F], F]:
    """Note the clauses on a test. No marker of pytest's, which a user's configuration need not know.

    Parameters:
        clauses: ids of docs/clauses.md.
    """

    def note(test: F) -> F:
        test.promises = clauses  # type: ignore[attr-defined]
        return test

    return note


def promises_of(test: Callable[..., Any]) -> tuple[str, ...]:
    """The clauses that a test of a suite is about.

    Parameters:
        test: a method of a suite.
    """
    clauses: tuple[str, ...] = getattr(test, "promises", ())
    return clauses
