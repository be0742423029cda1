"""Wrong input gets one short message (expected, found, what to do), the documented exit code, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shop import Shop
from underseal.testing import TestDatabase

ID = "00000000-0000-4000-8000-000000000000"
APP = ("--app", "tests.cli.shop:make")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["show", "not-an-id", "--principal", "ann"], 2, "not a valid UUID"),
        (["show", ID], 2, "expected --principal or UNDERSEAL_PRINCIPAL"),
        (
            ["list", "--state", "held", "--all", "--principal", "a"],
            2,
            "expected --state or --all, found both",
        ),
        (
            ["approve", ID, "--principal", "ann", "--yes", "--hash", "xyz", "--row-version", "1"],
            2,
            "64 hex digits",
        ),
        (["approve", ID, "--principal", "ann", "--json"], 2, "expected --yes beside --json"),
        (["reject", ID, "--principal", "ann"], 2, "--reason"),
        (["reject", ID, "--principal", "ann", "--reason", "  "], 2, "expected a reason"),
        (
            ["request", "payout.send", "-p", "oops", "--principal", "req", *APP],
            2,
            "expected --param as name=text",
        ),
        (
            ["request", "payout.send", "-p", "cents:=oops", "--principal", "req", *APP],
            2,
            "expected JSON after cents:=",
        ),
        (
            ["request", "payout.send", "-p", "a=1", "-p", "a=2", "--principal", "req", *APP],
            2,
            "found a twice",
        ),
        (["request", "payout.send", "-p", "to=x", "--principal", "req", *APP], 2, "/cents: missing"),
        (
            ["request", "payout.send", "-p", "to=x", "-p", "cents:=1.5", "--principal", "req", *APP],
            2,
            "/cents",
        ),
        (["request", "payout.send", "-p", "to=x", "-p", "cents:=1", "--principal", "req"], 4, "takes --app"),
        (["request", "no.such", "-p", "to=x", "--principal", "req", *APP], 4, "found no.such"),
        (
            ["request", "payout.send", "--principal", "req", "--app", "nowhere"],
            2,
            "expected --app as module:attribute",
        ),
        (
            ["request", "payout.send", "--principal", "req", "--app", "no.such:us"],
            2,
            "can be imported from here",
        ),
        (
            ["request", "payout.send", "--principal", "req", "--app", "tests.cli.shop:POLICY"],
            2,
            "to be a client",
        ),
        (["outbox", "read", "nobody"], 5, "found none"),
        (["outbox", "ack", "nobody", "1"], 5, "found none"),
        (["access", "grant", "no_such_role", "client"], 5, "may not"),
        (["keys", "list", "--keyring", "/nowhere/at/all"], 1, "there is no directory"),
        (["keys", "rotate", "all"], 2, "payload"),
    ],
)
def test_the_message_is_short_and_the_code_right(
    shop: Shop, command: list[str], code: int, words: str
) -> None:
    done = shop.run(*command)
    assert done.code == code, done
    assert words in done.err
    assert "Traceback" not in done.err + done.out
    assert len(done.err) < 600


@pytest.mark.parametrize(
    "content", [b"[1]", b"{", b'{"to":"a","to":"b"}', b"\xff\xfe", b"[" * 100_000, b'{"cents": NaN'],
    ids=["array", "torn", "twice", "not-utf8", "deep", "nan"],
)  # fmt: skip
def test_a_file_that_is_no_object_is_not_quoted(shop: Shop, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(content)
    done = shop.run("request", "payout.send", file, "--principal", "req", *APP)
    assert (done.code, "expected FILE to hold one JSON object" in done.err) == (2, True)


def test_a_database_that_does_not_answer_is_said_so(shop: Shop) -> None:
    done = shop.run("list", "--principal", "ann", "--dsn", "host=/nowhere dbname=x password=hunter2")
    assert done.code == 1
    assert "expected a database that answers" in done.err
    assert "hunter2" not in done.err


def test_a_malformed_connection_string_is_not_quoted(shop: Shop) -> None:
    done = shop.run("list", "--principal", "ann", "--dsn", "host db password hunter2")
    assert done.code == 2
    assert "--dsn" in done.err
    assert "hunter2" not in done.err


def test_no_database_is_asked_for(shop: Shop) -> None:
    done = shop.run("list", "--principal", "ann", env={"UNDERSEAL_DSN": None})
    assert done.code == 2
    assert "UNDERSEAL_DSN" in done.err


def test_no_keys_are_asked_for(shop: Shop) -> None:
    operation = shop.hold()
    done = shop.run(
        "approve", operation, "--principal", "ann", "--yes", "--hash", "ab" * 32, "--row-version", 1,
        env={"UNDERSEAL_KEYRING": None},
    )  # fmt: skip
    assert done.code == 2
    assert "UNDERSEAL_KEYRING" in done.err


def test_a_database_without_the_schema_is_said_so(shop: Shop, empty_database: TestDatabase) -> None:
    done = shop.run("list", "--principal", "ann", "--dsn", empty_database.conninfo)
    assert done.code == 1
    assert "underseal migrate" in done.err


def test_a_schema_that_stopped_halfway_is_said_so(shop: Shop) -> None:
    shop.database.connect().execute(
        "update underseal.setting set value = 'false' where key = 'schema.usable'"
    )
    done = shop.run("list", "--principal", "ann")
    assert done.code == 1
    assert "underseal migrate" in done.err


def test_a_login_without_access_is_denied(shop: Shop) -> None:
    done = shop.run("list", "--principal", "ann", "--dsn", shop.database.conninfo_as(shop.stranger), "--json")
    assert (done.code, done.json["outcome"]) == (5, "denied")


@pytest.mark.clause("E13b")
def test_a_login_that_is_bound_may_not_name_somebody_else(shop: Shop) -> None:
    dsn = ("--dsn", shop.owner_dsn)
    assert shop.run("access", "grant", shop.stranger, "approver", *dsn).code == 0
    assert shop.run("access", "map-login", shop.stranger, "ann", *dsn).code == 0
    operation = shop.hold()
    login = ("--dsn", shop.database.conninfo_as(shop.stranger))
    assert shop.run("show", operation, "--principal", "ann", *login).code == 0
    assert shop.run("show", operation, "--principal", "bob", *login).code == 5


def test_access_is_granted_listed_and_revoked(shop: Shop) -> None:
    dsn = ("--dsn", shop.owner_dsn)
    assert shop.run("access", "grant", shop.stranger, "approver", *dsn).code == 0
    listed = shop.run("access", "list", "--json", *dsn).json
    assert {"grantee": shop.stranger, "access": "approver", "principal": "login"} in listed
    assert shop.stranger in shop.run("access", "list", *dsn).out
    assert shop.run("access", "revoke", shop.stranger, "approver", *dsn).code == 0
    assert shop.run("access", "revoke", shop.stranger, "approver", *dsn).code == 5
    missing = shop.run("access", "grant", "no_such_role", "client", *dsn)
    assert (missing.code, "expected an existing role" in missing.err) == (1, True)


def test_what_is_not_expected_shows_a_type_and_no_parameter(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("secret 4711")

    monkeypatch.setattr("tests.cli.shop.PayoutSend.estimate", broken)
    done = shop.run("request", "payout.send", "-p", "to=x", "-p", "cents:=1", "--principal", "req", *APP)
    assert done.code == 1
    assert "ValueError" in done.err
    assert f"{__file__}, line" in done.err, "the line that raised it, not a library's"
    assert "4711" not in done.err
    debugged = shop.run(
        "request",
        "payout.send",
        "-p",
        "to=x",
        "-p",
        "cents:=1",
        "--principal",
        "req",
        *APP,
        env={"UNDERSEAL_DEBUG": "1"},
    )
    assert "Traceback" in debugged.err
