"""What both clients share: the keys, the gated types, and who rebuilds principals. No I/O."""

# `type` is what the column is called, in SQL and here.
# ruff: noqa: A002

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from underseal.errors import ProviderRefused, RequestRefused
from underseal.foundation.steps import Steps
from underseal.held import kernel
from underseal.held.claim import Claim
from underseal.held.kinds import PythonKind
from underseal.held.provider import Provider
from underseal.held.sequence import Rebuild
from underseal.held.spent import SpentRegister
from underseal.held.sqlkind import SqlKind
from underseal.seal import KeyRing
from underseal.seal.entropy import random_bytes


def default_worker_name() -> str:
    """A name no other process and no earlier life of this one has: host, process id, eight random digits."""
    return f"{socket.gethostname()}:{os.getpid()}:{random_bytes(4).hex()}"


@dataclass(slots=True)
class RunHandle:
    """A run of this process that is under way.

    Attributes:
        claim: what was claimed.
        note: its latest mark of progress.
    """

    claim: Claim
    note: str | None = None


@dataclass(slots=True)
class Core:
    """The state of one client.

    Attributes:
        keys: the key ring.
        rebuild: gives the requester's principal at a run; without it this process runs nothing.
        worker: name under which it claims.
        spent: the spent register, if one is used.
        renew_every: seconds between two renewals of a run's lease, which lasts 15 minutes.
        serve_sql: whether runs of SQL functions are claimed here too.
        kinds: the gated types, by name.
        runs: runs under way, by run id. Those of SQL functions are not here: their transaction
            ends them, whatever happens.
    """

    keys: KeyRing
    rebuild: Rebuild | None
    worker: str
    spent: SpentRegister | None
    renew_every: float
    serve_sql: bool
    kinds: dict[str, PythonKind] = field(default_factory=dict)
    runs: dict[UUID, RunHandle] = field(default_factory=dict)

    def add(self, provider: Provider[Any]) -> PythonKind:
        """Take a provider; its method is set by the gate.

        Errors:
            ProviderRefused: its parameters cannot be held, or its type is taken.
        """
        kind = PythonKind(provider)
        if kind.type in self.kinds:
            raise ProviderRefused(
                "type-taken", f"{kind.type} is gated already by this client; one method a type"
            )
        self.kinds[kind.type] = kind
        return kind

    def gated(self, type: str) -> PythonKind | None:
        """The gated type of this name."""
        return self.kinds.get(type)

    def served(self) -> list[tuple[str, int]]:
        """Types and versions whose runs this process can do in Python."""
        return [(kind.type, kind.version) for kind in self.kinds.values() if kind.method is not None]

    def key_ids(self) -> list[str]:
        """Ids of the keys a run needs."""
        return [*self.keys.key_ids("payload"), *self.keys.key_ids("decision")]

    def spend(self) -> Callable[[UUID, timedelta], bool] | None:
        """The spent register's verb, if there is a register."""
        return None if self.spent is None else self.spent.spend

    def sql_kinds(self) -> Steps[dict[str, SqlKind]]:
        """The types in force that SQL functions do, by name."""
        rows = yield from kernel.list_operation_types()
        return {row["type"]: SqlKind(row) for row in rows if row["sql_run"] is not None and row["current"]}

    def kind_of(self, type: str) -> Steps[PythonKind | SqlKind]:
        """A type by name: gated here, or done by SQL functions.

        Errors:
            RequestRefused: `unknown-type`.
        """
        gated = self.gated(type)
        if gated is not None:
            return gated
        found = (yield from self.sql_kinds()).get(type)
        if found is None:
            raise RequestRefused(
                "unknown-type", f"expected a type that is gated here or done by SQL functions, found {type}"
            )
        return found
