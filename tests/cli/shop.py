"""A small application for `--app`, and everything a command line test stands on."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pydantic import BaseModel, SecretStr

from underseal import AsyncUnderseal, Effect, FileKeyRing, Policy, Principal, Provider, Underseal
from underseal.cli import main
from underseal.testing import OWNER, DictConnection, TestDatabase

POLICY = Policy(approvers=("ann", "bob"), hold_for=timedelta(days=1), run_within=timedelta(hours=1))


class PayoutParams(BaseModel):
    """What a payout takes."""

    to: str
    cents: int
    memo: str | None = None
    pin: SecretStr | None = None


class PayoutSend(Provider[PayoutParams]):
    """Held, and run in the background once approved."""

    type = "payout.send"
    version = 1
    params = PayoutParams
    policy = POLICY

    def estimate(self, principal: Principal, params: PayoutParams) -> Effect:
        """Says what is paid, by whom."""
        return Effect({"pays": params.cents, "to": params.to, "from": principal.id}, state_key="open")


class PayoutPair(PayoutSend):
    """The same, with two approvals."""

    type = "payout.pair"
    policy = Policy(
        votes_required=2, approvers=("ann", "bob"), hold_for=timedelta(days=1), run_within=timedelta(hours=1)
    )


def make() -> Underseal:
    """The application, as `--app tests.cli.shop:make` gets it; its database and keys come from the environment."""
    us = Underseal(os.environ["SHOP_DSN"], keys=FileKeyRing(os.environ["SHOP_KEYS"]), principals=Principal)

    @us.gate(PayoutSend())
    def send(principal: Principal, params: PayoutParams) -> dict[str, int]:
        if params.to == "nobody":
            raise LookupError("a message that must not be recorded")
        if params.to == "forbidden":
            raise PermissionError("not theirs")
        return {"sent": params.cents}

    @us.gate(PayoutPair())
    def pair(principal: Principal, params: PayoutParams) -> dict[str, int]:
        return {"sent": params.cents}

    return us


def make_async() -> AsyncUnderseal:
    """The same over the async client."""
    us = AsyncUnderseal(
        os.environ["SHOP_DSN"], keys=FileKeyRing(os.environ["SHOP_KEYS"]), principals=Principal
    )

    @us.gate(PayoutSend())
    async def send(principal: Principal, params: PayoutParams) -> dict[str, int]:
        return {"sent": params.cents}

    return us


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.out)


@dataclass
class Shop:
    """An installed database with a registered application, and a command line on it.

    Parameters:
        database: the test's database.
        keys: directory of the key ring.
    """

    database: TestDatabase
    keys: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make roles, keys and types."""
        self.desk = self.database.create_role("desk")
        self.stranger = self.database.create_role("stranger")
        owner: DictConnection = self.database.connect(OWNER)
        for access in ("client", "approver", "worker", "operator", "reader"):
            owner.execute("select * from underseal.grant_access(%s, %s, 'asserted')", [self.desk, access])
        self.ring = FileKeyRing(self.keys)
        self.ring.generate("payload")
        self.ring.generate("decision")
        self.ring.generate("fingerprint")
        self.env = {
            "UNDERSEAL_DSN": self.database.conninfo_as(self.desk),
            "UNDERSEAL_KEYRING": str(self.keys),
            "SHOP_DSN": self.database.conninfo_as(self.desk),
            "SHOP_KEYS": str(self.keys),
            "TZ": "UTC",
        }

    @property
    def owner_dsn(self) -> str:
        """Connection string of the schema's owner."""
        return self.database.conninfo_as(OWNER)

    def run(self, *args: object, env: dict[str, str | None] | None = None, stdin: str | None = None) -> Ended:
        """Run one command in this process.

        Parameters:
            args: what stands after `underseal`.
            env: more of the environment; None takes a variable away.
            stdin: what stands on the standard input.
        """
        result = CliRunner().invoke(
            main, [str(one) for one in args], env={**self.env, **(env or {})}, input=stdin
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    def hold(self, kind: str = "payout.send", principal: str = "req", **params: Any) -> str:
        """Hold one request; its id."""
        given = {"to": "ann", "cents": 500, **params}
        done = self.run(
            "request",
            kind,
            "-",
            "--app",
            "tests.cli.shop:make",
            "--principal",
            principal,
            "--json",
            stdin=json.dumps(given),
        )
        assert done.code == 0, done
        return str(done.json["operation_id"])

    def vote(self, operation_id: str, principal: str = "ann", *more: str, verb: str = "approve") -> Ended:
        """Vote as a script does, for what `show` says now."""
        seen = self.run("show", operation_id, "--principal", principal, "--json").json
        return self.run(
            verb, operation_id, "--principal", principal, "--yes", "--hash", seen["params_hash"],
            "--row-version", seen["row_version"], "--json", *more,
        )  # fmt: skip
