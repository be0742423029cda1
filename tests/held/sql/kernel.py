"""Terse calls of the kernel's verbs, with seals that have the right shape and no content."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from underseal.testing import DictConnection, TestClock

Row = dict[str, Any]

TYPE: Final = "account.close"
HASH: Final = b"h" * 32
RUN_LEASE_MINUTES: Final = 15
HOLD_FOR: Final = 3600
RUN_WITHIN: Final = 7200
OPEN: Final = ("HELD", "APPROVED", "EXECUTING")
ENDED: Final = ("REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN")
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "account": {"type": "string"},
        "amount": {"type": "integer"},
        "pin": {"type": "string", "writeOnly": True},
    },
    "required": ["account"],
    "additionalProperties": False,
}
PLAIN_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"account": {"type": "string"}},
    "additionalProperties": False,
}


def envelope(fmt: str, kid: str = "k1", content: str = "abcd") -> Jsonb:
    """Something of the shape of a seal that nobody can open.

    Parameters:
        fmt: its format.
        kid: the key it names.
        content: four characters of base64url, by which two seals differ.
    """
    return Jsonb(
        {
            "__loomEnc": "underseal/aes-256-gcm-hkdf",
            "v": 1,
            "kid": kid,
            "fmt": fmt,
            "org": "00000000-0000-0000-0000-000000000000",
            "salt": "A" * 43,
            "iv": "A" * 16,
            "kc": "A" * 43,
            "ct": content * 10,
        }
    )


def payload(kid: str = "k1", content: str = "abcd") -> Jsonb:
    """A payload's seal by its shape."""
    return envelope("held-payload-v1", kid, content)


def decision(kid: str = "k1", content: str = "abcd") -> Jsonb:
    """A decision's seal by its shape."""
    return envelope("held-decision-v1", kid, content)


@dataclass(frozen=True)
class Claimed:
    """A run under way: its operation, its id and the token that only its claimer has."""

    operation: UUID
    run: UUID
    token: bytes


class Kernel:
    """The verbs as one login calls them.

    Parameters:
        connection: whose rows are dicts.
        clock: the database's clock, moved by hand.
    """

    def __init__(self, connection: DictConnection, clock: TestClock) -> None:
        self.connection = connection
        self.clock = clock

    def rows(self, query: str, *parameters: Any) -> list[Row]:
        """All rows of a query, which stands alone: it is judged as if it were committed, and undone if refused."""
        with self.connection.transaction():
            rows = self.connection.execute(query, parameters).fetchall()
            self._judge_now()
        return rows

    def do(self, statement: str, *parameters: Any) -> int:
        """Execute a statement that gives no rows, likewise: how many rows it changed."""
        with self.connection.transaction():
            changed = self.connection.execute(statement, parameters).rowcount
            self._judge_now()
        return changed

    def together(self, *statements: tuple[str, Sequence[Any]]) -> None:
        """Execute statements, each with its parameters, in one transaction."""
        with self.connection.transaction():
            for statement, parameters in statements:
                self.connection.execute(statement, parameters)
            self._judge_now()

    def _judge_now(self) -> None:
        self.connection.execute("set constraints all immediate; set constraints all deferred")

    def refused(self, code: str, statement: str, *parameters: Any) -> str:
        """See a statement refused with a SQLSTATE; what it did is undone. The message."""
        with pytest.raises(psycopg.Error) as caught:
            self.do(statement, *parameters)
        assert caught.value.sqlstate == code, f"{caught.value.sqlstate}: {caught.value}"
        return str(caught.value)

    @contextmanager
    def login(self, role: str | None, replication_role: str = "origin") -> Iterator[None]:
        """Be another login for a while, in a session that a superuser opened and inside a transaction.

        Parameters:
            role: the login; None is the superuser.
            replication_role: what the session says it is; only a superuser can say `replica`.
        """
        before = self.value("select session_user::text")
        self.connection.execute("set local session authorization default")
        self.connection.execute(f"set local session_replication_role = {replication_role}")
        if role is not None:
            self.connection.execute(f'set local session authorization "{role}"')
        try:
            yield
        finally:
            self.connection.execute("set local session authorization default")
            self.connection.execute("set local session_replication_role = origin")
            self.connection.execute(f'set local session authorization "{before}"')

    def value(self, query: str, *parameters: Any) -> Any:
        """The one value of a query."""
        (row,) = self.rows(query, *parameters)
        (value,) = row.values()
        return value

    def calls(self, verb: str, *arguments: Any) -> list[Row]:
        """All rows that a verb answers with."""
        places = ", ".join(["%s"] * len(arguments))
        return self.rows(f"select * from underseal.{verb}({places})", *arguments)

    def call(self, verb: str, *arguments: Any) -> Row:
        """The one row that a verb answers with."""
        (row,) = self.calls(verb, *arguments)
        return row

    def register(
        self,
        type: str = TYPE,  # noqa: A002 - the kernel's own word
        version: int = 1,
        mode: str = "ON_APPROVAL",
        parameters: Mapping[str, Any] = SCHEMA,
        salted: bool = False,
        **policy: Any,
    ) -> Row:
        """Register a type that bob and carol approve; `policy` changes members of its policy."""
        wanted = {"approvers": ["bob", "carol"], "hold_for": HOLD_FOR, "run_within": RUN_WITHIN, **policy}
        wanted = {name: value for name, value in wanted.items() if value is not ...}
        return self.call(
            "register_operation_type", type, version, mode, Jsonb(parameters), Jsonb(wanted), salted
        )

    def digest(self, type: str = TYPE, version: int = 1) -> bytes | None:  # noqa: A002
        """The digest of the policy in force."""
        found = [
            t for t in self.calls("list_operation_types") if (t["type"], t["version"]) == (type, version)
        ]
        return found[0]["policy_digest"] if found else None

    def request(self, operation_id: UUID | None = None, **changes: Any) -> Row:
        """Ask as ann. `changes` are arguments of request_operation."""
        chosen = operation_id or uuid4()
        arguments: dict[str, Any] = {
            "operation_id": chosen,
            "type": TYPE,
            "version": 1,
            "params_hash": HASH,
            "principal": "ann",
            "auth_kind": "session",
            "token_id": None,
            "policy_digest": ...,
            "state_key": "s1",
            "effect": '{"closes":1}',
            "redacted": '{"account":"a"}',
            "sealed_payload": payload(),
            "fingerprint": os.urandom(32),
            "fingerprint_key_id": "f1",
            "older_fingerprints": [],
            **changes,
        }
        if arguments["policy_digest"] is ...:
            arguments["policy_digest"] = self.digest(arguments["type"], arguments["version"])
        return self.call("request_operation", *arguments.values())

    def hold(self, **changes: Any) -> UUID:
        """Ask as ann, for something that is held then: its id."""
        answer = self.request(**changes)
        assert answer["outcome"] == "held", answer
        held: UUID = answer["held_id"]
        return held

    def vote(
        self,
        operation: UUID,
        who: str | None = "bob",
        what: str | None = "approve",
        note: str | None = None,
        params_hash: bytes | None = HASH,
        version: int | None = 1,
        seal: Jsonb | None = None,
    ) -> Row:
        """Vote."""
        return self.call("vote", operation, who, what, note, params_hash, version, seal or decision())

    def approve(self, operation: UUID, who: str = "bob") -> Row:
        """Approve."""
        return self.vote(operation, who)

    def reject(self, operation: UUID, who: str = "bob", note: str = "no") -> Row:
        """Reject."""
        return self.vote(operation, who, "reject", note)

    def cancel(self, operation: UUID, who: str | None = "ann", *rest: Any) -> Row:
        """Cancel; `rest` are note and as_operator."""
        return self.call("cancel_operation", operation, who, *rest)

    def claims(
        self,
        worker: str | None = "w1",
        types: Sequence[str] = (TYPE,),
        versions: Sequence[int] = (1,),
        keys: Sequence[str] = ("k1",),
        max_runs: int = 10,
        only: UUID | None = None,
    ) -> list[Row]:
        """What claim_runs answers with."""
        return self.calls("claim_runs", worker, list(types), list(versions), list(keys), max_runs, only)

    def resubmit(
        self,
        operation: UUID,
        who: str | None = "ann",
        auth_kind: str = "session",
        token_id: str | None = None,
        keys: Sequence[str] = ("k1",),
    ) -> Row:
        """What claim_resubmission answers with."""
        return self.call(
            "claim_resubmission", operation, who, auth_kind, token_id, "w1", [TYPE], [1], list(keys)
        )

    def run(self, operation: UUID) -> Claimed:
        """Claim a run that is there to be claimed."""
        (row,) = self.claims(only=operation)
        assert row["outcome"] == "claimed", row
        return Claimed(operation, row["run_id"], row["run_token"])

    def executing(self, **changes: Any) -> Claimed:
        """Ask, approve and claim."""
        operation = self.hold(**changes)
        assert self.approve(operation)["outcome"] == "approved"
        return self.run(operation)

    def finish(
        self,
        run: Claimed,
        ended_as: str | None = "SUCCEEDED",
        why: str | None = None,
        detail: str | None = None,
        result: Any = None,
        token: bytes | None = None,
    ) -> Row:
        """Finish a run; `token` is another token than its own."""
        return self.call(
            "finish_run",
            run.operation,
            token or run.token,
            ended_as,
            why,
            detail,
            None if result is None else Jsonb(result),
        )

    def reach(self, state: str) -> UUID:
        """Bring a new operation to a state through the verbs. EXPIRED moves the clock on."""
        if state in ("EXECUTING", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN"):
            run = self.executing()
            if state != "EXECUTING":
                assert self.finish(run, state, "said-so")["outcome"] == "finished"
            return run.operation
        operation = self.hold()
        if state == "APPROVED":
            self.approve(operation)
        elif state == "REJECTED":
            self.reject(operation)
        elif state == "CANCELLED":
            self.cancel(operation)
        elif state == "EXPIRED":
            self.clock.advance(seconds=HOLD_FOR)
            self.calls("sweep_operations")
        assert self.state(operation) == state
        return operation

    def operation(self, operation: UUID) -> Row:
        """The whole row."""
        (row,) = self.rows("select * from underseal.held_operation where operation_id = %s", operation)
        return row

    def state(self, operation: UUID) -> str:
        """The state of an operation."""
        state: str = self.operation(operation)["state"]
        return state

    def timeline(self, operation: UUID) -> list[Row]:
        """The events of an operation, in order."""
        return self.rows("select * from underseal.held_event where operation_id = %s order by seq", operation)

    def events(self, operation: UUID) -> list[str]:
        """The types of its events, in order."""
        return [event["type"] for event in self.timeline(operation)]

    def audit(self, operation: UUID, action: str) -> list[Row]:
        """Its audit entries of one action, in order."""
        return self.rows(
            "select * from underseal.audit_entry where operation_id = %s and action = %s order by recorded_at",
            operation,
            action,
        )

    def everything(self) -> dict[str, list[str]]:
        """Every row of every table, as text: to see that a call changed nothing."""
        tables = self.rows(
            "select c.relname as name from pg_class c where c.relkind = 'r'"
            " and c.relnamespace = 'underseal'::regnamespace order by 1"
        )
        return {
            table["name"]: [
                row["line"]
                for row in self.rows(f"select t::text as line from underseal.{table['name']} t order by 1")
            ]
            for table in tables
        }


def outcome(row: Row) -> tuple[str, str | None]:
    """Outcome and reason of an answer."""
    return row["outcome"], row["reason"]


def as_text(rows: Iterable[Row]) -> str:
    """Rows as one text, to look for what must not be in them."""
    return json.dumps(list(rows), default=repr)
