"""What a person at a terminal, wide or narrow, sees of executions; the command is a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from tests.cli.flows import NASTY, Flows
from tests.cli.terminal import Terminal
from underseal.log.batch import gate, sleep, wait
from underseal.testing import wait_until


def terminal(flows: Flows, *args: str, columns: int = 80) -> Terminal:
    return Terminal([*args, "--principal", "ann"], flows.shop.env, columns)


@pytest.mark.parametrize("columns", [30, 50, 80, 100, 140, 200])
def test_a_timeline_is_folded_beside_its_rail_and_loses_nothing(flows: Flows, columns: int) -> None:
    flows.start("e", {"memo": NASTY, "list": [{"sku": "x" * 90, "n": n} for n in range(2)]})
    flows.step("e", note="n" * 100)
    flows.park("e")
    flows.executions.send("e", "other", 1, "ann")
    code, screen = terminal(flows, "exec", "show", "e", columns=columns).end()
    assert code == 0
    lines = screen.splitlines()
    # a command is to be copied: it is in one line, however long
    assert all(len(line) <= columns or "underseal " in line for line in lines), screen
    (first,) = (n for n, line in enumerate(lines) if line.startswith("  ●  0"))
    (last,) = (n for n, line in enumerate(lines) if line.startswith("  parked until"))
    assert {line[:3] for line in lines[first:last]} == {"  ●", "  │"}
    assert screen.count("●") == 3
    (resume,) = (line for line in lines if "exec resume" in line)
    assert resume.endswith("underseal exec resume e approve --principal ann --answer true")
    seen = "".join(line[5:] for line in lines).replace(" ", "")
    # beside a column of places the pieces of a long value stand apart
    assert seen.count("x") >= 180
    assert seen.count("n") >= 100
    for words in ("⟨U+202E⟩", "input", "parked", "UTC", "other", "1byte"):
        assert words in seen, words


@pytest.mark.parametrize("columns", [60, 80, 140, 200])
def test_a_list_fits_and_keeps_ids_whole(flows: Flows, columns: int) -> None:
    minted = flows.executions.start("order.pay", "ann")
    flows.park(minted)
    code, screen = terminal(flows, "exec", "list", columns=columns).end()
    assert code == 0
    assert max(map(len, screen.splitlines())) <= columns
    if columns >= 80:
        assert minted in screen
        assert "suspended" in screen
    assert ("waits for" in screen) == (columns >= 140)


def test_long_ids_are_folded_and_not_cut_off(flows: Flows) -> None:
    name = "x" * 150 + "END"
    flows.start(name)
    _, screen = terminal(flows, "exec", "list").end()
    assert max(map(len, screen.splitlines())) <= 80
    column = "".join(line.split(" ")[0] for line in screen.splitlines()[2:])
    assert name in column


def test_an_inbox_fits_into_an_ordinary_terminal(flows: Flows) -> None:
    flows.start("e")
    flows.executions.send("e", "paid", 1, "ann", expires_in=timedelta(hours=2))
    _, screen = terminal(flows, "inbox", "list", "e").end()
    assert len(screen.splitlines()) == 3, screen
    assert max(map(len, screen.splitlines())) <= 80


def test_statuses_have_colours_unless_nobody_wants_them(flows: Flows) -> None:
    flows.start("e")
    flows.park("e")
    coloured = terminal(flows, "exec", "show", "e")
    coloured.end()
    plain = Terminal(["exec", "show", "e", "--principal", "ann"], {**flows.shop.env, "NO_COLOR": "1"}, 80)
    plain.end()
    assert "36msuspended" in coloured.raw
    assert "36m" not in plain.raw


def test_following_shows_what_comes_until_the_end(flows: Flows) -> None:
    flows.start("e")
    watching = terminal(flows, "exec", "events", "e", "--follow")
    watching.wait_for("EXECUTION_STARTED")
    flows.step("e", step=NASTY)
    watching.wait_for("pay⟨U+202E⟩ann")
    assert "\u202e" not in watching.raw
    flows.executions.cancel("e", "ann", force=True)
    code, screen = watching.end()
    assert (code, screen.count("●")) == (0, 3)


def following(flows: Flows, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "underseal", "exec", "events", "e", "-f", "--principal", "ann", *more]
    return subprocess.Popen(
        command,
        env={**os.environ, **flows.shop.env},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_person_ends_following(flows: Flows) -> None:
    flows.start("e")
    watching = following(flows)
    try:
        assert watching.stdout is not None
        assert "EXECUTION_STARTED" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=30)
        assert (watching.returncode, said) == (0, "")
    finally:
        watching.kill()
        watching.wait()


def test_following_for_a_script_is_an_object_a_line_as_they_come(flows: Flows) -> None:
    flows.start("e")
    with following(flows, "--json") as reading:
        assert reading.stdout is not None
        try:
            assert json.loads(reading.stdout.readline())["seq"] == 0
            flows.step("e", n=1)
            assert json.loads(reading.stdout.readline())["data"] == {"n": 1}
            flows.executions.cancel("e", "ann", force=True)
            assert json.loads(reading.stdout.readline())["type"] == "EXECUTION_CANCELLED"
            assert reading.stdout.read() == ""
        finally:
            reading.kill()


def test_a_reader_that_goes_away_is_no_error(flows: Flows) -> None:
    flows.start("e")
    for n in range(200):
        flows.step("e", text="x" * 1000, n=n)
    for more in ([], ["--json"], ["--follow"]):
        command = [sys.executable, "-m", "underseal", "exec", "events", "e", "--limit", "1000", *more]
        env = {**os.environ, **flows.shop.env, "UNDERSEAL_PRINCIPAL": "ann"}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
            assert reading.stdout is not None
            assert reading.stderr is not None
            reading.stdout.read(10)
            reading.stdout.close()
            assert reading.stderr.read() == b"", more


def test_a_reader_that_was_never_there_is_no_error_either(flows: Flows) -> None:
    flows.start("e")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "underseal", "inbox", "send", "e", "a", "--payload", "1"],
        env={**os.environ, **flows.shop.env, "UNDERSEAL_PRINCIPAL": "ann"},
        stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.stderr == b""
    assert len(flows.executions.inbox("e", "ann")) == 1


@pytest.mark.parametrize(("answer", "status"), [("n\n", "running"), ("\n", "running"), ("y\n", "cancelled")])
def test_force_asks_a_person(flows: Flows, answer: str, status: str) -> None:
    flows.start("e\u202e")
    flows.step("e\u202e")
    asking = terminal(flows, "exec", "cancel", "e\u202e", "--force")
    screen = asking.wait_for("cleaned up?")
    assert "e⟨U+202E⟩" in screen
    asking.type(answer)
    asking.end()
    wait_until(lambda: flows.executions.get("e\u202e", "ann").status == status)


def test_a_person_discards(flows: Flows) -> None:
    flows.start("e")
    flows.executions.send("e", "a", 1, "ann")
    asking = terminal(flows, "inbox", "discard", "e", "a")
    asking.wait_for("never be delivered")
    assert len(flows.executions.inbox("e", "ann")) == 1
    asking.type("y\n")
    assert asking.end()[0] == 0
    assert flows.executions.inbox("e", "ann") == []


def test_times_carry_the_zone_of_the_reader(flows: Flows) -> None:
    flows.start("e")
    flows.park("e", wait("w", gate("g"), sleep(timedelta(days=1))))
    kathmandu = Terminal(
        ["exec", "show", "e", "--principal", "ann"], {**flows.shop.env, "TZ": "Asia/Kathmandu"}, 80
    )
    _, screen = kathmandu.end()
    assert screen.count("+05:45") >= 5
    assert "UTC" not in screen
