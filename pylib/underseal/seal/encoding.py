"""Base64url without padding, strictly: one text for each byte string (RFC 4648, section 5)."""

from __future__ import annotations

import base64
import re

_ALPHABET = re.compile(r"[A-Za-z0-9_-]*")


def encode(data: bytes) -> str:
    """Return ``data`` in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes | None:
    """Return the bytes that ``encode`` would turn into exactly ``text``, or ``None`` if there are none.

    Padding, line breaks, the other alphabet, an impossible length and left-over bits are all refused, so that
    nobody can write one envelope in two ways.
    """
    if not _ALPHABET.fullmatch(text) or len(text) % 4 == 1:
        return None
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if encode(data) == text else None


def length(size: int) -> int:
    """Return how many characters ``size`` bytes take."""
    return -(-size * 4 // 3)
