"""The usual end of a command: an outcome of the database, said to people or to scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from underseal.cli._exits import demand_done, say
from underseal.cli._json import print_json

if TYPE_CHECKING:
    from underseal import Outcome


def conclude(done: Outcome, as_json: bool, instead: str | None = None) -> None:
    """Say a "yes", and end the command at a "no".

    Parameters:
        done: the outcome.
        as_json: whether a script asked.
        instead: what to tell people, where the database has no message.

    Errors:
        Stop: it is a "no".
    """
    demand_done(done.outcome, done.reason, done.message)
    if as_json:
        print_json(done)
    else:
        say(done.message or instead)
