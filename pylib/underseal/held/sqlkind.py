"""Types whose provider is a set of SQL functions, run with the rights of the requester's role (clause H6.10)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from psycopg import sql
from pydantic import BaseModel

from underseal.canonical import canonical_json, normalise, redact
from underseal.errors import KernelError, ParametersRefused, ProviderRefused
from underseal.foundation.steps import Row, Steps, Undo, atomic, query
from underseal.held import kernel
from underseal.held.claim import Claim
from underseal.held.model import Effect, Principal, State
from underseal.held.refusal import Refusal

_DENIED = "42501"
RETRIED = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
"""Errors after which a whole transaction is worth another try."""


class SqlKind:
    """One type version of SQL functions; see `kinds.Kind`. Its arguments are the canonical text itself."""

    drifting: frozenset[str] = frozenset()

    def __init__(self, row: Row) -> None:
        """Read a row of `list_operation_types`.

        Parameters:
            row: one whose `sql_run` is not null.
        """
        self.type = row["type"]
        self.version = row["version"]
        self.mode = row["mode"]
        self.schema = row["parameters"]
        self.salted = row["salted"]
        self._functions = {one: row[f"sql_{one}"] for one in ("estimate", "check_run", "run")}
        self.functions: list[str] | None = list(self._functions.values())
        self._safe = frozenset(row["safe_sqlstates"])

    def canonical(self, params: Any) -> str:
        """Canonical text of an object, or of a pydantic model.

        Errors:
            ParametersRefused: no object.
            CanonicalError: no canonical form, or not what the schema declares.
        """
        value = params.model_dump(mode="json", by_alias=True) if isinstance(params, BaseModel) else params
        if not isinstance(value, Mapping):
            raise ParametersRefused(f"the parameters of {self.type} must be an object")
        return canonical_json(normalise(self.schema, dict(value)))

    def arguments(self, canonical: str) -> str:
        """The canonical text: the functions take it as jsonb."""
        return canonical

    def redacted(self, canonical: str) -> str:
        """The schema's redaction; a type with a secret member is refused when it is registered."""
        return canonical_json(redact(self.schema, json.loads(canonical)))

    def estimate(self, principal: Principal, arguments: str) -> Steps[Effect]:
        """Call the estimate function."""
        answer = yield from self._call("estimate", principal, arguments)
        if not (isinstance(answer, dict) and isinstance(answer.get("effect"), dict)) or not isinstance(
            answer.get("state_key"), str
        ):
            raise ProviderRefused(
                "estimate-shape",
                f'expected {self._functions["estimate"]} to return {{"effect": {{…}}, "state_key": "…"}} for these '
                "parameters, found something else (not shown); correct the parameters or the function",
            )
        return Effect(answer["effect"], answer["state_key"])

    def check_run(self, principal: Principal, arguments: str) -> Steps[str | None]:
        """Call the check function."""
        answer: str | None = yield from self._call("check_run", principal, arguments)
        return answer

    def as_requester(
        self, principal: Principal, steps: Callable[[], Steps[Any]], *, keep: bool
    ) -> Steps[Any]:
        """Carry steps out in a savepoint, in the requester's role.

        Where nothing is to stay the savepoint is rolled back, and with it the role: in a
        transaction of the caller's its own role, cursors and constraints are as they were.
        Otherwise deferred constraints are judged and cursors closed before the role is given back: on
        Postgres 15 a deferred trigger, and everywhere a cursor WITH HOLD, would otherwise go on
        with the rights of the login.

        Errors:
            Refusal: `requester-unavailable`: no role for the principal, or none this login may take.
        """
        found = yield from kernel.role_of(principal.id)
        if found["outcome"] != "found":
            raise Refusal("requester-unavailable", found["message"])

        def block() -> Steps[Any]:
            yield from query(sql.SQL("set local role {}").format(sql.Identifier(found["role"])))
            value = yield from steps()
            if not keep:
                raise Undo(value)
            yield from query("set constraints all immediate")
            yield from query("close all")
            yield from query("set local role none")
            return value

        return (yield from atomic(block))

    def run(self, claim: Claim, principal: Principal, arguments: str, canonical: str) -> Steps[Any]:  # noqa: ARG002
        """Call the run function."""
        return self._call("run", principal, arguments)

    def failure(self, error: Exception) -> tuple[State, str, str]:
        """The SQLSTATE, and the message where the type calls it safe (clause H6.10).

        Errors:
            The error itself, where the whole transaction must be tried again or its connection is gone.
        """
        sqlstate = error.sqlstate if isinstance(error, psycopg.Error | KernelError) else None
        if isinstance(error, RETRIED) or (sqlstate is None and isinstance(error, psycopg.Error)):
            raise error
        if sqlstate is None:
            return "FAILED", "exception", error.__class__.__name__
        detail = f"SQLSTATE {sqlstate}"
        if sqlstate in self._safe:
            detail += f": {_message(error)}"
        if sqlstate == _DENIED:
            return "REFUSED", "permission-denied", detail
        return "FAILED", "sql-error", detail

    def _call(self, which: str, principal: Principal, arguments: str) -> Steps[Any]:
        # The name is looked up in the catalog, so that what is called is a function and nothing else.
        name = self._functions[which]
        rows = yield from query(
            "select n.nspname, p.proname from pg_catalog.pg_proc p"
            " join pg_catalog.pg_namespace n on n.oid = p.pronamespace"
            " where p.oid = pg_catalog.to_regprocedure(%s)",
            (name,),
        )
        if not rows:
            raise LookupError(f"expected a function {name}, found none")
        function = sql.Identifier(rows[0]["nspname"], rows[0]["proname"])
        answered = yield from query(
            sql.SQL("select {}(%s::jsonb, %s::text) as answer").format(function), (arguments, principal.id)
        )
        return answered[0]["answer"]


def _message(error: Exception) -> str:
    return (error.diag.message_primary or "") if isinstance(error, psycopg.Error) else str(error)
