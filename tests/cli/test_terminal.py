"""What a person at a terminal sees and answers; the command is a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.shop import Shop
from tests.cli.terminal import Terminal
from underseal.seal import Destroyed
from underseal.testing import wait_until

ID = "00000000-0000-4000-8000-000000000000"


def state_of(shop: Shop, operation: str) -> str:
    return str(shop.run("show", operation, "--principal", "req", "--json").json["state"])


def test_a_person_approves_exactly_what_is_on_the_screen(shop: Shop) -> None:
    operation = shop.hold(memo="pay\u202eann\x1b[2J")
    terminal = Terminal(["approve", operation, "--principal", "ann"], shop.env)
    screen = terminal.wait_for("row version 1?")
    seen = shop.run("show", operation, "--principal", "ann", "--json").json["params_hash"]
    assert "pay⟨U+202E⟩ann⟨U+001B⟩[2J" in screen
    assert f"hash {seen}" in " ".join(screen.split())
    assert state_of(shop, operation) == "HELD"
    terminal.type("y\n")
    code, screen = terminal.end()
    assert (code, "Approved" in screen) == (0, True)
    assert "\u202e" not in terminal.raw
    assert "\x1b[2J" not in terminal.raw
    assert state_of(shop, operation) == "APPROVED"


def test_the_question_hides_nothing(shop: Shop) -> None:
    operation = shop.hold(principal="re\u202eq")
    terminal = Terminal(["reject", operation, "--principal", "ann", "--reason", "no"], shop.env)
    terminal.wait_for("row version 1?")
    terminal.type("y\n")
    code, screen = terminal.end()
    assert code == 0
    assert "for re⟨U+202E⟩q" in " ".join(screen.split())
    assert "\u202e" not in terminal.raw


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_person_who_does_not_say_yes_approves_nothing(shop: Shop, answer: str) -> None:
    operation = shop.hold()
    terminal = Terminal(["approve", operation, "--principal", "ann"], shop.env)
    terminal.wait_for("row version 1?")
    terminal.type(answer)
    code, _ = terminal.end()
    assert code == 1
    assert state_of(shop, operation) == "HELD"


@pytest.mark.clause("H2.9b")
def test_what_changed_while_the_question_stood_there_is_not_approved(shop: Shop) -> None:
    operation = shop.hold()
    terminal = Terminal(["approve", operation, "--principal", "ann"], shop.env)
    terminal.wait_for("row version 1?")
    shop.database.connect().execute(
        "update underseal.held_operation set effect = '{\"pays\":9}', row_version = row_version + 1"
        " where operation_id = %s",
        [operation],
    )
    terminal.type("y\n")
    code, screen = terminal.end()
    assert (code, "version-mismatch" in screen) == (3, True)
    assert state_of(shop, operation) == "HELD"


def test_who_may_not_vote_is_told_why_and_not_asked(shop: Shop) -> None:
    operation = shop.hold()
    code, screen = Terminal(["approve", operation, "--principal", "req"], shop.env).end()
    assert code == 3
    assert "somebody else decides" in screen
    assert "exactly this" not in screen


def test_a_person_destroys_a_key(shop: Shop) -> None:
    old = shop.ring.active("payload").id
    shop.run("keys", "rotate")
    terminal = Terminal(["keys", "destroy", old], shop.env)
    terminal.wait_for("for good?")
    terminal.type("y\n")
    assert terminal.end()[0] == 0
    assert isinstance(shop.ring.find(old), Destroyed)


def test_a_key_that_is_needed_by_now_is_not_destroyed(shop: Shop) -> None:
    old = shop.ring.active("payload").id
    shop.run("keys", "rotate")
    terminal = Terminal(["keys", "destroy", old], shop.env)
    terminal.wait_for("for good?")
    operation = shop.hold()
    # A service that has read its keys before the rotation may still seal under the old one.
    shop.database.connect().execute(
        "update underseal.held_operation set payload_key_id = %s,"
        " sealed_payload = jsonb_set(sealed_payload, '{kid}', to_jsonb(%s::text)) where operation_id = %s",
        [old, old, operation],
    )
    terminal.type("y\n")
    code, screen = terminal.end()
    assert (code, "key-needed" in screen) == (4, True)
    assert not isinstance(shop.ring.find(old), Destroyed)


def test_rewrap_shows_how_far_it_is(shop: Shop) -> None:
    for cents in range(3):
        shop.hold(cents=cents)
    shop.run("keys", "rotate")
    code, screen = Terminal(["keys", "rewrap", "--batch", "1"], shop.env).end()
    assert code == 0
    assert "sealing anew" in screen
    assert "3 payloads and 0 decisions" in screen


def test_states_have_colours_and_columns_fit(shop: Shop) -> None:
    operation = shop.hold()
    terminal = Terminal(["list", "--principal", "ann"], shop.env)
    code, screen = terminal.end()
    assert code == 0
    assert operation in screen
    assert "\x1b[33mHELD" in terminal.raw


def process(shop: Shop, *args: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "underseal", *args],
        env={**os.environ, **shop.env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


def test_the_worker_runs_what_is_approved_until_it_is_told_to_stop(shop: Shop) -> None:
    operation = shop.hold()
    shop.vote(operation)
    worker = process(shop, "worker", "--app", "tests.cli.shop:make", "--verbose", "--json")
    try:
        wait_until(lambda: state_of(shop, operation) == "SUCCEEDED", timeout=30)
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=30)
    finally:
        worker.kill()
    assert worker.returncode == 0
    assert operation in log
    assert all(line.startswith("{") for line in log.splitlines())


def test_a_worker_that_begins_without_a_database_says_so(shop: Shop) -> None:
    worker = process(shop, "worker", "--dsn", "host=/nowhere")
    _, said = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert "expected a database that answers" in said


def code_of(shop: Shop, *args: str) -> int:
    started = process(shop, *args)
    started.communicate(timeout=30)
    return started.returncode


def test_exit_codes_reach_the_shell(shop: Shop) -> None:
    operation = shop.hold()
    assert code_of(shop, "show", operation, "--principal", "ann") == 0
    assert code_of(shop, "show", operation, "--principal", "eve") == 5
    assert code_of(shop, "show", "x") == 2
    assert code_of(shop, "run", operation, "--app", "tests.cli.shop:make") == 3


@pytest.mark.parametrize("columns", [80, 100, 140, 160, 200])
def test_a_list_that_does_not_fit_is_folded_and_loses_nothing(shop: Shop, columns: int) -> None:
    operation = shop.hold(cents=4711)
    last = "pays 4711" if columns >= 140 else r"in (1 d|23 h 59 min)$"
    _, screen = Terminal(["list", "--principal", "ann"], shop.env, columns).end()
    lines = screen.splitlines()
    assert max(map(len, lines)) <= columns
    assert operation in screen
    # cells are folded into lines of their own column, so a column is read downwards
    begin = lines[0].rindex("what it" if columns >= 140 else "deadline")
    assert re.search(last, " ".join(" ".join(line[begin:] for line in lines[2:]).split()))


def test_nothing_is_folded_for_a_program(shop: Shop) -> None:
    operation = shop.hold(memo="m" * 300)
    lines = shop.run("list", "--principal", "ann").out.splitlines()
    assert [line.startswith(operation) for line in lines[2:]] == [True]


def test_an_outbox_fits_into_an_ordinary_terminal(shop: Shop) -> None:
    shop.run("outbox", "register", "mailer")
    operation = shop.hold()
    _, screen = Terminal(["outbox", "read", "mailer"], shop.env, columns=80).end()
    lines = screen.splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (3, True), screen
    assert re.search(rf"1 +{operation} +requested +req +(just now|\d+ s ago)", screen)


def test_a_finding_is_indented_where_it_is_folded(shop: Shop) -> None:
    _, screen = Terminal(["doctor", "--dsn", shop.owner_dsn], shop.env, columns=80).end()
    heads = re.compile("(error|warning|note) +[a-z-]+  |skipped|[0-9]+ checks made")
    body = [line for line in screen.splitlines() if not heads.match(line)]
    assert body
    assert {line[:8].rstrip() for line in body} <= {"", "       →"}, screen


def test_no_colour_means_none(shop: Shop) -> None:
    coloured = Terminal(["cancel", ID, "--principal", "req"], shop.env)
    coloured.end()
    plain = Terminal(["cancel", ID, "--principal", "req"], {**shop.env, "NO_COLOR": "1"})
    plain.end()
    assert ("\x1b[31m" in coloured.raw, "\x1b" in plain.raw) == (True, False)
