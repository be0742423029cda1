"""The hash that binds a request to its parameters (clause H1.3)."""

from __future__ import annotations

import hashlib

from underseal.canonical.refusal import refusal

SALT_BYTES = 32
"""Length of a salt (clause H1.7a)."""


def params_hash(type: str, version: int, canonical: str, salt: bytes | None = None) -> bytes:  # noqa: A002
    """Hash parameters, as SQL's `underseal.params_hash` does.

    Parameters:
        type: the operation type, without a line feed.
        version: the type's version.
        canonical: the canonical text; it is hashed as it is and never normalised here (clause H1.1k).
        salt: `SALT_BYTES` bytes from the seal, if the type hides anything.

    Returns:
        32 bytes: SHA-256 over type, LF, version in decimal, LF, canonical text and, with a salt, LF and the salt.

    Raises:
        CanonicalError: `hash-input`: an LF in the type, or a salt of another length.
    """
    if "\n" in type:
        raise refusal("hash-input", "", "expected a type without a line feed")
    if salt is not None and len(salt) != SALT_BYTES:
        raise refusal("hash-input", "", f"expected a salt of {SALT_BYTES} bytes, found {len(salt)}")
    hashed = hashlib.sha256(f"{type}\n{version}\n{canonical}".encode())
    if salt is not None:
        hashed.update(b"\n" + salt)
    return hashed.digest()
