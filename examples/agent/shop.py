"""What the agent can do: tools that only look or write to somebody, and one that moves money."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row
from pydantic import BaseModel, Field

from underseal import Effect, Policy, Principal, Provider, current_step

TABLES = """
create schema shop;
create table shop.payment (
  id text primary key, order_id text not null, cents integer not null, paid_back boolean not null default false);
create table shop.mail (key text primary key, recipient text not null, body text not null);
-- every effect leaves a line, so that whoever doubts can count
create table shop.effect (what text not null, key text not null, process integer not null);
insert into shop.payment values ('p-1', 'o-77', 1200), ('p-2', 'o-77', 1200);
grant usage on schema shop to agent_service;
grant select, insert, update on all tables in schema shop to agent_service;
"""


def connect() -> psycopg.Connection[dict[str, Any]]:
    """A connection of the service's own; it commits at the end of its block."""
    return psycopg.connect(os.environ["AGENT_DSN"], row_factory=dict_row)


def find_order(arguments: dict[str, Any]) -> dict[str, Any]:
    """Look an order up."""
    with connect() as db:
        _note(db, "find_order")
    return {"order": arguments["order"], "state": "delivered"}


def find_payments(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The payments of an order."""
    with connect() as db:
        _note(db, "find_payments")
        return db.execute(
            "select id, cents from shop.payment where order_id = %s and not paid_back order by id",
            [arguments["order"]],
        ).fetchall()


def write_mail(arguments: dict[str, Any]) -> dict[str, Any]:
    """Write to somebody. A crash may make it run twice; its key makes the second time do nothing."""
    with connect() as db:
        _note(db, "write_mail")
        db.execute(
            "insert into shop.mail values (%s, %s, %s) on conflict do nothing",
            [current_step().key, arguments["to"], arguments["text"]],
        )
    return {"written": True}


HARMLESS = {"find_order": find_order, "find_payments": find_payments, "write_mail": write_mail}


class RefundParams(BaseModel):
    """Which payment to pay back."""

    order: str
    payment: str
    cents: int = Field(gt=0)


class RefundPay(Provider[RefundParams]):
    """Held because money leaves the house."""

    type = "refund.pay"
    version = 1
    params = RefundParams
    policy = Policy(approvers=["nina"], hold_for=timedelta(days=3), run_within=timedelta(hours=4))

    def estimate(self, principal: Principal, params: RefundParams) -> Effect:
        """What the approver sees; a payment that was paid back already is another state of the world."""
        with connect() as db:
            row = db.execute(
                "select cents, paid_back from shop.payment where id = %s", [params.payment]
            ).fetchone()
        known = row or {"cents": 0, "paid_back": True}
        shown = {
            "pays_back": params.cents,
            "of": known["cents"],
            "for": params.order,
            "asked_by": principal.id,
        }
        return Effect(shown, state_key=f"{params.payment}:{known['paid_back']}")


async def pay_back(principal: Principal, params: RefundParams) -> dict[str, int]:
    """Pay a payment back, as whoever's agent asked for it."""
    async with await psycopg.AsyncConnection.connect(os.environ["AGENT_DSN"]) as db:
        await db.execute("update shop.payment set paid_back = true where id = %s", [params.payment])
        await db.execute("insert into shop.effect values ('refund.pay', %s, %s)", [principal.id, os.getpid()])
    return {"paid_back": params.cents}


def _note(db: psycopg.Connection[Any], what: str) -> None:
    db.execute("insert into shop.effect values (%s, %s, %s)", [what, current_step().key, os.getpid()])
