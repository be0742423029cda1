"""How canonical JSON refuses: a pointer to the offender, one word for the rule, and never a value."""

from __future__ import annotations

import re

from underseal.canonical.limits import MAX_SHOWN_PATH
from underseal.errors import CanonicalError

_UNSHOWABLE = re.compile("[\x00\ud800-\udfff\ufdd0-\ufdef]")


def member_path(path: str, name: str) -> str:
    """Point to a member.

    Parameters:
        path: RFC 6901 pointer to the object.
        name: the member's name as it was given.

    Returns:
        The member's pointer; characters that no message can hold are shown as U+FFFD.
    """
    shown = _UNSHOWABLE.sub("\ufffd", name).replace("~", "~0").replace("/", "~1")
    return f"{path}/{shown}"


def refusal(reason: str, path: str, explanation: str) -> CanonicalError:
    """Make the error for one rule, in the words of SQL's `underseal._refuse_canonical`.

    Parameters:
        reason: one hyphenated word (docs/formats.md lists them).
        path: RFC 6901 pointer to the offender, empty for the top level; a long one is cut.
        explanation: what was expected, what was found and what to do; no value of the document.

    Returns:
        The error to raise.
    """
    shown = path if len(path) <= MAX_SHOWN_PATH else f"{path[: MAX_SHOWN_PATH - 1]}\u2026"
    message = f"canonical JSON refused: {reason} at {shown or 'the top level'}: {explanation}"
    return CanonicalError(reason, shown, message)
