"""A small service whose methods are gated: what the tests of the Python side work on.

`World` is the same over both clients. Over `AsyncUnderseal` its methods are `async def` and its calls
go to an event loop in a thread, so that one test body speaks for both.
"""

# `type` is what the column is called.
# ruff: noqa: A002

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from pydantic import BaseModel, SecretStr

from underseal import (
    AsyncUnderseal,
    Effect,
    Held,
    MemoryKeyRing,
    Operation,
    PermissionDenied,
    Policy,
    Principal,
    Provider,
    Underseal,
)
from underseal.testing import DictConnection, TestDatabase

REQUESTER = Principal("rita", "session")
HOUR = timedelta(hours=1)


class PayoutParams(BaseModel):
    """Nothing secret."""

    order: str
    cents: int
    note: str | None = None


class TokenParams(BaseModel):
    """A secret member, and one that is not."""

    name: str
    password: SecretStr


class Service:
    """The state of the service, and what its methods did.

    Attributes:
        people: who may act; a name that is missing cannot be rebuilt.
        denied: who may not pay out.
        state_key, effect, check: what the payout's provider answers.
        done: what the bodies did, as (type, principal id, parameters).
        body: what a body does besides, given principal and parameters.
    """

    def __init__(self) -> None:
        self.people: dict[str, Principal | None] = {}
        self.denied: set[str] = set()
        self.state_key = "open"
        self.effect: dict[str, Any] = {}
        self.check: str | None = None
        self.needs_approval: Callable[[Principal, Any], bool] = lambda principal, params: True
        self.done: list[tuple[str, str, Any]] = []
        self.body: Callable[[Principal, Any], Any] = lambda principal, params: {"ok": True}

    def principal(self, id: str, auth_kind: str, token_id: str | None) -> Principal | None:
        """Rebuild a principal, unless the test says otherwise."""
        return self.people.get(id, Principal(id, auth_kind, token_id))

    def act(self, type: str, principal: Principal, params: Any) -> Any:
        """The body of every gated method."""
        if principal.id in self.denied:
            raise PermissionDenied(f"{principal.id} may not")
        self.done.append((type, principal.id, params))
        return self.body(principal, params)


class PayoutSend(Provider[PayoutParams]):
    """An ON_APPROVAL type without secrets."""

    type = "payout.send"
    version = 1
    params = PayoutParams
    policy = Policy(approvers=("ann", "bob", "cy"), hold_for=HOUR, run_within=HOUR)
    drifting = frozenset({"rate"})
    safe_errors = (LookupError,)

    def __init__(self, service: Service) -> None:
        self.service = service

    def needs_approval(self, principal: Principal, params: PayoutParams) -> bool:
        return self.service.needs_approval(principal, params)

    def estimate(self, principal: Principal, params: PayoutParams) -> Effect:
        return Effect({"pays": params.cents, **self.service.effect}, self.service.state_key)

    def check_run(self, principal: Principal, params: PayoutParams) -> str | None:
        return self.service.check


class TokenIssue(Provider[TokenParams]):
    """A BY_REQUESTER type with a secret parameter and a secret result."""

    type = "token.issue"
    version = 1
    params = TokenParams
    mode = "BY_REQUESTER"
    policy = Policy(approvers=("ann", "bob"), hold_for=HOUR, run_within=HOUR)

    def __init__(self, service: Service) -> None:
        self.service = service

    async def estimate(self, principal: Principal, params: TokenParams) -> Effect:
        return Effect({"issues": params.name}, self.service.state_key)


class Loop:
    """An event loop in a thread, and an async client that is called from here as if it were a sync one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine there and wait for it here."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def close(self) -> None:
        """Stop it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class Blocking:
    """An async client whose methods wait for their answer."""

    def __init__(self, client: AsyncUnderseal, loop: Loop) -> None:
        self.client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def wait(*args: Any, **kwargs: Any) -> Any:
            return self._loop.wait(method(*args, **kwargs))

        return wait if asyncio.iscoroutinefunction(method) else method

    def rewrap(self, batch_size: int = 100) -> Iterator[Any]:
        async def all_of_it() -> list[Any]:
            return [progress async for progress in self.client.rewrap(batch_size)]

        return iter(self._loop.wait(all_of_it()))


class World:
    """A database, a service, and one client of it.

    Attributes:
        us: the client, called synchronously in either case.
        send, issue: the gated methods, likewise.
    """

    def __init__(
        self, database: TestDatabase, owner: DictConnection, asynchronous: bool, **options: Any
    ) -> None:
        self.database = database
        self.owner = owner
        self.admin = database.connect()
        self.service = Service()
        self.ring = options.pop("keys", None) or MemoryKeyRing.with_all()
        self.login = database.create_role("service")
        for access in ("client", "approver", "worker", "operator"):
            owner.execute("select underseal.grant_access(%s, %s, 'asserted')", [self.login, access])
        self.loop = Loop() if asynchronous else None
        self.us: Any = self.client(**options)
        self.send = self.gate(self.us, PayoutSend(self.service))
        self.issue = self.gate(self.us, TokenIssue(self.service))
        self.register()

    def client(self, **options: Any) -> Any:
        """Another client of the same service, without gated methods."""
        options = {"keys": self.ring, "principals": self.service.principal, **options}
        conninfo = options.pop("conninfo", None) or self.database.conninfo_as(self.login)
        if self.loop is None:
            return Underseal(conninfo, **options)
        return Blocking(AsyncUnderseal(conninfo, **options), self.loop)

    def gate(self, client: Any, provider: Provider[Any]) -> Callable[..., Any]:
        """Gate a method that does what the service says."""
        if self.loop is None:
            gated: Callable[..., Any] = client.gate(provider)(
                lambda principal, params: self.service.act(provider.type, principal, params)
            )
            return gated
        loop = self.loop

        async def method(principal: Principal, params: Any) -> Any:
            return await asyncio.to_thread(self.service.act, provider.type, principal, params)

        asynchronous = client.gate(provider)(method)
        return lambda principal, params: loop.wait(asynchronous(principal, params))

    def register(self) -> None:
        """Register what is gated, as the schema's owner."""
        if self.loop is None:
            self.us.register(connection=self.owner)
            return
        conninfo = self.owner.info.dsn

        async def register() -> None:
            async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
                await self.us.client.register(connection=connection)

        self.loop.wait(register())

    def close(self) -> None:
        """Close the client, and the loop if there is one."""
        self.us.close()
        if self.loop is not None:
            self.loop.close()

    # -- short cuts ----------------------------------------------------------------------------------

    def hold(self, cents: int = 5, requester: Principal = REQUESTER) -> Held:
        """Ask for a payout."""
        held = self.send(requester, PayoutParams(order="o-1", cents=cents))
        assert isinstance(held, Held)
        return held

    def approve(self, held: Held, approver: str = "ann") -> Any:
        """Look at it and approve it."""
        shown = self.us.get(held, approver)
        assert shown is not None
        return self.us.approve(shown, approver)

    def approved(self, cents: int = 5) -> Held:
        """A payout that is approved and not run yet."""
        held = self.hold(cents)
        voter = self.client(run_on_approval=False)
        shown = voter.get(held, "ann")
        assert voter.approve(shown, "ann").outcome == "approved"
        voter.close()
        return held

    def look(self, held: Held | UUID, who: str = REQUESTER.id) -> Operation:
        """The operation as the requester sees it."""
        operation = self.us.get(held, who)
        assert operation is not None
        return operation  # type: ignore[no-any-return]

    def row(self, held: Held) -> dict[str, Any]:
        """The row of an operation."""
        row = self.admin.execute(
            "select * from underseal.held_operation where operation_id = %s", [held.operation_id]
        ).fetchone()
        assert row is not None
        return row

    @contextmanager
    def triggers_off(self) -> Iterator[None]:
        """What a writer with all rights on the tables can do."""
        tables = (
            "held_operation",
            "held_vote",
            "held_event",
            "held_event_pending",
            "replay_ticket",
            "operation_type",
        )
        for table in tables:
            self.admin.execute(f"alter table underseal.{table} disable trigger all")
        yield
        for table in tables:
            self.admin.execute(f"alter table underseal.{table} enable trigger all")

    def edit(self, held: Held, **columns: Any) -> None:
        """Change columns of an operation by hand, with the triggers off."""
        settings = ", ".join(f"{column} = %({column})s" for column in columns)
        with self.triggers_off():
            self.admin.execute(
                f"update underseal.held_operation set {settings} where operation_id = %(id)s",
                {**columns, "id": held.operation_id},
            )

    def edit_vote(self, held: Held, who: str, /, **columns: Any) -> None:
        """Change columns of a vote by hand, with the triggers off."""
        settings = ", ".join(f"{column} = %({column})s" for column in columns)
        with self.triggers_off():
            self.admin.execute(
                f"update underseal.held_vote set {settings} where operation_id = %(id)s and approver = %(who)s",
                {**columns, "id": held.operation_id, "who": who},
            )
