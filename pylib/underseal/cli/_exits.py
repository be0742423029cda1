"""Exit codes, and how every end of a command is said: an outcome, a refusal, an error."""

from __future__ import annotations

import functools
import json
import os
import traceback
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import click
import psycopg

from underseal.cli._visible import visible
from underseal.errors import (
    AccessDenied,
    CanonicalError,
    ExecutionAlreadyExistsError,
    ExecutionDeniedError,
    ExecutionRefusedError,
    InboxMessageRefusedError,
    KernelError,
    ParametersRefused,
    PermissionDenied,
    ProviderRefused,
    RequestRefused,
    UndersealError,
    UnknownConsumer,
)
from underseal.foundation.sources import ConninfoError

P = ParamSpec("P")
R = TypeVar("R")

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CONFLICT: Final = 3
REFUSED: Final = 4
DENIED: Final = 5

# Not-found is a denial too: a stranger must not be able to tell the two apart, and neither must a script of theirs.
_BY_OUTCOME: Final = {
    "conflict": CONFLICT,
    "refused": REFUSED,
    "denied": DENIED,
    "not-found": DENIED,
    "failed": FAILED,
    "outcome-unknown": FAILED,
}
_NOT_THERE: Final = (
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
)
_WRONG_INPUT: Final = ("US001", "US010")
_BY_ERROR: Final = (
    ((PermissionDenied, AccessDenied, UnknownConsumer, ExecutionDeniedError), DENIED),
    ((ExecutionAlreadyExistsError,), CONFLICT),
    ((ProviderRefused, ExecutionRefusedError, InboxMessageRefusedError), REFUSED),
)
_DEBUG: Final = "UNDERSEAL_DEBUG"


class Stop(Exception):  # noqa: N818 - it ends a command, also where nothing is wrong
    """The end of a command that is not "done".

    Parameters:
        code: one of this module's.
        outcome: one word; `error` for what is no outcome of the database.
        reason: one hyphenated word, if there is one.
        message: expected, found, what to do.
    """

    def __init__(self, code: int, outcome: str, reason: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.outcome = outcome
        self.reason = reason
        self.message = message

    def show(self) -> None:
        """Say it: to people on stderr, or, where `--json` was given, as one object on stdout."""
        if click.get_current_context().params.get("as_json"):
            said = {"outcome": self.outcome, "reason": self.reason, "message": self.message}
            click.echo(json.dumps(said))
            return
        head = self.outcome if self.reason is None else f"{self.outcome} ({visible(self.reason)})"
        plain = False if os.environ.get("NO_COLOR") else None
        click.echo(f"{click.style(head, fg='red', bold=True)}: {_seen(self.message)}", err=True, color=plain)


def say(message: str | None) -> None:
    """Print what the database says after a "yes"; a message may quote what somebody wrote.

    Parameters:
        message: its message.
    """
    click.echo(_seen(message or "Done."))


def _seen(message: str) -> str:
    return "\n".join(map(visible, message.splitlines()))


def exit_code_of(outcome: str) -> int:
    """The exit code that an outcome of the database ends a command with.

    Parameters:
        outcome: its one word.
    """
    return _BY_OUTCOME.get(outcome, DONE)


def demand_done(outcome: str, reason: str | None, message: str | None) -> None:
    """Let a "yes" pass, and end the command at a "no".

    Parameters:
        outcome, reason, message: the first three columns of every verb.

    Errors:
        Stop: it is a "no".
    """
    code = exit_code_of(outcome)
    if code != DONE:
        raise Stop(code, outcome, reason, message or "The database gave no message.")


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn what a command may raise into one short message and the documented exit code.

    Nothing that an exception of the host's may hold (a parameter, a row) is printed: only its type and the line that
    raised it. With UNDERSEAL_DEBUG set the traceback is.

    Parameters:
        command: the body of a command.
    """

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except Stop as ended:
            stop = ended
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - the last place where it can be said well
            if os.environ.get(_DEBUG):
                traceback.print_exc()
            stop = _stop_of(error)
        stop.show()
        raise click.exceptions.Exit(stop.code)

    return guarded


def _stop_of(error: Exception) -> Stop:
    if isinstance(error, psycopg.Error):
        return _database_stop(error)
    if isinstance(error, UndersealError):
        return Stop(_code_of(error), *_said(error))
    if isinstance(error, ConninfoError):
        return Stop(USAGE, "error", "dsn", str(error))
    return Stop(
        FAILED,
        "error",
        "unexpected",
        f"{type(error).__name__} was raised, which is not expected here{_where(error)}; "
        f"set {_DEBUG}=1 to see the traceback (it may show parameters)",
    )


def _where(error: Exception) -> str:
    """The innermost line that is not a library's, so that whose mistake it is can be seen without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        one for one in frames if "site-packages" not in one.filename and not one.filename.startswith("<")
    ]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def _code_of(error: UndersealError) -> int:
    if isinstance(error, ParametersRefused | CanonicalError):
        return USAGE
    if isinstance(error, KernelError):
        return USAGE if error.sqlstate in _WRONG_INPUT else FAILED
    if isinstance(error, RequestRefused):
        return DENIED if error.reason == "no-principal" else REFUSED
    return next((code for kinds, code in _BY_ERROR if isinstance(error, kinds)), FAILED)


def _said(error: UndersealError) -> tuple[str, str, str]:
    outcome = {CONFLICT: "conflict", REFUSED: "refused", DENIED: "denied"}.get(_code_of(error), "error")
    return outcome, getattr(error, "reason", error.code), str(error)


def _database_stop(error: psycopg.Error) -> Stop:
    said = error.diag.message_primary
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Stop(
            DENIED, "denied", "no-access",
            f"this login may not do that: {said}. Ask the schema's owner for the access it takes "
            "(docs/access.md), or connect as another role",
        )  # fmt: skip
    if isinstance(error, _NOT_THERE):
        return Stop(
            FAILED, "error", "not-installed",
            f"expected Underseal in this database, found: {said}. As the schema's owner run: underseal migrate",
        )  # fmt: skip
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return no_connection(error)
    return Stop(
        FAILED, "error", error.sqlstate or "database", f"the database said: {said or type(error).__name__}"
    )


def no_connection(error: psycopg.Error) -> Stop:
    """The end of a command that found no database; shows nothing of the connection string.

    Parameters:
        error: what libpq said.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return Stop(
        FAILED, "error", "no-connection",
        f"expected a database that answers, found: {lines[0] if lines else type(error).__name__}. "
        "Check --dsn (or UNDERSEAL_DSN) and that the server is up",
    )  # fmt: skip
