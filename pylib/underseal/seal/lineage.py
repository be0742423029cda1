"""From which execution an event may come: a fork begins with a copy of another's events (DESIGN 6, M19)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_RUN: Final = re.compile(r"(^|[.])[0-9]+$")


@dataclass(frozen=True, slots=True)
class Lineage:
    """An execution and those it was forked from.

    Attributes:
        execution_id: the execution.
        forked_from: the execution it was forked from and the last event that was copied, then the one that was
            forked from, and so on.
    """

    execution_id: str
    forked_from: tuple[tuple[str, int], ...] = ()

    def fork(self, execution_id: str, through_seq: int) -> Lineage:
        """The lineage of a fork of this execution.

        Parameters:
            execution_id: the fork.
            through_seq: number of the last event that it copies.
        """
        return Lineage(execution_id, ((self.execution_id, through_seq), *self.forked_from))

    def allows(self, origin: str, seq: int) -> bool:
        """Whether an event of this number may have been sealed by that execution.

        Number 0 is every fork's own, with the input of the one that they all come from.
        """
        owner = self.execution_id
        for ancestor, through in self.forked_from:
            if seq > through:
                break
            owner = ancestor
        return origin == owner

    def members(self) -> list[str]:
        """The execution and its ancestors."""
        return [self.execution_id, *(ancestor for ancestor, _ in self.forked_from)]

    def inboxes(self) -> list[str]:
        """The inboxes that messages in its log may have come to."""
        return [inbox_of(member) for member in self.members()]

    def to_json(self) -> list[list[str | int]]:
        """What is sealed into a fork's EXECUTION_STARTED: ``[[execution id, last event copied], …]``."""
        return [list(step) for step in self.forked_from]

    @classmethod
    def from_json(cls, execution_id: str, value: Any) -> Lineage | None:
        """The reverse of ``to_json``; None for anything else."""
        if not isinstance(value, list) or not all(map(_is_step, value)):
            return None
        return cls(execution_id, tuple((step[0], step[1]) for step in value))


def chain_of(execution_id: str) -> str:
    """The chain of an execution."""
    return execution_id.partition("~")[0]


def line_of(execution_id: str) -> str:
    """The member that began an execution's line of continuations; empty for the chain's first."""
    return _RUN.sub("", execution_id.partition("~")[2])


def inbox_of(execution_id: str) -> str:
    """The id of an execution's inbox: of the execution that began its line."""
    line = line_of(execution_id)
    return f"{chain_of(execution_id)}~{line}" if line else chain_of(execution_id)


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, Sequence)
        and len(step) == 2
        and isinstance(step[0], str)
        and bool(step[0])
        and type(step[1]) is int
        and step[1] >= 0
    )
