"""Makes every character visible that could mislead whoever reads it before a decision.

What other people wrote (parameters, effects, reasons, names) passes through here before it reaches a terminal. A
character that is not seen, that reorders or hides its neighbours, or that speaks to the terminal is shown as
`⟨U+202E⟩`. The two brackets are shown so too, so that such a mark cannot be forged.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

_UNSEEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"})
# Unicode's ignorable characters and blanks that their category does not give away, and our own brackets.
_MISLEADING: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff⟨⟩]"
)
# Two marks upon one letter are ordinary writing (Vietnamese, Thai, Hebrew); a tower of them hides its neighbours.
_MARKS_ALLOWED: Final = 2
_WORD: Final = re.compile(r"[^\W\d_]+")
# Alphabets with letters that look like Latin ones, by the first word of a letter's name.
_LOOK_ALIKE: Final = frozenset(
    {"ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "FULLWIDTH", "GREEK", "LISU", "MATHEMATICAL"}
)


def mark(character: str) -> str:
    """The visible stand-in of one character: `⟨U+202E⟩`.

    Parameters:
        character: the character.
    """
    return f"⟨U+{ord(character):04X}⟩"


def visible(text: str) -> str:
    """A text in which nothing is hidden.

    Shown as marks are control and format characters (newline, tab, escape and the bidirectional controls among
    them), every space but the ordinary one, ignorable and unassigned characters, combining marks without a letter
    or beyond two on one letter, and, in a word that has Latin letters, those of an alphabet that looks alike. A whole
    word of such an alphabet is left as it is: it may be somebody's language.

    Parameters:
        text: what somebody wrote.
    """
    foreign = {word.start() + place for word in _WORD.finditer(text) for place in _look_alikes(word[0])}
    shown = []
    room = 0  # for combining marks on the letter before
    for place, character in enumerate(text):
        combining = unicodedata.category(character) == "Mn"
        hidden = place in foreign or _misleads(character) or (combining and room == 0)
        shown.append(mark(character) if hidden else character)
        if combining and not hidden:
            room -= 1
        else:
            room = 0 if hidden or character == " " else _MARKS_ALLOWED
    return "".join(shown)


def _misleads(character: str) -> bool:
    if character == " ":
        return False
    return unicodedata.category(character) in _UNSEEN_CATEGORIES or _MISLEADING.match(character) is not None


def _look_alikes(word: str) -> list[int]:
    """Places of the letters in one word that pass for letters of the word's Latin ones."""
    if word.isascii():
        return []
    alphabets = [unicodedata.name(letter, "").partition(" ")[0] for letter in word]
    if "LATIN" not in alphabets:
        return []
    return [place for place, alphabet in enumerate(alphabets) if alphabet in _LOOK_ALIKE]


def visible_value(value: Any) -> str:
    """A JSON value in one line: strings quoted, everything in them visible.

    Parameters:
        value: a parsed JSON value.
    """
    if isinstance(value, str):
        return '"' + visible(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{visible_value(k)}: {visible_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(visible_value, value)) + "]"
    return json.dumps(value)


def members(text: str) -> list[tuple[str, str]]:
    """A JSON text as rows of place and value, nested members each in a row of its own.

    Parameters:
        text: JSON; whatever else it is becomes one row as it stands.

    Returns: pairs of a place (`recipient/iban`; `/` and `~` in a name as in RFC 6901) and a visible value.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [("", visible(text))]
    return _rows("", value)


def _rows(place: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        pairs = [(name.replace("~", "~0").replace("/", "~1"), one) for name, one in value.items()]
    elif isinstance(value, list) and value:
        pairs = [(str(number), one) for number, one in enumerate(value)]
    else:
        return [(visible(place), visible_value(value))]
    return [row for name, one in pairs for row in _rows(f"{place}/{name}" if place else name, one)]
