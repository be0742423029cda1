"""How a secret looks wherever it may have got to: as it is, escaped, in hex, in base64, as numbers."""

from __future__ import annotations

import base64


def needles(secret: bytes) -> set[str]:
    """Every spelling to look for, in a text made lower case where the spelling knows no case.

    Base64 of a longer text holds the secret at one of three offsets; what depends on its neighbours is cut off.
    """
    found = {secret.hex(), secret.decode("latin-1"), " ".join(map(str, secret)), ", ".join(map(str, secret))}
    found.add(str(secret)[2:-1])
    found.add("\\" + "\\".join(f"{byte:03o}" for byte in secret))
    for offset in range(3):
        coded = base64.b64encode(bytes(offset) + secret).decode().rstrip("=")
        coded = coded[-(-offset * 8 // 6) : len(secret + bytes(offset)) * 8 // 6]
        found |= {coded, coded.replace("+", "-").replace("/", "_")}
    return found


def found_in(text: str, secret: bytes) -> set[str]:
    """The spellings of a secret that a text holds."""
    lower = text.lower()
    return {
        needle for needle in needles(secret) if needle in text or (needle == secret.hex() and needle in lower)
    }
