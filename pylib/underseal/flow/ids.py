"""Ids of executions: new ones, and those of children and successors, which follow from who asked."""

from __future__ import annotations

import re
from itertools import count
from typing import Final

from underseal.seal.entropy import random_bytes

_RUN: Final = re.compile(r"(?:^|[.])([0-9]+)$")
_DIGITS: Final = "234567abcdefghijklmnopqrstuvwxyz"


class Mint:
    """Makes ids for executions nobody named: 22 characters, of which the last 12 cannot be guessed.

    What one process starts in a row begins alike, so that its rows lie together in every index: half the pages are
    written. Short, since each index of each table holds it.
    """

    def __init__(self) -> None:
        """Draw what the ids of this process begin with."""
        self._begin = _text(25, int.from_bytes(random_bytes(4)))
        self._numbers = count()

    def new(self) -> str:
        """One more."""
        return self._begin + _text(25, next(self._numbers)) + _text(60, int.from_bytes(random_bytes(8)))


def _text(bits: int, number: int) -> str:
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(bits - 5, -1, -5))


def child_id(execution_id: str, name: str, number: int) -> str:
    """The id of a child: it follows from who asked, in which run of a line, and at which place.

    Parameters:
        execution_id: who asked.
        name: the child's name.
        number: number of the operation.
    """
    chain, _, member = execution_id.partition("~")
    run = _RUN.search(member)
    line = member[: run.start()] if run else member
    # the run stands last: before the number it would be taken for the end of another child's name
    which = f"{number}r{run.group(1)}" if run else str(number)
    return f"{chain}~{line}{':' if line else ''}{name}-{which}"


def successor_id(execution_id: str) -> str:
    """The execution that continues one.

    Parameters:
        execution_id: which has continued.
    """
    chain, _, member = execution_id.partition("~")
    run = _RUN.search(member)
    if run is None:
        return f"{chain}~{member}.2" if member else f"{chain}~2"
    return f"{chain}~{member[: run.start(1)]}{int(run.group(1)) + 1}"
