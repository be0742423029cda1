"""What executions and messages are given at the command line: JSON values, lengths of time; and what is given back, a
command to be pasted into a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import IO, Any, Final, NoReturn

import click

from underseal.cli._visible import visible

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_PART: Final = re.compile(r"(\d{1,6})\s*(s|min|m|h|d)\s*")


def length(_context: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    """A length of time as this command line prints it: `90s`, `15min`, `2h`, `1 d 12 h`; a callback of options.

    Parameters:
        value: what was given, if anything.

    Errors:
        click.BadParameter: something else.
    """
    if value is None:
        return None
    parts = _PART.findall(value)
    if not parts or len(parts) > len(_UNITS) or "".join(_PART.split(value)[::3]):
        raise click.BadParameter(
            "expected a length of time such as 90s, 15min, 2h or '1 d 12 h', found something else"
        )
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))


def json_options(option: str, what: str) -> Callable[[Any], Any]:
    """Where a command takes its JSON from: an argument FILE, or an option.

    Parameters:
        option: the option's name, with its dashes.
        what: what the value is.
    """

    def decorate(command: Any) -> Any:
        given = click.option(option, "text", metavar="JSON", help=f"{what}, as JSON; FILE keeps a secret.")
        return click.argument("file", required=False, type=click.File("rb"))(given(command))

    return decorate


def json_value(text: str | None, file: IO[bytes] | None, option: str, *, needed: bool) -> Any:
    """The value that was given.

    Parameters:
        text: that of the option.
        file: that of the argument.
        option: the option's name.
        needed: whether nothing is wrong; otherwise it is null.

    Errors:
        click.UsageError: both, none where one is needed, or what is no JSON. Nothing of it is shown.
    """
    if text is not None and file is not None:
        raise click.UsageError(f"expected {option} or FILE, found both")
    if text is None and file is None:
        if needed:
            raise click.UsageError(f"expected {option} or FILE, found neither; for example {option} '{{}}'")
        return None
    where = option if file is None else "FILE"
    try:
        content = text if file is None else file.read().decode()
        value = json.loads(
            content or "", object_pairs_hook=_once, parse_float=_exact_float, parse_constant=_no_constant
        )
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
        return value
    except (ValueError, RecursionError) as error:
        fault = str(error) if isinstance(error, _NotKept) else "found something else"
    raise click.UsageError(
        f"expected {where} to be one JSON value in UTF-8, {fault} (not shown){_hint(text)}"
    )


def _hint(text: str | None) -> str:
    """People forget the quotes that make a JSON text of theirs."""
    plain = (
        text is not None and re.fullmatch(r"[^\W\d][\w .-]*", text) and text not in ("true", "false", "null")
    )
    return "; a text needs quotes of its own: '\"text\"'" if plain else ""


class _NotKept(ValueError):  # noqa: N818 -- it says what was found
    """What JSON may say and would not be stored as it was said."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _NotKept("found a name twice in one object")
    return dict(pairs)


def _exact_float(digits: str) -> float:
    number = float(digits)
    if not number - number == 0 or Decimal(digits) != Decimal(repr(number)):
        raise _NotKept("found a number with more digits than a double keeps; send it as a text")
    return number


def _no_constant(_: str) -> NoReturn:
    raise _NotKept("found NaN or an infinity")


def command(*words: object) -> str:
    """A command line that a shell takes as it stands, in which nothing is hidden.

    Parameters:
        words: its words.
    """
    return " ".join(map(_quoted, map(str, words)))


def _quoted(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(character: str) -> str:
    """As bash, zsh and ksh read it between `$'` and `'`."""
    if character in "'\\":
        return f"\\{character}"
    return character if " " <= character <= "~" else f"\\U{ord(character):08x}"
