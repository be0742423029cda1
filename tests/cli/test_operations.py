"""Request, look, decide, run: on a real database, by the commands that people and scripts use."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.shop import Shop
from underseal.testing import TestClock

NASTY = "pay\u202eann \x1b[31m[red]now[/red]\n\u200bp\u0430y"
SEEN = "pay⟨U+202E⟩ann ⟨U+001B⟩[31m[red]now[/red]⟨U+000A⟩⟨U+200B⟩p⟨U+0430⟩y"


@pytest.mark.parametrize("app", ["tests.cli.shop:make", "tests.cli.shop:make_async"])
def test_a_request_is_held_shown_approved_run_and_told(shop: Shop, app: str) -> None:
    held = shop.run(
        "request", "payout.send", "--param", "to=ann", "--param", "cents:=500",
        "--principal", "req", "--app", app, "--json",
    )  # fmt: skip
    assert held.code == 0, held
    assert held.json["outcome"] == "held"
    operation = held.json["operation_id"]

    listed = shop.run("list", "--principal", "ann", "--json").json
    assert [(one["operation_id"], one["state"], one["effect"]) for one in listed] == [
        (operation, "HELD", {"pays": 500, "to": "ann", "from": "req"})
    ]

    approved = shop.vote(operation)
    assert (approved.code, approved.json["outcome"]) == (0, "approved")

    ran = shop.run("run", operation, "--app", app, "--json")
    assert (ran.code, ran.json["outcome"], ran.json["state"]) == (0, "succeeded", "SUCCEEDED")
    assert "value" not in ran.json

    shown = shop.run("show", operation, "--principal", "req", "--json").json
    assert (shown["state"], shown["result"], shown["can"]) == ("SUCCEEDED", {"sent": 500}, [])
    told = shop.run("log", operation, "--principal", "req", "--json").json
    assert [one["type"] for one in told] == ["requested", "approved", "claimed", "succeeded"]


def test_asking_again_gives_the_open_operation(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"to": "ann", "cents": 7}))
    first, second = (
        shop.run(
            "request", "payout.send", file, "--principal", "req", "--app", "tests.cli.shop:make", "--json"
        ).json
        for _ in range(2)
    )
    assert (first["outcome"], second["outcome"]) == ("held", "duplicate")
    assert first["operation_id"] == second["operation_id"]


def test_people_get_a_timeline_with_both_times_and_every_actor(shop: Shop) -> None:
    operation = shop.hold("payout.pair")
    shop.vote(operation, "ann", "--note", "checked the invoice")
    shop.vote(operation, "bob")
    told = shop.run("log", operation, "--principal", "ann").out
    for words in ("req asked for it", "→ HELD", "ann voted to approve it", "“checked the invoice”",
                  "bob cast the deciding approval", "HELD → APPROVED", "UTC", "just now", "run before"):  # fmt: skip
        assert words in told


def test_show_says_what_you_may_do_and_why_not(shop: Shop) -> None:
    operation = shop.hold()
    mine = shop.run("show", operation, "--principal", "req").out
    assert "you may  cancel" in mine
    assert "somebody else decides" in mine
    assert "you may  vote" in shop.run("show", operation, "--principal", "ann").out


@pytest.mark.parametrize("command", ["show", "approve", "reject"])
def test_what_is_to_be_decided_hides_nothing(shop: Shop, command: str) -> None:
    operation = shop.hold(memo=NASTY)
    more = ["--reason", "no"] if command == "reject" else []
    out = shop.run(command, operation, "--principal", "ann", *more).out
    assert SEEN in out
    assert not {"\u202e", "\x1b", "\u200b", "\u0430"} & set(out)


def test_lists_and_timelines_hide_nothing(shop: Shop) -> None:
    operation = shop.hold(principal="r\u202eeq", to=NASTY)
    rejected = shop.vote(operation, "ann", "--reason", NASTY, verb="reject")
    assert rejected.code == 0
    for command in (
        ["list", "--principal", "ann", "--all"],
        ["log", operation, "--principal", "ann"],
        ["show", operation, "--principal", "ann"],
    ):
        out = shop.run(*command).out
        assert not {"\u202e", "\x1b", "\u200b", "\u0430"} & set(out), command
        assert "r⟨U+202E⟩eq" in out


def test_json_is_ascii_and_exact(shop: Shop) -> None:
    operation = shop.hold(memo=NASTY)
    done = shop.run("show", operation, "--principal", "ann", "--json")
    assert done.out.isascii()
    assert done.json["redacted"]["memo"] == NASTY


def test_a_secret_is_not_shown(shop: Shop) -> None:
    operation = shop.hold(pin="4711-secret")
    for command in ("show", "log"):
        for more in ([], ["--json"]):
            assert "4711-secret" not in shop.run(command, operation, "--principal", "ann", *more).out


@pytest.mark.clause("H4.1b")
def test_approve_votes_for_the_hash_that_was_seen_and_no_other(shop: Shop) -> None:
    operation = shop.hold()
    done = shop.run(
        "approve", operation, "--principal", "ann", "--yes", "--hash", "ab" * 32, "--row-version", 1, "--json"
    )
    assert (done.code, done.json["reason"]) == (3, "hash-mismatch")
    assert shop.run("show", operation, "--principal", "ann", "--json").json["state"] == "HELD"


@pytest.mark.clause("H4.1c")
def test_approve_votes_for_the_version_that_was_seen_and_no_other(shop: Shop) -> None:
    operation = shop.hold()
    seen = shop.run("show", operation, "--principal", "ann", "--json").json
    done = shop.run(
        "approve",
        operation,
        "--principal",
        "ann",
        "--yes",
        "--hash",
        seen["params_hash"],
        "--row-version",
        2,
        "--json",
    )
    assert (done.code, done.json["reason"]) == (3, "version-mismatch")


def test_approve_echoes_the_hash_and_version_it_showed(shop: Shop) -> None:
    operation = shop.hold()
    seen = shop.run("show", operation, "--principal", "ann", "--json").json
    done = shop.run(
        "approve", operation, "--principal", "ann", "--yes", "--hash", seen["params_hash"], "--row-version", 1
    )
    assert done.code == 0
    assert f"hash {seen['params_hash']}, row version 1" in done.out
    assert '"ann"' in done.out


@pytest.mark.parametrize("given", [[], ["--hash", "ab" * 32], ["--row-version", "1"]])
def test_yes_needs_what_was_seen(shop: Shop, given: list[str]) -> None:
    operation = shop.hold()
    done = shop.run("approve", operation, "--principal", "ann", "--yes", *given)
    assert done.code == 2
    assert "--hash and --row-version" in done.err
    assert shop.run("show", operation, "--principal", "ann", "--json").json["votes"] == []


def test_without_a_terminal_nothing_is_asked_and_nothing_approved(shop: Shop) -> None:
    operation = shop.hold()
    done = shop.run("approve", operation, "--principal", "ann", stdin="y\n")
    assert done.code == 2
    assert shop.run("show", operation, "--principal", "ann", "--json").json["votes"] == []


@pytest.mark.parametrize(
    ("principal", "code", "outcome", "reason"),
    [("req", 3, "conflict", "self-approval"), ("eve", 5, "not-found", None)],
)
def test_who_may_not_decide_is_told_so(
    shop: Shop, principal: str, code: int, outcome: str, reason: str | None
) -> None:
    operation = shop.hold()
    seen = shop.run("show", operation, "--principal", "ann", "--json").json
    done = shop.run(
        "approve",
        operation,
        "--principal",
        principal,
        "--yes",
        "--hash",
        seen["params_hash"],
        "--row-version",
        1,
        "--json",
    )
    assert (done.code, done.json["outcome"], done.json["reason"]) == (code, outcome, reason)


@pytest.mark.clause("H4.7c")
def test_a_stranger_cannot_tell_missing_from_foreign(shop: Shop) -> None:
    operation, missing = shop.hold(), str(uuid4())
    for command in ("show", "log", "cancel"):
        there, nowhere = (shop.run(command, one, "--principal", "eve") for one in (operation, missing))
        assert there.code == nowhere.code == 5
        assert there.err.replace(operation, "ID") == nowhere.err.replace(missing, "ID")


def test_a_decided_operation_is_a_conflict(shop: Shop) -> None:
    operation = shop.hold()
    assert shop.vote(operation, "ann", "--reason", "not this month", verb="reject").code == 0
    late = shop.vote(operation, "bob")
    assert (late.code, late.json["reason"]) == (3, "already-decided")
    shown = shop.run("show", operation, "--principal", "req").out
    assert "not this month" in shown


def test_an_expired_operation_is_a_conflict(shop: Shop, clock: TestClock) -> None:
    operation = shop.hold()
    clock.advance(days=2)
    late = shop.vote(operation)
    assert (late.code, late.json["reason"]) == (3, "expired")


def test_cancel_is_the_requesters_or_an_operators(shop: Shop) -> None:
    mine, other = shop.hold(), shop.hold(cents=1)
    assert shop.run("cancel", mine, "--principal", "req", "--note", "mistyped").code == 0
    not_mine = shop.run("cancel", other, "--principal", "ann", "--json")
    assert (not_mine.code, not_mine.json["reason"]) == (3, "not-yours")
    assert shop.run("cancel", other, "--principal", "oscar", "--as-operator").code == 0


@pytest.mark.parametrize(("to", "code", "outcome"), [("nobody", 1, "failed"), ("forbidden", 4, "refused")])
def test_a_run_that_does_not_succeed_has_its_exit_code(shop: Shop, to: str, code: int, outcome: str) -> None:
    operation = shop.hold(to=to)
    shop.vote(operation)
    ran = shop.run("run", operation, "--app", "tests.cli.shop:make", "--json")
    assert (ran.code, ran.json["outcome"]) == (code, outcome)
    assert "must not be recorded" not in ran.out + shop.run("show", operation, "--principal", "req").out


def test_a_run_that_cannot_begin_is_a_conflict(shop: Shop) -> None:
    operation = shop.hold()
    ran = shop.run("run", operation, "--app", "tests.cli.shop:make", "--json")
    assert (ran.code, ran.json["reason"]) == (3, "not-approved")
    told = shop.run("run", operation, "--app", "tests.cli.shop:make").out
    assert (
        told == "conflict (not-approved): Expected an approved operation that nobody runs, found it HELD.\n"
    )
    missing = shop.run("run", uuid4(), "--app", "tests.cli.shop:make", "--json")
    assert (missing.code, missing.json["reason"]) == (5, "not-found")


def test_a_disarmed_type_refuses(shop: Shop) -> None:
    assert shop.run("types", "disarm", "payout.send", 1, "--principal", "oscar").code == 0
    refused = shop.run(
        "request",
        "payout.send",
        "-p",
        "to=a",
        "-p",
        "cents:=1",
        "--principal",
        "req",
        "--app",
        "tests.cli.shop:make",
        "--json",
    )
    assert (refused.code, refused.json["reason"]) == (4, "provider-disarmed")
    assert shop.run("types", "arm", "payout.send", 1, "--principal", "oscar").code == 0
    assert shop.run("types", "arm", "payout.send", 9, "--principal", "oscar").code == 5


def test_types_are_listed_with_their_policy(shop: Shop) -> None:
    listed = {one["type"]: one for one in shop.run("types", "--json").json}
    assert listed["payout.pair"]["policy"]["votes_required"] == 2
    assert "payout.send" in shop.run("types").out


def test_registering_takes_the_owner_and_can_be_repeated(shop: Shop) -> None:
    again = shop.run("types", "register", "--app", "tests.cli.shop:make", "--dsn", shop.owner_dsn, "--json")
    assert [one["outcome"] for one in again.json] == ["unchanged", "unchanged"]
    denied = shop.run("types", "register", "--app", "tests.cli.shop:make")
    assert denied.code == 5


def test_the_outbox_is_read_and_acknowledged(shop: Shop) -> None:
    assert shop.run("outbox", "register", "mailer").code == 0
    operation = shop.hold()
    shop.vote(operation)
    read = shop.run("outbox", "read", "mailer", "--json").json
    assert [(one["position"], one["type"]) for one in read] == [(1, "requested"), (2, "approved")]
    assert shop.run("outbox", "ack", "mailer", 1).code == 0
    assert [one["position"] for one in shop.run("outbox", "read", "mailer", "--json").json] == [2]
    assert "approved" in shop.run("outbox", "read", "mailer").out
    beyond = shop.run("outbox", "ack", "mailer", 99, "--json")
    assert (beyond.code, beyond.json["reason"]) == (4, "beyond-end")
    assert shop.run("outbox", "drop", "mailer").code == 0
    assert shop.run("outbox", "read", "mailer").code == 5


def test_an_sql_operation_needs_no_application(shop: Shop, tmp_path: Path) -> None:
    role = shop.database.create_role("runner", "nologin")
    admin = shop.database.connect()
    admin.execute(
        f"""create schema app;
        create table app.account (id int primary key, open boolean not null);
        insert into app.account values (7, true);
        create function app.estimate(params jsonb, principal text) returns jsonb language sql
          as $$ select jsonb_build_object('effect', params, 'state_key', 'k') $$;
        create function app.check_run(params jsonb, principal text) returns text language sql
          as $$ select null::text $$;
        create function app.run(params jsonb, principal text) returns jsonb language sql
          as $$ update app.account set open = false where id = (params ->> 'account')::int
                returning to_jsonb(current_user::text) $$;
        grant usage on schema app to {role}, underseal_owner, {shop.desk};
        grant select, update on app.account to {role};
        grant {role} to {shop.desk};"""
    )
    owner = shop.database.connect("underseal_owner")
    schema = {
        "type": "object",
        "properties": {"account": {"type": "integer"}},
        "required": ["account"],
        "additionalProperties": False,
    }
    policy = {"approvers": ["ann"], "hold_for": 3600, "run_within": 3600}
    registered = owner.execute(
        "select * from underseal.register_sql_operation('account.close', 1, %s::jsonb, %s::jsonb,"
        " 'app.estimate(jsonb,text)', 'app.check_run(jsonb,text)', 'app.run(jsonb,text)')",
        [json.dumps(schema), json.dumps(policy)],
    ).fetchone()
    assert registered is not None
    assert registered["outcome"] == "registered"
    assert shop.run("access", "map-role", "req", role, "--dsn", shop.owner_dsn).code == 0

    held = shop.run("request", "account.close", "-p", "account:=7", "--principal", "req", "--json")
    assert held.code == 0, held
    shop.vote(held.json["operation_id"])
    ran = shop.run("run", held.json["operation_id"], "--spent", tmp_path / "spent", "--json")
    assert (ran.code, ran.json["state"]) == (0, "SUCCEEDED"), ran
    assert shop.run("show", held.json["operation_id"], "--principal", "req", "--json").json["result"] == role
    assert [one.name for one in (tmp_path / "spent").iterdir()] == [held.json["operation_id"]]
