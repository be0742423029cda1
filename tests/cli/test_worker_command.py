"""`underseal worker` with flows: what it says, and what it refuses to begin with; `exec result`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli import mill
from tests.cli.shop import Shop
from tests.cli.terminal import Terminal
from underseal.cli._exits import Stop
from underseal.cli.worker import _demand_work
from underseal.testing import OWNER, TestDatabase, wait_until

APP = "tests.cli.mill:us"


@contextmanager
def working(shop: Shop, *args: str) -> Iterator[list[dict[str, Any]]]:
    """A worker process; its log, once the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "underseal", "worker", *args],
        env={**os.environ, **shop.env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    lines: list[dict[str, Any]] = []
    try:
        if "--json" in args:
            assert process.stderr is not None
            lines.append(json.loads(process.stderr.readline()))
        yield lines
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "")
    if "--json" in args:
        lines += [json.loads(line) for line in log.splitlines()]


def start(shop: Shop, flow: str, *args: str) -> str:
    """Start one; its id."""
    done = shop.run("exec", "start", flow, *args, "--principal", "ann", "--json")
    assert done.code == 0, done
    started: str = done.json["execution_id"]
    return started


def test_it_drives_flows_and_logs_what_became_of_them(shop: Shop) -> None:
    with working(shop, APP, "--verbose", "--json") as lines:
        good = start(shop, "grind", "--input", '{"kg": 3}')
        done = shop.run("exec", "result", good, "--principal", "ann")
        assert (done.code, json.loads(done.out)) == (0, {"flour": {"kg": 3}})
        bad = start(shop, "break")
        assert shop.run("exec", "result", bad, "--principal", "ann").code == 1
    said = {line["execution_id"]: line for line in lines if "execution_id" in line}
    assert (said[good]["outcome"], said[good]["flow"]) == ("completed", "grind")
    assert said[bad]["outcome"] == "failed"
    assert [line["event"] for line in lines if "event" in line] == ["begins", "stops", "ended"]


def test_without_json_and_terminal_it_logs_lines(shop: Shop) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "underseal", "worker", APP, "-v"],
        env={**os.environ, **shop.env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        started = start(shop, "grind", "--input", "1")
        assert shop.run("exec", "result", started, "--principal", "ann", "--timeout", "20s").code == 0
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    finally:
        process.kill()
    assert f"execution {started}: completed" in log
    assert "\x1b" not in log
    assert "under way" not in log


def test_at_a_terminal_one_line_says_what_is_under_way(shop: Shop) -> None:
    terminal = Terminal(["worker", APP, "--verbose"], shop.env)
    terminal.wait_for("0 under way, 0 completed")
    started = start(shop, "grind", "--input", "1")
    terminal.wait_for("1 completed")
    terminal.wait_for(f"execution {started}: completed")
    start(shop, "break")
    terminal.wait_for("1 failed")
    start(shop, "ask")
    terminal.wait_for("1 parked")
    terminal._process.send_signal(signal.SIGTERM)
    code, screen = terminal.end()
    assert code == 0
    assert "has ended" in screen


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["nothing.here:us"], 2, "expected a module nothing.here that can be imported"),
        (["tests.cli.mill"], 2, "expected --app as module:attribute"),
        (["tests.cli.mill:grind"], 2, "expected tests.cli.mill:grind to be a client"),
        (["tests.cli.mill:grond"], 2, "expected module tests.cli.mill to have grond, found no such name"),
        (["tests.cli.mill:misspelt"], 2, "expected a libpq connection string or a postgresql:// URL"),
        (["tests.cli.mill:bare"], 2, "to have flows (us.serve) or gated methods (us.gate), found neither"),
        (["tests.cli.mill:nowhere"], 1, "expected the database of tests.cli.mill:nowhere to answer"),
        ([APP, "--app", "tests.cli.shop:make"], 2, "an argument and --app that differ"),
        ([APP, "--name", "x"], 2, "expected --name without an application"),
        ([APP, "--lease", "2h"], 2, "expected --lease between 1s and 1h"),
        ([APP, "--lease", "soon"], 2, "expected a length of time"),
    ],
)
def test_it_says_what_it_cannot_begin_with(shop: Shop, args: list[str], code: int, words: str) -> None:
    done = shop.run("worker", *args)
    assert done.code == code, done
    assert words in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def us(:", "line 1: SyntaxError"),
        ("import no_such_thing_at_all", "it imports no_such_thing_at_all, which is not installed here"),
        ("from underseal import Sealed", "cannot import name 'Sealed' from 'underseal'"),
    ],
)
def test_an_application_that_cannot_be_imported_is_told_without_a_traceback(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    name = f"mill_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    done = shop.run("worker", f"{name}:us")
    said = " ".join(done.err.split())
    assert done.code == 2, done
    assert f"expected module {name} to be importable" in said
    assert words in said


@pytest.mark.parametrize("args", [[APP], []])
def test_a_login_that_may_not_claim_does_not_begin_and_is_told_which_access_it_lacks(
    shop: Shop, args: list[str]
) -> None:
    client = shop.database.create_role("asks_only")
    with shop.database.connect(OWNER) as owner:
        owner.execute("select underseal.grant_access(%s, 'client', 'asserted')", [client])
    dsn = shop.database.conninfo_as(client)
    done = shop.run("worker", *args, env={"SHOP_DSN": dsn, "UNDERSEAL_DSN": dsn})
    assert done.code == 5, done
    assert f"grant_access('{client}', 'worker')" in " ".join(done.err.split())


def test_a_database_without_underseal_is_told(shop: Shop, empty_database: TestDatabase) -> None:
    done = shop.run("worker", "tests.cli.mill:empty", env={"EMPTY_DSN": empty_database.conninfo})
    assert done.code == 1
    assert "run: underseal migrate" in " ".join(done.err.split())


@pytest.mark.parametrize("app", [mill.bare, mill.empty])
def test_what_it_begins_with_is_looked_at_first(
    shop: Shop, empty_database: TestDatabase, monkeypatch: pytest.MonkeyPatch, app: Any
) -> None:
    monkeypatch.setenv("SHOP_DSN", shop.env["SHOP_DSN"])
    monkeypatch.setenv("EMPTY_DSN", empty_database.conninfo)
    with pytest.raises((Stop, psycopg.Error)):
        _demand_work(app(), "tests.cli.mill:us")


def test_a_schema_that_stopped_half_way_is_told(shop: Shop) -> None:
    shop.database.connect().execute(
        "update underseal.setting set value = 'false' where key = 'schema.usable'"
    )
    done = shop.run("worker", APP)
    assert done.code == 1
    assert "underseal migrate" in done.err


def test_an_argument_goes_before_the_environment(shop: Shop) -> None:
    done = shop.run("worker", "tests.cli.mill:nowhere", env={"UNDERSEAL_APP": "tests.cli.shop:make"})
    assert (done.code, "tests.cli.mill:nowhere" in done.err) == (1, True)


def test_a_client_of_sql_operations_alone_has_work(shop: Shop) -> None:
    owner = shop.database.connect()
    owner.execute("create schema bank authorization underseal_owner")
    owner.execute("set role underseal_owner")
    for name, returns in (("estimate", "jsonb"), ("look", "text"), ("pay", "jsonb")):
        owner.execute(
            f"create function bank.{name}(jsonb, text) returns {returns} language sql as 'select null::{returns}'"
        )
    from underseal import MemoryKeyRing, Policy, Underseal

    with Underseal(shop.owner_dsn, keys=MemoryKeyRing()) as us:
        done = us.register_sql_operation(
            "bank.pay", 1, {"type": "object", "properties": {}}, Policy(approvers=("ann",)),
            estimate="bank.estimate(jsonb,text)", check_run="bank.look(jsonb,text)", run="bank.pay(jsonb,text)",
        )  # fmt: skip
        assert done.outcome == "registered", done
    with working(shop, "tests.cli.mill:bare", "--json", "-v") as lines:
        assert lines[0]["event"] == "begins"
    assert lines[-1]["event"] == "ended"


def test_a_failed_flow_is_told_as_a_warning(shop: Shop) -> None:
    with working(shop, APP, "--json", "--verbose") as lines:
        bad = start(shop, "break")
        shop.run("exec", "result", bad, "--principal", "ann")
    (told,) = [line for line in lines if line.get("execution_id") == bad]
    assert (told["level"], told["outcome"]) == ("warning", "failed")


# -- results ----------------------------------------------------------------------------------------


@pytest.fixture
def ended(shop: Shop) -> dict[str, str]:
    """Executions that have ended, and one that waits."""
    with working(shop, APP):
        found = {name: start(shop, name) for name in ("grind", "break", "ask")}
        for name in ("grind", "break"):
            shop.run("exec", "result", found[name], "--principal", "ann")
        wait_until(lambda: status(shop, found["ask"]) == "suspended")
    return found


def status(shop: Shop, execution_id: str) -> str:
    """How one stands."""
    found: str = shop.run("exec", "show", execution_id, "--principal", "ann", "--json").json["status"]
    return found


def test_a_result_is_printed_as_json(shop: Shop, ended: dict[str, str]) -> None:
    done = shop.run("exec", "result", ended["grind"], "--principal", "ann")
    assert (done.code, done.out) == (0, '{"flour": null}\n')
    told = shop.run("exec", "result", ended["grind"], "--principal", "ann", "--json")
    assert told.json == {"outcome": "completed", "output": {"flour": None}}


def test_a_failure_is_told(shop: Shop, ended: dict[str, str]) -> None:
    done = shop.run("exec", "result", ended["break"], "--principal", "ann")
    assert (done.code, done.out) == (1, "")
    assert "failed (ValueError): the stone is worn" in done.err
    told = shop.run("exec", "result", ended["break"], "--principal", "ann", "--json")
    assert (told.code, told.json["outcome"], told.json["error"]["type"]) == (1, "failed", "ValueError")


def test_what_has_not_ended_in_time_is_told(shop: Shop, ended: dict[str, str]) -> None:
    done = shop.run("exec", "result", ended["ask"], "--principal", "ann", "--timeout", "0s")
    assert (done.code, done.out) == (1, "")
    assert "(timeout)" in done.err
    assert "found it suspended" in done.err


@pytest.mark.clause("E12c")
def test_a_result_is_not_for_strangers(shop: Shop, ended: dict[str, str]) -> None:
    login = shop.database.create_role("caller")
    shop.database.connect(OWNER).execute("select underseal.grant_access(%s, 'client', 'asserted')", [login])
    env: dict[str, str | None] = {"UNDERSEAL_DSN": shop.database.conninfo_as(login)}
    answers = [
        shop.run("exec", "result", one, "--principal", "eve", "--json", env=env)
        for one in (ended["grind"], "no-such")
    ]
    assert [one.code for one in answers] == [5, 5]
    assert answers[0].out == answers[1].out


def test_a_gate_is_answered_and_the_result_waited_for(shop: Shop, ended: dict[str, str]) -> None:
    with working(shop, APP):
        done = shop.run("exec", "resume", ended["ask"], "ok", "--answer", '"yes"', "--principal", "ann")
        assert done.code == 0, done
        told = shop.run("exec", "result", ended["ask"], "--principal", "ann", "--timeout", "20s")
        assert (told.code, told.out) == (0, '"yes"\n')
