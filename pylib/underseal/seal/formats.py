"""What may be sealed: each format with its purpose, its place and the ciphers it accepts (docs/formats.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from underseal.seal.keys import SECRET_BYTES, Purpose

COMMITTING: Final = "underseal/aes-256-gcm-hkdf"
PLAIN: Final = "loom/aes-256-gcm"
HELD_PAYLOAD: Final = "held-payload-v1"
HELD_DECISION: Final = "held-decision-v1"
SNAPSHOT: Final = "loom-snap-v1"
FIELD: Final = "loom-field-v1"
MESSAGE: Final = "loom-message-v1"
KEY_WRAP: Final = "key-wrap-v1"
UNBOUND: Final = frozenset({FIELD, MESSAGE})
"""Formats that the record's cipher ties to no place: its envelopes of them have no associated data."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EPOCH: Final = re.compile(r"[1-9][0-9]*")
_KEY_ID: Final = re.compile(r"[!-~]{1,128}")
_SEQUENCE: Final = re.compile(r"0|[1-9][0-9]*")
_TEXT: Final = re.compile(r".+", re.DOTALL)
_EVENT_TYPE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_EVENT_KEY: Final = re.compile(r"\[.*\]", re.DOTALL)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_POINTER: Final = re.compile(r"(/([^~/]|~[01])*)+", re.DOTALL)
_PAYLOAD_POINTER: Final = re.compile(r"/payload(/([^~/]|~[01])*)*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of sealed value.

    Attributes:
        purpose: the only key purpose that seals it; ``None`` where the caller says which.
        place: the elements of the logical place, in order, and what each must look like.
        ciphers: the ciphers that may seal and open it.
        max_bytes: the longest plaintext, in bytes.
        own_origin: which element of the place its origin is, from 0; ``None`` where it is none of them.
    """

    purpose: Purpose | None
    place: Mapping[str, re.Pattern[str]]
    ciphers: frozenset[str]
    max_bytes: int
    own_origin: int | None

    def place_flaw(self, place: Sequence[str], origin: str) -> str | None:
        """Return what is wrong with a logical place and its origin, or ``None``."""
        if isinstance(place, str) or len(place) != len(self.place):
            return f"its place must have {len(self.place)} elements: {', '.join(self.place)}"
        for element, (name, pattern) in zip(place, self.place.items(), strict=True):
            if not isinstance(element, str) or not pattern.fullmatch(element):
                return f"the {name} of its place must be text that matches {pattern.pattern}"
        if not isinstance(origin, str) or not origin:
            return "its origin must be text, and not empty"
        if self.own_origin is not None and origin != place[self.own_origin]:
            return f"its origin must be the {list(self.place)[self.own_origin]}"
        return None


_MIB = 1024 * 1024

# A held seal never uses the record's cipher: that one commits to no key.
FORMATS: Final[dict[str, Format]] = {
    HELD_PAYLOAD: Format(
        purpose="payload",
        place={"operation id": _UUID},
        ciphers=frozenset({COMMITTING}),
        max_bytes=_MIB,
        own_origin=0,
    ),
    HELD_DECISION: Format(
        purpose="decision",
        place={"operation id": _UUID, "approver": _TEXT},
        ciphers=frozenset({COMMITTING}),
        max_bytes=_MIB,
        own_origin=0,
    ),
    SNAPSHOT: Format(
        purpose=None,
        place={"execution id": _TEXT, "sequence": _SEQUENCE},
        ciphers=frozenset({COMMITTING, PLAIN}),
        max_bytes=64 * _MIB,
        own_origin=None,
    ),
    FIELD: Format(
        purpose="subject",
        place={
            "subject": _TEXT,
            "origin execution": _TEXT,
            "event type": _EVENT_TYPE,
            "event key": _EVENT_KEY,
            "path": _POINTER,
        },
        ciphers=frozenset({COMMITTING, PLAIN}),
        max_bytes=_MIB,
        own_origin=1,
    ),
    MESSAGE: Format(
        purpose="subject",
        place={"subject": _TEXT, "inbox": _TEXT, "message key": _SHA256, "path": _PAYLOAD_POINTER},
        ciphers=frozenset({COMMITTING, PLAIN}),
        max_bytes=_MIB,
        own_origin=1,
    ),
    KEY_WRAP: Format(
        purpose="master",
        place={"subject": _TEXT, "key id": _KEY_ID, "epoch": _EPOCH},
        ciphers=frozenset({COMMITTING}),
        max_bytes=SECRET_BYTES,
        own_origin=1,
    ),
}
