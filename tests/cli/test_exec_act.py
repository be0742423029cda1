"""Starting, answering, cancelling, forking, deleting and verifying executions from the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.flows import CIPHERTEXT, Flows
from underseal.log.batch import complete_item, gate, topic, wait
from underseal.testing import TestClock


def status_of(flows: Flows, execution_id: str) -> str:
    return flows.executions.get(execution_id, "ann").status


def test_an_execution_is_started_from_an_option_a_file_and_the_standard_input(
    flows: Flows, tmp_path: Path
) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"order": "o-77"}')
    for more, stdin in (
        (["--input", '{"order": "o-77"}'], None),
        ([file], None),
        (["-"], '{"order": "o-77"}'),
    ):
        started = flows.run("exec", "start", "order.pay", *more, "--json", stdin=stdin)
        assert (started.code, started.json["outcome"]) == (0, "started"), started
        first, *_ = flows.executions.events(started.json["execution_id"], "ann")
        assert first.data == {
            "flow": "order.pay",
            "flow_version": 1,
            "owner": "ann",
            "input": {"order": "o-77"},
        }


@pytest.mark.clause("E3")
def test_the_same_id_starts_once(flows: Flows) -> None:
    command = ["exec", "start", "f", "--id", "o-77", "--flow-version", "3"]
    assert "exec show o-77 --principal ann" in flows.run(*command).out
    again = flows.run(*command, "--json")
    assert (again.code, again.json["outcome"], again.json["reason"]) == (3, "conflict", "execution-exists")
    assert flows.executions.get("o-77", "ann").flow_version == 3


def test_a_start_can_wait(flows: Flows, clock: TestClock) -> None:
    flows.run("exec", "start", "f", "--id", "later", "--in", "1 d 2h")
    out = flows.run("exec", "show", "later").out
    assert "begins when a worker that serves f version 1 drives it" in out
    assert "to be driven, due " in out
    assert "(in 1 d 2 h)" in out or "(in 1 d 1 h)" in out
    clock.advance(days=2)
    assert ", no worker has it" in flows.run("exec", "show", "later").out


@pytest.mark.clause("E6b")
@pytest.mark.parametrize("name", ["approve", "it's a gate\u202e", '"; rm -rf /'])
def test_the_command_that_show_gives_answers_the_gate(flows: Flows, name: str) -> None:
    flows.start("o 77")
    flows.park("o 77", wait("w", gate(name)))
    out = flows.run("exec", "show", "o 77").out
    assert "ann, its owner, may answer" in out
    (line,) = (one for one in out.splitlines() if "exec resume" in one)
    assert "\u202e" not in line
    words = bash_words(line.partition("underseal ")[2])
    done = flows.run(*words)
    assert (done.code, "Answered: gate" in done.out) == (0, True), done
    again = flows.run(*words, "--json")
    assert (again.code, again.json["reason"]) == (3, "already-answered")
    fence = flows.driver.acquire_fence("o 77").fence
    assert fence is not None
    assert flows.driver.deliver("o 77", fence).answered == 1
    assert status_of(flows, "o 77") == "running"
    assert "ann answered gate" in flows.run("exec", "show", "o 77").out


def test_what_the_kernel_answers_nobody_is_asked_to_send(flows: Flows) -> None:
    flows.start("o-77")
    operation = "16eefeb1-4ab0-4a02-91fd-ec4ee2aea62c"
    flows.park(
        "o-77", wait("h", topic(f"$hold/{operation}")), wait("c", topic("$child/pack-3"), topic("stop"))
    )
    out = flows.run("exec", "show", "o-77").out
    assert f"the end of operation {operation}" in out
    assert f"underseal show {operation}" in out
    assert "the end of child pack-3" in out
    assert [line for line in out.splitlines() if "inbox send" in line] == [
        "  │    underseal inbox send o-77 stop --principal ann --payload '{}'"
    ]
    (line,) = (one for one in out.splitlines() if "exec show" in one)
    assert line.endswith("underseal exec show 'o-77~pack-3'")


def bash_words(line: str) -> list[str]:
    """What a shell makes of a line."""
    import subprocess

    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    return done.stdout.decode().split("\0")[:-1]


def test_only_the_owner_answers_and_an_operator_does_not(flows: Flows) -> None:
    flows.start("e")
    flows.park("e")
    assert flows.run("exec", "resume", "e", "approve", "--answer", "1", who="op").code == 5
    assert flows.run("exec", "resume", "e", "approve", "--answer", "1", login="client").code == 0


def test_an_answer_to_a_gate_that_is_not_waited_at_says_so(flows: Flows) -> None:
    flows.start("e")
    early = flows.run("exec", "resume", "e", "approve", "--answer", "1").out
    assert "It did not wait at this gate; the answer is kept" in early
    flows.park("e", wait("w", gate("review\u202e"), topic("paid")))
    mistyped = flows.run("exec", "resume", "e", "it's", "--answer", "1")
    assert mistyped.code == 0
    assert "It did not wait at this gate, but at review⟨U+202E⟩;" in mistyped.out
    (line,) = (one for one in mistyped.out.splitlines() if "inbox discard" in one)
    back = bash_words(line.partition("takes it back: underseal ")[2])
    assert back == ["inbox", "discard", "e", "$gate/it's"]
    assert flows.run(*back, "--yes").code == 0
    right = flows.run("exec", "resume", "e", "review\u202e", "--answer", "1", "--json")
    assert right.json["outcome"] == "resumed"
    assert "$gate/review" not in right.out


def test_an_outcome_is_recorded_after_the_end(flows: Flows) -> None:
    flows.start("e")
    flows.write(complete_item, "e", None)
    done = flows.run("exec", "outcome", "e", "--value", '{"landed": true}')
    assert (done.code, done.out) == (0, "Recorded as event 2.\n")
    assert 'outcome  {"landed": true}' in flows.run("exec", "show", "e").out


@pytest.mark.clause("E6g")
def test_a_parked_one_is_moved_to_another_version_and_back(flows: Flows) -> None:
    flows.start("e")
    flows.park("e")
    moved = flows.run("exec", "migrate", "e", "--to", "3", "--json")
    assert (moved.code, moved.json["outcome"], status_of(flows, "e")) == (0, "migrated", "running")
    same = flows.run("exec", "migrate", "e", "--to", "3", who="op", login="operator")
    assert (same.code, "It is of that version already" in same.out) == (0, True)
    assert "version 1" in flows.run("exec", "migrate", "e", "--to", "1", who="op", login="operator").out
    out = flows.run("exec", "show", "e").out
    assert "version 3 of the flow drives it now, says ann" in out
    assert "version 1 of the flow drives it now, says op" in out
    assert flows.run("exec", "migrate", "e").code == 2
    assert flows.run("exec", "migrate", "e", "--to", "0").code == 2
    assert flows.run("exec", "migrate", "e", "--to", "4", who="mallory", login="client").code == 5
    flows.run("exec", "cancel", "e", "--force", "--yes")
    late = flows.run("exec", "migrate", "e", "--to", "4", "--json")
    assert (late.code, late.json["reason"]) == (3, "ended")


@pytest.mark.clause("E6e")
def test_cancelling_asks_the_driver_and_force_does_not(flows: Flows) -> None:
    flows.start("pending")
    done = flows.run("exec", "cancel", "pending", "--json")
    assert (done.code, done.json["outcome"], status_of(flows, "pending")) == (0, "cancelled", "cancelled")
    flows.start("running")
    flows.step("running")
    asked = [
        flows.run("exec", "cancel", "running", "--reason", "x", "--json").json["outcome"] for _ in range(2)
    ]
    assert (asked, status_of(flows, "running")) == (["requested", "unchanged"], "running")
    forced = flows.run("exec", "cancel", "running", "--force")
    assert (forced.code, status_of(flows, "running")) == (2, "running"), "nobody is at a terminal"
    assert flows.run("exec", "cancel", "running", "--force", "--yes", who="op", login="operator").code == 0
    assert status_of(flows, "running") == "cancelled"
    late = flows.run("exec", "cancel", "running", "--json")
    assert (late.code, late.json["reason"]) == (3, "ended")


@pytest.mark.clause("E6f")
def test_a_fork_goes_on_from_a_copy(flows: Flows) -> None:
    flows.start("e", {"n": 1})
    flows.step("e", step=1)
    flows.step("e", step=2)
    done = flows.run("exec", "fork", "e", 1, "--id", "e2", "--json")
    assert (done.code, done.json) == (0, {"outcome": "forked", "execution_id": "e2"})
    steps = [one.data for one in flows.executions.events("e2", "ann", after_seq=0)]
    assert steps == [{"step": 1}]
    out = flows.run("exec", "show", "e2").out
    assert "forked from  e at event 1" in out
    assert "copied from the log that it was forked from" in out
    assert (again := flows.run("exec", "fork", "e", 1, "--id", "e2", "--json")).code == 3, again
    beyond = flows.run("exec", "fork", "e", 9, "--json")
    assert (beyond.code, beyond.json["reason"]) == (4, "beyond-head")
    assert "exec show" in flows.run("exec", "fork", "e", 0).out


def test_a_chain_is_deleted_once_it_has_ended_and_somebody_says_yes(flows: Flows) -> None:
    flows.start("e")
    still = flows.run("exec", "delete", "e", "--yes", "--json")
    assert (still.code, still.json["reason"]) == (3, "open")
    flows.write(complete_item, "e", None)
    assert flows.run("exec", "delete", "e").code == 2, "nobody is at a terminal"
    assert status_of(flows, "e") == "completed"
    assert flows.run("exec", "delete", "e", "--yes").out == "e is deleted.\n"
    assert flows.run("exec", "show", "e").code == 5


@pytest.mark.clause("E4c")
def test_verify_names_every_difference_and_ends_with_1(flows: Flows) -> None:
    flows.start("good")
    flows.start("bad")
    flows.park("bad", wait("approve", gate("approve")), wait("paid", topic("paid")))
    fine = flows.run("exec", "verify", "good", "bad")
    assert (fine.code, fine.out) == (0, "verified  good\nverified  bad\n")
    with flows.tampering() as admin:
        admin.execute(
            "update underseal.execution set recoveries = 2, waits = waits - 0, cancel_requested = true"
            " where chain_id = 'bad'"
        )
    done = flows.run("exec", "verify", "good", "bad")
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[:2] == ["verified  good", "different  bad"]
    named = {line.strip() for line in lines if line.startswith("  ") and not line.startswith("   ")}
    assert named == {"recoveries", "waits", "cancel_requested"}
    assert "    tables  2" in lines
    assert "    log     0" in lines
    as_json = flows.run("exec", "verify", "bad", "--json")
    (told,) = as_json.json
    assert (as_json.code, told["outcome"]) == (1, "different")
    assert {one["what"] for one in told["differences"]} == named


@pytest.mark.clause("E4c")
def test_verify_finds_what_differs_among_all(flows: Flows) -> None:
    for n in range(3):
        flows.start(f"e{n}")
    assert (
        flows.run("exec", "verify", "--all").out == "3 executions: 3 verified, 0 different, 0 unverifiable\n"
    )
    with flows.tampering() as admin:
        admin.execute("delete from underseal.event where chain_id = 'e1'")
    done = flows.run("exec", "verify", "--all")
    assert done.code == 1
    assert "different  e1" in done.out
    assert "3 executions: 2 verified, 1 different, 0 unverifiable" in done.out
    assert "e0" not in done.out


def test_a_worker_verifies_in_nobodys_name(flows: Flows) -> None:
    flows.start("e")
    env = {"UNDERSEAL_DSN": flows.logins["worker"], "UNDERSEAL_PRINCIPAL": None}
    assert flows.shop.run("exec", "verify", "e", env=env).code == 0
    assert flows.shop.run("exec", "verify", "--all", env=env).code == 0


@pytest.mark.clause("E4c")
def test_what_does_not_open_here_is_unverifiable_and_no_yes(flows: Flows) -> None:
    flows.start("e")
    flows.seal("e")
    done = flows.run("exec", "verify", "e")
    assert (done.code, "unverifiable  e" in done.out) == (4, True), done
    assert "sealed, and does not open here" in done.out
    assert CIPHERTEXT not in done.out


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["exec", "list", "--status", "running", "--all"], 2, "expected --status or --all, found both"),
        (["exec", "list", "--status", "open"], 2, "'open' is not one of"),
        (["exec", "list", "--after", "yesterday"], 4, "Expected a cursor that a row of list_executions gave"),
        (["exec", "events", "e", "--after", "-2"], 2, "-2 is not in the range"),
        (["exec", "start", "f", "--input", "hello"], 2, "a text needs quotes of its own"),
        (["exec", "start", "f", "--input", "{]"], 2, "one JSON value in UTF-8, found something else (not shown)"),
        (["exec", "start", "f", "--input", '{"a": 1, "a": 2}'], 2, "found a name twice in one object"),
        (["exec", "start", "f", "--input", "[1.00000000000000000001]"], 2, "more digits than a double keeps"),
        (["exec", "start", "f", "--input", "1e999"], 2, "more digits than a double keeps"),
        (["exec", "start", "f", "--input", "NaN"], 2, "found NaN or an infinity"),
        (["exec", "start", "f", "--input", '"\\ud800"'], 2, "expected --input to be one JSON value"),
        (["exec", "start", "f", "--input", "[" * 100_000], 2, "expected --input to be one JSON value"),
        (["exec", "start", "f", "-", "--input", "1"], 2, "expected --input or FILE, found both"),
        (["exec", "start", "f", "--in", "2 weeks"], 2, "expected a length of time such as 90s"),
        (["exec", "start", "f", "--in", "1h5"], 2, "expected a length of time such as 90s"),
        (["exec", "start", "f", "--in", "9999d"], 4, "Expected a delay from 0 to 3650 days"),
        (["exec", "start", "f", "--id", "a~b~c"], 4, "Expected an id of 1 to 200 characters"),
        (["exec", "resume", "e", "approve"], 2, "expected --answer or FILE, found neither"),
        (["exec", "outcome", "e"], 2, "expected --value or FILE, found neither"),
        (["exec", "verify"], 2, "expected ids of executions or --all, found neither"),
        (["exec", "verify", "e", "--all"], 2, "expected ids of executions or --all, found both"),
        (["inbox", "send", "e", "paid"], 2, "expected --payload or FILE, found neither"),
        (["inbox", "send", "e", "paid", "--payload", "1", "--expires-in", "0s"], 4, "Expected an expiry of more than"),
        (["inbox", "send", "e", "$gate/x", "--payload", "1"], 4, "Expected a topic of 1 to 200"),
        (["inbox", "discard", "e", "paid", "--number", "0"], 2, "0 is not in the range"),
    ],
)  # fmt: skip
def test_wrong_input_is_told_what_was_expected(
    flows: Flows, command: list[str], code: int, words: str
) -> None:
    flows.start("e")
    done = flows.run(*command, stdin="1")
    assert (done.code, words in done.err) == (code, True), done
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 4
    assert len(done.err) < 500


def test_no_value_that_was_wrong_is_shown(flows: Flows) -> None:
    for given in ('{"pin": 4711-secret}', "4711-secret"):
        done = flows.run("exec", "start", "f", "--input", given)
        assert done.code == 2
        assert "4711" not in done.err


def test_every_command_needs_somebody_to_act_for(flows: Flows) -> None:
    env: dict[str, str | None] = {"UNDERSEAL_PRINCIPAL": None}
    for command in (
        "exec list",
        "exec show e",
        "exec events e",
        "exec cancel e",
        "exec fork e 0",
        "inbox list e",
    ):
        done = flows.shop.run(*shlex.split(command), env=env)
        assert (done.code, "expected --principal or UNDERSEAL_PRINCIPAL" in done.err) == (2, True), command


def test_commands_of_a_login_without_their_access_are_denied(flows: Flows) -> None:
    flows.start("e")
    for command in ("exec start f", "exec list", "exec show e"):
        done = flows.shop.run(
            *shlex.split(command), "--principal", "ann", "--json",
            env={"UNDERSEAL_DSN": flows.shop.database.conninfo_as(flows.shop.stranger)},
        )  # fmt: skip
        assert done.code in (1, 5), command
        assert json.loads(done.out)["outcome"] in ("denied", "error")
