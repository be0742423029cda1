"""Canary secrets and key bytes are looked for in everything the database and the client say (clauses H2.4, H2.8)."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool
from pydantic import BaseModel, SecretStr

from tests.held.python.worlds import HOUR, REQUESTER, TokenParams, World
from tests.hostile.dump import dump
from tests.hostile.needles import found_in
from tests.hostile.writer import Writer
from underseal import Effect, Held, MemoryKeyRing, Policy, Principal, Provider, Underseal, UndersealError
from underseal.seal import PURPOSES

SECRET = "kanarie7f3a9c2eVogel"
RESULT = "ergebnis51d0b8e4Vogel"
ODD = 'zwei"\\ü€' + SECRET  # escaped in JSON, and more than one byte a character


class StoreParams(BaseModel):
    """A secret, and a member that a provider may mistake for a place for it."""

    name: str
    secret: SecretStr
    pin: SecretStr | None = None


class SecretStore(Provider[StoreParams]):
    """An ON_APPROVAL type with a secret parameter, whose provider misbehaves as told."""

    type = "secret.store"
    version = 1
    params = StoreParams
    policy = Policy(approvers=("ann", "bob"), hold_for=HOUR, run_within=HOUR)

    def __init__(self) -> None:
        self.leak: str | None = None

    def needs_approval(self, principal: Principal, params: StoreParams) -> bool:
        self._raise_in("needs_approval", params)
        return True

    def estimate(self, principal: Principal, params: StoreParams) -> Effect:
        self._raise_in("estimate", params)
        return Effect({"stores": params.name}, "empty")

    def check_run(self, principal: Principal, params: StoreParams) -> str | None:
        self._raise_in("check_run", params)
        return None

    def redact(self, params: StoreParams) -> dict[str, Any]:
        self._raise_in("redact", params)
        shown: dict[str, Any] = {"name": params.name}
        return {**shown, "secret": params.secret.get_secret_value()} if self.leak == "shown" else shown

    def _raise_in(self, place: str, params: StoreParams) -> None:
        if self.leak == place:
            raise ValueError(f"cannot {place} {params.secret.get_secret_value()}")


class Talk:
    """A service on a server that logs all it can, and everything that was said.

    Attributes:
        said: every message of the server, of the client's loggers, and of the client's own errors.
    """

    def __init__(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        self.world = world
        self.said: list[str] = []
        self.caplog = caplog
        for setting in (
            "log_statement = 'all'", "log_min_duration_statement = 0", "log_parameter_max_length = -1",
            "log_parameter_max_length_on_error = -1", "log_error_verbosity = verbose", "debug_print_parse = on",
            "client_min_messages = 'debug1'", "log_min_error_statement = 'debug5'", "log_duration = on",
        ):  # fmt: skip
            world.admin.execute(f"alter role {world.login} set {setting}")
        self.pool = ConnectionPool(
            world.database.conninfo_as(world.login), min_size=0, max_size=4, open=True, kwargs={"autocommit": True},
            configure=lambda connection: connection.add_notice_handler(self._hear),
        )  # fmt: skip
        self.provider = SecretStore()
        self.us = Underseal(
            self.pool, keys=world.ring, principals=world.service.principal, run_on_approval=False
        )
        self.store: Any = self.us.gate(self.provider)(self._body)
        self.issue: Any = world.gate(self.us, world_token(world))
        self.us.register(connection=world.owner)
        self.body: Callable[[StoreParams], Any] = lambda params: {"stored": params.name}

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        parts = (
            notice.message_primary, notice.message_detail, notice.message_hint, notice.context, notice.internal_query,
        )  # fmt: skip
        self.said.append(" ".join(part for part in parts if part))

    def _body(self, principal: Principal, params: StoreParams) -> Any:
        return self.body(params)

    def attempt(self, act: Callable[..., Any], *args: Any) -> Any:
        """Do something and keep what the client's own errors say about it."""
        try:
            answer = act(*args)
        except UndersealError as error:
            self.said += [str(error), repr(error), *traceback.format_exception(error)]
            return None
        self.said.append(repr(answer))
        return answer

    def approved(self, params: StoreParams) -> Held:
        """Hold it and approve it."""
        held = self.attempt(self.store, REQUESTER, params)
        assert isinstance(held, Held)
        shown = self.us.get(held, "ann")
        assert shown is not None
        assert self.attempt(self.us.approve, shown, "ann").outcome == "approved"
        return held

    def everything(self) -> str:
        """All that was said, and all that the database holds and shows of its sessions."""
        self.us.register_consumer("spy", from_start=True)
        with self.pool.connection() as connection:
            prepared = connection.execute("select statement, name from pg_prepared_statements").fetchall()
        active = self.world.admin.execute("select query from pg_stat_activity").fetchall()
        outbox = self.us.read_outbox("spy", 1000)
        told = [
            self.caplog.text,
            dump(self.world.admin),
            str(prepared),
            str(active),
            repr(outbox),
            self.statistics(),
        ]
        return "\n".join([*self.said, *told])

    def statistics(self) -> str:
        """What pg_stat_statements keeps, on a server that has it preloaded (the distribution's, in CI)."""
        admin = self.world.admin
        preloaded = admin.execute("show shared_preload_libraries").fetchone()
        if preloaded != {"shared_preload_libraries": "pg_stat_statements"}:
            return ""
        admin.execute("create extension if not exists pg_stat_statements")
        kept = admin.execute(
            "select s.query from pg_stat_statements s where s.dbid ="
            " (select d.oid from pg_database d where d.datname = current_database())"
        ).fetchall()
        # Of many statements the rarest are forgotten; hardly all of ours of just now.
        assert "underseal" in str(kept)
        return str(kept)

    def close(self) -> None:
        """Close the pool."""
        self.us.close()
        self.pool.close()


def world_token(world: World) -> Provider[Any]:
    """The BY_REQUESTER type of the world."""
    from tests.held.python.worlds import TokenIssue

    return TokenIssue(world.service)


@pytest.fixture
def talk(sync_world: World, caplog: pytest.LogCaptureFixture) -> Iterator[Talk]:
    """A service on a server that logs all it can."""
    caplog.set_level(logging.DEBUG)
    talk = Talk(sync_world, caplog)
    yield talk
    talk.close()


def nothing_leaked(talk: Talk) -> None:
    """No secret and no key is anywhere; what is no secret is there, so the search was one."""
    everything = talk.everything()
    for secret in (SECRET.encode(), RESULT.encode()):
        assert found_in(everything, secret) == set()
    for purpose in PURPOSES:
        for key in talk.world.ring.live(purpose):
            assert found_in(everything, key.secret) == set()
    # Two ids of keys, a call, an argument: the text that was searched is the one that matters.
    assert talk.world.ring.key_ids("payload")[-1] in everything
    assert talk.world.ring.key_ids("fingerprint")[-1] in everything
    assert "request_operation" in everything
    assert "Parameters: " in everything or "parameters: " in everything
    assert "door-17" in everything


STORED = StoreParams(name="door-17", secret=SecretStr(SECRET))


@pytest.mark.clause("H2.4a", "H2.4b", "H2.8b", "T5b")
@pytest.mark.parametrize("secret", [SECRET, ODD], ids=["plain", "odd"])
def test_no_secret_and_no_key_on_the_way_to_a_success(talk: Talk, secret: str) -> None:
    held = talk.approved(StoreParams(name="door-17", secret=SecretStr(secret)))
    nothing_leaked(talk)
    assert talk.attempt(talk.us.run, held).outcome == "succeeded"
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b", "H2.8b", "H7.3b")
def test_no_secret_result_of_a_call_that_was_repeated(talk: Talk) -> None:
    talk.world.service.body = lambda *_: {"token": RESULT}
    params = TokenParams(name="door-17", password=SecretStr(SECRET))
    held = talk.attempt(talk.issue, REQUESTER, params)
    shown = talk.us.get(held, "ann")
    assert shown is not None
    talk.attempt(talk.us.approve, shown, "ann")
    assert talk.issue(REQUESTER, params) == {"token": RESULT}
    assert talk.world.row(held)["state"] == "SUCCEEDED"
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b", "H2.8b")
@pytest.mark.parametrize("ending", ["reject", "cancel"])
def test_no_secret_where_somebody_says_no(talk: Talk, ending: str) -> None:
    held = talk.attempt(talk.store, REQUESTER, STORED)
    talk.attempt(talk.store, REQUESTER, STORED)
    if ending == "reject":
        talk.attempt(talk.us.reject, talk.us.get(held, "ann"), "ann", "no")
    else:
        talk.attempt(talk.us.cancel, held, "rita")
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b")
@pytest.mark.parametrize("place", ["check_run", "estimate", "body", "body-with-cause", "redact"])
def test_no_secret_of_an_exception_that_a_run_meets(talk: Talk, place: str) -> None:
    def explode(params: StoreParams) -> None:
        try:
            raise KeyError(params.secret.get_secret_value())
        except KeyError as error:
            raise RuntimeError(f"no {params.secret.get_secret_value()}") from (
                error if "cause" in place else None
            )

    held = talk.approved(STORED)
    if place.startswith("body"):
        talk.body = explode
    talk.provider.leak = place
    report = talk.attempt(talk.us.run, held)
    assert report.outcome in ("failed", "refused")
    assert talk.world.row(held)["state"] in ("FAILED", "REFUSED")
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b", "H2.8b")
@pytest.mark.parametrize("member", ["effect", "state_key"])
def test_no_secret_that_an_estimate_repeats(talk: Talk, member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Effect({"stores": f"door-17 with {SECRET}"}, "empty") if member == "effect" else Effect({}, SECRET)
    monkeypatch.setattr(talk.provider, "estimate", lambda *_: told)
    assert talk.attempt(talk.store, REQUESTER, STORED) is None
    assert "repeats a hidden parameter" in "".join(talk.said)
    monkeypatch.undo()
    talk.approved(STORED)
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b")
@pytest.mark.parametrize(
    "value", [{"secret": 5}, {"secret": [SECRET]}, {"secret": SECRET, "pin": {SECRET: SECRET}}]
)
def test_no_secret_of_parameters_that_are_refused(talk: Talk, value: dict[str, Any]) -> None:
    assert talk.attempt(talk.us.request, "secret.store", REQUESTER, {"name": SECRET, **value}) is None
    talk.approved(STORED)
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b", "H2.5a")
@pytest.mark.parametrize("damage", ["flipped", "another ring", "another ring after a rotation"])
def test_no_secret_of_a_seal_that_does_not_open(talk: Talk, damage: str) -> None:
    held = talk.approved(STORED)
    if damage == "flipped":
        sealed = talk.world.row(held)["sealed_payload"]
        flipped = ("B" if sealed["ct"][0] == "A" else "A") + sealed["ct"][1:]
        Writer(talk.world.admin).set(held.operation_id, sealed_payload=json.dumps({**sealed, "ct": flipped}))
        assert talk.attempt(talk.us.run, held).reason == "integrity"
    else:
        ring = MemoryKeyRing.with_all()
        other = Underseal(talk.pool, keys=ring, principals=talk.world.service.principal)
        other.gate(talk.provider)(talk._body)
        if damage == "another ring after a rotation":
            talk.world.ring.rotate("payload")
        assert talk.attempt(other.run, held).reason == "unserved"
        talk.attempt(other.report_unserved)
        talk.attempt(lambda: list(other.rewrap()))
        for purpose in PURPOSES:
            for key in ring.live(purpose):
                assert found_in(talk.everything(), key.secret) == set()
        other.close()
    nothing_leaked(talk)


@pytest.mark.clause("H2.4b", "H2.8b")
def test_a_copy_that_shows_the_secret_does_not_leave_the_client(talk: Talk) -> None:
    """The kernel would refuse it too, but a refused argument is in the server's log."""
    talk.provider.leak = "shown"
    assert talk.attempt(talk.store, REQUESTER, STORED) is None
    assert "found one at /secret" in "".join(talk.said)
    assert "'door-17'" not in "".join(talk.said)
    talk.provider.leak = None
    talk.approved(STORED)
    nothing_leaked(talk)


# -- controls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["%s", "%b"])
def test_a_bound_value_would_be_heard(talk: Talk, spelling: str) -> None:
    with talk.pool.connection() as connection:
        connection.execute(f"select {spelling}::text", [SECRET], binary=spelling == "%b")
    assert found_in("\n".join(talk.said), SECRET.encode())


def test_a_pasted_value_would_be_heard(talk: Talk) -> None:
    with talk.pool.connection() as connection:
        connection.execute(f"select '{SECRET}'")
    assert found_in("\n".join(talk.said), SECRET.encode())


@pytest.mark.parametrize(
    "text",
    [
        SECRET, SECRET.encode().hex(), SECRET.encode().hex().upper(), json.dumps(ODD),
        *(base64.b64encode(b"x" * offset + SECRET.encode() + b"yz").decode() for offset in range(3)),
        base64.urlsafe_b64encode(ODD.encode()).decode(), repr(SECRET.encode()),
        " ".join(str(byte) for byte in SECRET.encode()),
    ],
)  # fmt: skip
def test_every_spelling_is_recognised(text: str) -> None:
    assert found_in(f"before {text} after", SECRET.encode())


def test_every_spelling_of_bytes_is_recognised() -> None:
    key = bytes(range(240, 256)) + bytes(range(16))
    for text in (
        key.hex(),
        base64.b64encode(key).decode(),
        base64.urlsafe_b64encode(b"12" + key).decode(),
        repr(key),
    ):
        assert found_in(f"before {text} after", key)
