"""What may be sealed: each format with its purpose, its place and the ciphers it accepts (docs/formats.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from underseal.seal.keys import Purpose

COMMITTING: Final = "underseal/aes-256-gcm-hkdf"
PLAIN: Final = "loom/aes-256-gcm"
HELD_PAYLOAD: Final = "held-payload-v1"
HELD_DECISION: Final = "held-decision-v1"
SNAPSHOT: Final = "loom-snap-v1"

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SEQUENCE: Final = re.compile(r"0|[1-9][0-9]*")
_TEXT: Final = re.compile(r".+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of sealed value.

    Attributes:
        purpose: the only key purpose that seals it; ``None`` where the caller says which.
        place: the elements of the logical place, in order, and what each must look like.
        ciphers: the ciphers that may seal and open it.
        max_bytes: the longest plaintext, in bytes.
        own_origin: the value is never copied, so its origin is the first element of its place.
    """

    purpose: Purpose | None
    place: Mapping[str, re.Pattern[str]]
    ciphers: frozenset[str]
    max_bytes: int
    own_origin: bool

    def place_flaw(self, place: Sequence[str], origin: str) -> str | None:
        """Return what is wrong with a logical place and its origin, or ``None``."""
        if isinstance(place, str) or len(place) != len(self.place):
            return f"its place must have {len(self.place)} elements: {', '.join(self.place)}"
        for element, (name, pattern) in zip(place, self.place.items(), strict=True):
            if not isinstance(element, str) or not pattern.fullmatch(element):
                return f"the {name} of its place must be text that matches {pattern.pattern}"
        if not isinstance(origin, str) or not origin:
            return "its origin must be text, and not empty"
        if self.own_origin and origin != place[0]:
            return f"its origin must be the {next(iter(self.place))}"
        return None


_MIB = 1024 * 1024

# A held seal never uses the record's cipher: that one commits to no key.
FORMATS: Final[dict[str, Format]] = {
    HELD_PAYLOAD: Format(
        purpose="payload",
        place={"operation id": _UUID},
        ciphers=frozenset({COMMITTING}),
        max_bytes=_MIB,
        own_origin=True,
    ),
    HELD_DECISION: Format(
        purpose="decision",
        place={"operation id": _UUID, "approver": _TEXT},
        ciphers=frozenset({COMMITTING}),
        max_bytes=_MIB,
        own_origin=True,
    ),
    SNAPSHOT: Format(
        purpose=None,
        place={"execution id": _TEXT, "sequence": _SEQUENCE},
        ciphers=frozenset({COMMITTING, PLAIN}),
        max_bytes=64 * _MIB,
        own_origin=False,
    ),
}
