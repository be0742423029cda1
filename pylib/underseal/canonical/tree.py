"""What lies between parsing and writing: JSON whose objects are still lists of pairs, numbers still tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written.

    Attributes:
        token: its characters; `NaN` and the infinities, which are no JSON, among them.
    """

    token: str


@dataclass(frozen=True, slots=True)
class Members:
    """An object as it was written.

    Attributes:
        pairs: names and values in their order, a name given twice included.
    """

    pairs: list[tuple[str, Tree]]


Tree: TypeAlias = "str | bool | Number | Members | list[Tree] | None"
"""A JSON value nothing has been judged of yet."""
