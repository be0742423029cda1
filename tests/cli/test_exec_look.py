"""Which executions there are and what happened to each, as people and scripts are shown it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.flows import CIPHERTEXT, HIDDEN, NASTY, SEEN, Flows
from underseal.cli import main
from underseal.cli._exec_look import as_json_event
from underseal.cli._exec_timeline import Timeline
from underseal.cli._exec_words import in_full, told
from underseal.cli._render import console
from underseal.log.batch import (
    append_item,
    complete_item,
    continue_item,
    event,
    fail_item,
    gate,
    park_item,
    sleep,
    topic,
    wait,
)
from underseal.log.model import LogEvent
from underseal.testing import TestClock


def ids(found: list[dict[str, object]]) -> list[object]:
    return [one["execution_id"] for one in found]


def test_a_list_is_filtered_by_status_and_flow(flows: Flows) -> None:
    for name, flow in (("a", "order.pay"), ("b", "order.pay"), ("c", "refund"), ("d", "refund")):
        flows.start(name, flow=flow)
    flows.park("b")
    flows.write(complete_item, "d")
    assert ids(flows.run("exec", "list", "--json").json) == ["c", "b", "a"]
    assert ids(flows.run("exec", "list", "--all", "--json").json) == ["d", "c", "b", "a"]
    assert ids(flows.run("exec", "list", "--flow", "order.pay", "--json").json) == ["b", "a"]
    chosen = flows.run("exec", "list", "--status", "suspended", "--status", "completed", "--json")
    assert ids(chosen.json) == ["d", "b"]
    out = flows.run("exec", "list").out
    assert "gate approve, or until " in out
    assert "a message on paid" in out


def test_a_full_page_says_how_to_go_on_and_pages_hold_everything_once(flows: Flows) -> None:
    names = [flows.start(f"it's {n}") for n in range(5)]
    seen: list[str] = []
    words = ["exec", "list", "--limit", "2"]
    while words:
        seen += ids(flows.run(*words, "--json").json)  # type: ignore[arg-type]
        out = flows.run(*words).out
        _, more, after = out.partition("there may be more: underseal ")
        words = shlex.split(after) if more else []
    assert seen == names[::-1]


def test_only_an_owner_and_operators_see_an_execution_in_a_list(flows: Flows) -> None:
    flows.start("mine")
    flows.start("bobs", who="bob")
    assert ids(flows.run("exec", "list", "--json", login="client").json) == ["mine"]
    assert ids(flows.run("exec", "list", "--json", login="operator", who="op").json) == ["bobs", "mine"]


def test_events_for_scripts_are_exactly_what_was_recorded(flows: Flows) -> None:
    flows.start("e")
    numbers = '"cents": 1.10, "big": 12345678901234567890.123456789012, "twice": 1, "twice": 2, "far": 1e400'
    flows.record("e", "{" + numbers + ',\n "t":"\x7fé"}')
    for command in ("events", "show"):
        out = flows.run("exec", command, "e", "--json").out
        assert (
            '"cents": 1.10, "big": 12345678901234567890.123456789012, "twice": 1, "twice": 2, "far": 1e400'
            in out
        )
        assert '"t":"\\u007f\\u00e9"' in out
        assert out.isascii()
        assert len(out.splitlines()) == 1
        json.loads(out)


def test_what_is_deeper_than_python_reads_is_still_exact(flows: Flows) -> None:
    """No verb takes it any more; somebody else may have written it."""
    flows.start("e")
    deep = "[" * 1500 + "]" * 1500
    flows.put("e", f'{{"deep": {deep}}}')
    assert deep in flows.run("exec", "events", "e", "--json").out
    assert "too deep to be shown; --json has it" in flows.run("exec", "events", "e").out
    assert "too deep to be shown" in flows.run("exec", "show", "e").out


def test_an_output_that_knows_ascii_alone_is_no_error(flows: Flows) -> None:
    flows.start("é")
    env = {**flows.shop.env, "UNDERSEAL_PRINCIPAL": "ann"}
    shown = CliRunner(charset="ascii").invoke(main, ["exec", "show", "é"], env=env)
    assert (shown.exit_code, "\\u25cf  0" in shown.stdout, "\\xe9" in shown.stdout) == (0, True, True), shown


def test_nothing_is_hidden_from_a_person(flows: Flows) -> None:
    flows.start("e", {"memo": NASTY, NASTY: 1})
    flows.step("e", note=NASTY)
    flows.park("e", wait(NASTY, topic(NASTY)), wait("g", gate("g\u202e")))
    flows.executions.send("e", "x\u202e", 1, "ann", message_id=NASTY)
    flows.start("of bob", who="b\u202eob", flow="fl\u202eow")
    assert SEEN in flows.run("exec", "show", "e").out
    for command in (
        ["exec", "show", "e"],
        ["exec", "show", "of bob"],
        ["exec", "events", "e"],
        ["exec", "list"],
        ["inbox", "list", "e"],
    ):
        out = flows.run(*command).out
        assert not HIDDEN & set(out), command
        assert "⟨U+202E⟩" in out


def test_data_is_bounded_for_people_and_says_so(flows: Flows) -> None:
    flows.start("e", {"text": "x" * 5000, "many": list(range(10_000))})
    out = flows.run("exec", "events", "e").out
    assert '"… 5000 characters' in out
    assert "… and more; --json has all of it" in out
    assert len(out) < 10_000
    assert len(flows.run("exec", "show", "e").out) < len(out)


def test_events_are_paged_by_their_numbers(flows: Flows) -> None:
    flows.start("e")
    for n in range(4):
        flows.step("e", n=n)
    page = flows.run("exec", "events", "e", "--after", 0, "--limit", 2, "--json")
    assert [one["seq"] for one in page.json] == [1, 2]
    out = flows.run("exec", "events", "e", "--after", 0, "--limit", 2).out
    more = shlex.split(out.partition("there may be more: underseal ")[2])
    assert "--after 2" in shlex.join(more)
    assert [one["seq"] for one in flows.run(*more, "--json").json] == [3, 4]
    assert "nothing after this number" in flows.run("exec", "events", "e", "--after", 9).out


def test_the_timeline_says_what_happened_when_and_what_lies_between(flows: Flows, clock: TestClock) -> None:
    flows.start("e", {"order": "o-77"})
    flows.step("e", step="quote", output={"price": 12})
    flows.park("e")
    clock.advance(hours=2, minutes=5)
    flows.executions.send("e", "paid", {"cents": 1200}, "ann")
    fence = flows.driver.acquire_fence("e").fence
    assert fence is not None
    flows.driver.deliver("e", fence)
    flows.write(fail_item, "e", {"code": "declined"})
    flows.executions.record_outcome("e", "refunded", "ann")
    clock.advance(minutes=3)
    out = flows.run("exec", "show", "e").out
    for words in (
        "order.pay version 1  failed  e",
        "ann started order.pay version 1",
        'input  {"order": "o-77"}',
        "STEP_COMPLETED",
        "approve waits for gate approve, or until ",
        "2 h 5 min later",
        "message 1 on paid from ann",
        'payload  {"cents": 1200}',
        'error  {"code": "declined"}',
        'outcome  "refunded"',
        "3 min ago",
        " UTC",
    ):
        assert words in out, words
    assert "parked until" not in out, "it has ended"


def test_other_ends_and_turns_are_told(flows: Flows) -> None:
    flows.start("e")
    flows.step("e")
    seen = flows.driver.head("e")
    recovered = flows.driver.recover("e", seen, "worker-7", timedelta(minutes=1))
    assert recovered.outcome == "recovered", recovered
    assert "worker-7 took it over, attempt 1" in flows.run("exec", "show", "e").out
    assert "recoveries  1 since it last recorded anything" in flows.run("exec", "show", "e").out
    flows.executions.cancel("e", "ann", "no more")
    out = flows.run("exec", "show", "e").out
    assert "ann asked that it be cancelled" in out
    assert "“no more”" in out
    assert "requested; its driver has still to clean up" in out
    assert "to be cancelled" in flows.run("exec", "list").out
    flows.executions.cancel("e", "ann", force=True)
    assert "ann cancelled it" in flows.run("exec", "show", "e").out


def test_a_deadline_that_has_come_and_a_message_that_is_there_are_said(
    flows: Flows, clock: TestClock
) -> None:
    flows.start("e")
    flows.park("e", wait("nap", sleep(timedelta(hours=1))), wait("paid", topic("paid")))
    out = flows.run("exec", "show", "e").out
    assert "(in 1 h" in out or "(in 59 min" in out
    assert "underseal inbox send e paid --principal ann --payload '{}'" in out
    clock.advance(hours=2)
    flows.executions.send("e", "paid", 1, "ann")
    out = flows.run("exec", "show", "e").out
    assert "its time has come: a worker that serves order.pay takes it from here" in out
    assert "a message is there: a worker that serves order.pay takes it from here" in out
    assert "inbox send" not in out
    assert "1  paid from ann, 1 byte, " in out


def test_a_long_log_shows_its_beginning_its_end_and_how_much_lies_between(flows: Flows) -> None:
    flows.start("e", "the input")
    flows.write(append_item, "e", [event("STEP_COMPLETED", n=n) for n in range(30)])
    out = flows.run("exec", "show", "e", "--last", 2).out
    assert '"the input"' in out
    assert "28 events not shown" in out
    assert '{"n": 29}' in out
    assert '{"n": 27}' not in out
    assert [one["seq"] for one in flows.run("exec", "show", "e", "--last", 2, "--json").json["events"]] == [
        0,
        29,
        30,
    ]


def test_a_line_of_continuations_is_shown_around_its_place(flows: Flows) -> None:
    flows.start("e", {"n": 1})
    current = "e"
    for n in range(2, 11):
        flows.write(continue_item, current, {"n": n})
        current = f"e~{n}"
    assert "e → … → e~4 → e~5 → e~6 → … → e~10 (pending)" in flows.run("exec", "show", "e~5").out
    assert "order.pay version 1 goes on from e~4" in flows.run("exec", "show", "e~5").out
    assert "goes on as e~6" in flows.run("exec", "show", "e~5").out
    assert flows.run("exec", "show", "e~3", "--json").json["line"] == ["e", *(f"e~{n}" for n in range(2, 11))]


def test_fence_and_wakes_are_shown_to_workers_and_operators_alone(flows: Flows) -> None:
    flows.start("e")
    own, worker, operator = (
        flows.run("exec", "show", "e", login=login) for login in ("client", None, "operator")
    )
    assert (own.code, worker.code, operator.code) == (0, 0, 0)
    assert "fence " in worker.out
    assert "to be driven, due" in worker.out
    assert "to be driven, due" in operator.out
    assert not {"fence", "wake", "recoveries"} & set(own.out.split())
    assert flows.run("exec", "show", "e", "--json", login="client").json["fence"] is None
    assert flows.run("exec", "denials", "--json").json == [], "looking at what is one's own is no denial"


def test_a_sealed_log_says_that_it_is_and_gives_no_ciphertext(flows: Flows) -> None:
    flows.start("e", {"open": 1})
    flows.seal("e")
    shown = flows.run("exec", "show", "e")
    assert (shown.code, "its events are not shown: they are sealed" in shown.out) == (0, True)
    as_json = flows.run("exec", "show", "e", "--json")
    assert as_json.json["events"] is None
    events = flows.run("exec", "events", "e", "--json")
    assert (events.code, events.json["outcome"]) == (5, "denied")
    assert CIPHERTEXT not in shown.out + as_json.out + events.out


def test_a_sealed_event_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    envelope = {"__loomEnc": "x", "ct": CIPHERTEXT}
    marker = {"seal": {"v": 1, "cipher": "underseal/x", "covers": ["STEP_COMPLETED.output"]}}
    marked = LogEvent(
        "e", 1, "STEP_COMPLETED", {"step": "quote", "output": envelope}, datetime.now(UTC), marker
    )
    stub = replace(marked, data=None, metadata=None, sealed=True)
    unmarked = replace(marked, metadata=None, data={"a": [envelope], "gone": {"$shredded": True}})
    for words in (told, in_full):
        timeline = Timeline(console(), words, 10, None)
        for one in (marked, stub, unmarked):
            timeline.add(one)
    out = capsys.readouterr().out
    assert "sealed: STEP_COMPLETED.output; by underseal/x" in out
    assert "sealed: it does not open here" in out
    assert out.count("a/0") == 2
    assert "shredded" in out
    assert CIPHERTEXT not in out
    assert as_json_event(marked)["data"] is None
    assert (as_json_event(stub)["sealed"], as_json_event(unmarked)["sealed"]) == (True, False)


def test_facts_that_no_verb_wrote_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    timeline = Timeline(console(), told, 10, None)
    facts: tuple[tuple[str, dict[str, Any]], ...] = (
        ("EXECUTION_SUSPENDED", {"waits": [1]}),
        ("EXECUTION_STARTED", {"forked_from": {}, "flow": None}),
    )
    for number, (kind, data) in enumerate(facts):
        timeline.add(LogEvent("e", number, kind, data, datetime.now(UTC)))
    out = capsys.readouterr().out
    assert "EXECUTION_SUSPENDED" in out
    assert "waits" in out
    assert "forked from" in out


@pytest.mark.clause("E12c")
def test_a_stranger_cannot_tell_missing_from_foreign(flows: Flows) -> None:
    flows.start("theirs")
    flows.step("theirs")
    for command in (
        ["exec", "show", "ID"],
        ["exec", "events", "ID"],
        ["exec", "events", "ID", "--follow"],
        ["exec", "resume", "ID", "gate", "--answer", "1"],
        ["exec", "outcome", "ID", "--value", "1"],
        ["exec", "cancel", "ID"],
        ["exec", "cancel", "ID", "--force", "--yes"],
        ["exec", "fork", "ID", "0"],
        ["exec", "verify", "ID"],
        ["exec", "delete", "ID", "--yes"],
        ["inbox", "send", "ID", "paid", "--payload", "1"],
        ["inbox", "list", "ID"],
        ["inbox", "discard", "ID", "paid", "--yes"],
    ):
        for more in ([], ["--json"]):
            there, nowhere = (
                flows.run(
                    *(name if one == "ID" else one for one in command), *more, login="client", who="eve"
                )
                for name in ("theirs", "nosuch")
            )
            assert there.code == nowhere.code == 5, (command, there)
            assert (there.out, there.err) == (nowhere.out, nowhere.err)
    assert flows.run("exec", "list", "--all", "--json", login="client", who="eve").json == []
    seen = flows.executions.get("theirs", "ann")
    assert (seen.head, seen.cancel_requested) == (1, False)


def test_operators_read_why_somebody_was_turned_away(flows: Flows) -> None:
    flows.start("theirs")
    flows.run("exec", "show", "theirs", login="client", who="e\u202eve")
    flows.run("exec", "cancel", "nosuch", login="client", who="eve")
    rows = flows.run("exec", "denials", "--json").json
    assert [(one["op"], one["execution_id"], one["cause"]) for one in rows] == [
        ("cancel", "nosuch", "missing"),
        ("read", "theirs", "foreign"),
    ]
    assert [one["op"] for one in flows.run("exec", "denials", "--id", "theirs", "--json").json] == ["read"]
    assert "e⟨U+202E⟩ve" in flows.run("exec", "denials").out
    assert flows.run("exec", "denials", login="client").code == 5


def test_an_execution_without_an_owner_says_that_nobody_is_known(flows: Flows) -> None:
    flows.start("e")
    flows.write(park_item, "e", [wait("g", gate("g"))])
    with flows.tampering() as admin:
        admin.execute("update underseal.execution set owner = null")
    out = flows.run("exec", "show", "e").out
    assert "the log does not tell" in out
    assert "only an access policy lets somebody answer" in out
    assert "exec resume" not in out
