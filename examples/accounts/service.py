"""The service: two operations in Python beside the one that is written in SQL.

Everything it needs comes from its environment:
    ACCOUNTS_DSN     its login, which has `client` and `worker` access
    ACCOUNTS_KEYS    directory of its key ring
    ACCOUNTS_SPENT   directory of its spent register
    ACCOUNTS_BANK    where payouts are sent
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import psycopg
from pydantic import BaseModel, Field, SecretStr

from underseal import (
    Effect,
    FileKeyRing,
    FileSpentRegister,
    Held,
    PermissionDenied,
    Policy,
    Principal,
    Provider,
    Underseal,
)

APPROVERS = ("fred", "gina")


class PayoutParams(BaseModel):
    """A payment to somebody outside."""

    payee: str
    cents: int = Field(gt=0)


class TokenParams(BaseModel):
    """A token for a service; the passphrase is for nobody's eyes."""

    service: str
    passphrase: SecretStr


class CloseParams(BaseModel):
    """Which account to close."""

    account: int


class PayoutSend(Provider[PayoutParams]):
    """Held because money leaves the house."""

    type = "payout.send"
    version = 1
    params = PayoutParams
    policy = Policy(approvers=APPROVERS, hold_for=timedelta(days=1), run_within=timedelta(hours=4))

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def estimate(self, principal: Principal, params: PayoutParams) -> Effect:  # noqa: ARG002
        """Who gets how much, and on which account; another IBAN is another state of the world."""
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute(
                "select p.iban, p.version from app.payee p where p.name = %s", [params.payee]
            ).fetchone()
        iban, version = row or ("unknown payee", 0)
        return Effect(
            {"pays_cents": params.cents, "to": params.payee, "iban": iban}, state_key=f"payee-v{version}"
        )


class TokenIssue(Provider[TokenParams]):
    """Held, and run by the requester: the token is in their answer and nowhere else."""

    type = "token.issue"
    version = 1
    params = TokenParams
    mode = "BY_REQUESTER"
    policy = Policy(approvers=APPROVERS, hold_for=timedelta(days=1), run_within=timedelta(hours=4))

    def estimate(self, principal: Principal, params: TokenParams) -> Effect:
        """Nothing here depends on the passphrase."""
        return Effect(
            {"issues": f"one token for {params.service}", "to": principal.id}, state_key="none-issued"
        )


class Accounts:
    """The service over one client.

    Attributes:
        us: its Underseal client.
        send_payout, issue_token: the gated public methods.
    """

    def __init__(self, dsn: str, keys: str, spent: str, bank: str, **options: Any) -> None:
        """Open it.

        Parameters:
            dsn: the service's login.
            keys, spent: directories.
            bank: URL of the bank.
            options: more of what `Underseal` takes.
        """
        self._dsn = dsn
        self._bank = bank
        self.us = Underseal(
            dsn, keys=FileKeyRing(keys), principals=self._principal, spent=FileSpentRegister(spent), **options
        )
        self.send_payout: Callable[[Principal, PayoutParams], dict[str, Any] | Held] = self.us.gate(
            PayoutSend(dsn)
        )(self._send_payout)
        self.issue_token: Callable[[Principal, TokenParams], dict[str, Any] | Held] = self.us.gate(
            TokenIssue()
        )(self._issue_token)

    def _principal(self, id: str, auth_kind: str, token_id: str | None) -> Principal | None:  # noqa: A002
        """The requester again, or None once they were disabled."""
        with psycopg.connect(self._dsn) as connection:
            active = connection.execute(
                "select from app.staff s where s.id = %s and s.active", [id]
            ).fetchone()
        return None if active is None else Principal(id, auth_kind, token_id)

    def _demand(self, connection: psycopg.Connection[Any], principal: Principal, permission: str) -> None:
        held = connection.execute(
            "select from app.permission p where p.staff = %s and p.permission = %s",
            [principal.id, permission],
        )
        if held.rowcount == 0:
            raise PermissionDenied(f"{principal.id} lacks the permission {permission}")

    def _send_payout(self, principal: Principal, params: PayoutParams) -> dict[str, Any]:
        """Pay. It checks the permission of whom it is given, gated or not."""
        with psycopg.connect(self._dsn) as connection:
            self._demand(connection, principal, "payout")
            self.us.progress("the bank is told to pay")
            body = json.dumps({"payee": params.payee, "cents": params.cents}).encode()
            status = self._post(body)
            connection.execute(
                "insert into app.payout (payee, cents, sent_by) values (%s, %s, %s)",
                [params.payee, params.cents, principal.id],
            )
        return {"paid_cents": params.cents, "bank_said": status}

    def _post(self, body: bytes) -> int:
        place = urlsplit(self._bank)
        bank = HTTPConnection(place.hostname or "", place.port, timeout=60)
        try:
            bank.request("POST", place.path, body)
            return bank.getresponse().status
        finally:
            bank.close()

    def _issue_token(self, principal: Principal, params: TokenParams) -> dict[str, Any]:
        """Issue a token; the database keeps its hash alone."""
        token = f"tok-{secrets.token_hex(16)}"
        with psycopg.connect(self._dsn) as connection:
            self._demand(connection, principal, "token")
            connection.execute(
                "insert into app.token (service, token_hash, issued_to) values (%s, %s, %s)",
                [params.service, hashlib.sha256(token.encode()).digest(), principal.id],
            )
        return {"token": token}


def underseal() -> Underseal:
    """The client for the command line: `underseal worker --app examples.accounts.service:underseal`."""
    names = ("ACCOUNTS_DSN", "ACCOUNTS_KEYS", "ACCOUNTS_SPENT", "ACCOUNTS_BANK")
    return Accounts(*(os.environ[name] for name in names)).us
