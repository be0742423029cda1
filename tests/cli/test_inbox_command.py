"""Messages sent, listed and discarded from the command line."""

from __future__ import annotations

import pytest

from tests.cli.flows import Flows
from underseal.log.batch import complete_item
from underseal.testing import OWNER, TestClock


def numbers(flows: Flows, execution_id: str = "e") -> list[int]:
    return [one.inbox_seq for one in flows.executions.inbox(execution_id, "ann")]


def test_a_message_is_sent_once_under_its_id(flows: Flows) -> None:
    flows.start("e")
    command = ["inbox", "send", "e", "paid", "--payload", '{"cents": 5}', "--message-id", "m1"]
    assert flows.run(*command).out == "Message 1 on paid.\n"
    assert flows.run(*command).out == "Message 1 on paid. Sent before: nothing is changed.\n"
    again = flows.run(*command, "--json")
    assert (again.code, again.json["outcome"], again.json["inbox_seq"]) == (0, "duplicate", 1)
    assert numbers(flows) == [1]


def test_a_message_arrives_as_it_was_given(flows: Flows) -> None:
    flows.start("e")
    flows.park("e")
    assert flows.run("inbox", "send", "e", "paid", "-", stdin='{"cents": 1200, "at": "\\u00e9"}').code == 0
    fence = flows.driver.acquire_fence("e").fence
    assert fence is not None
    assert flows.driver.next_message("e", fence).payload == {"cents": 1200, "at": "é"}


@pytest.mark.clause("I4")
def test_a_full_topic_is_refused_and_others_are_not(flows: Flows) -> None:
    flows.shop.database.connect(OWNER).execute("insert into underseal.setting values ('inbox.backlog', '2')")
    flows.start("e")
    for _ in range(2):
        assert flows.run("inbox", "send", "e", "a", "--payload", "1").code == 0
    full = flows.run("inbox", "send", "e", "a", "--payload", "1", "--json")
    assert (full.code, full.json["outcome"], full.json["reason"]) == (4, "refused", "inbox-full")
    assert flows.run("inbox", "send", "e", "b", "--payload", "1").code == 0


def test_an_ended_execution_takes_no_message(flows: Flows) -> None:
    flows.start("e")
    flows.write(complete_item, "e", None)
    done = flows.run("inbox", "send", "e", "a", "--payload", "1", "--json")
    assert (done.code, done.json["reason"]) == (3, "ended")


def test_what_waits_is_listed_without_what_it_says(flows: Flows, clock: TestClock) -> None:
    flows.start("e")
    flows.run("inbox", "send", "e", "a", "--payload", '"4711-4711-secret"', "--expires-in", "2h")
    flows.run("exec", "resume", "e", "approve", "--answer", '"4711-4711-secret"')
    clock.advance(minutes=30)
    people, scripts = flows.run("inbox", "list", "e"), flows.run("inbox", "list", "e", "--json")
    assert "4711" not in people.out + scripts.out
    assert [(one["inbox_seq"], one["topic"], one["sender"]) for one in scripts.json] == [
        (1, "a", "ann"),
        (2, "$gate/approve", "ann"),
    ]
    assert "30 min ago" in people.out or "30 min 1 s ago" in people.out
    assert "(in 1 h 29 min)" in people.out or "(in 1 h 30 min)" in people.out
    assert flows.run("inbox", "list", "e", "--after", 2).out == "nothing waits\n"
    paged = flows.run("inbox", "list", "e", "--limit", 1).out
    assert "there may be more: --after 1" in paged
    assert "bytes" in flows.run("exec", "show", "e").out


@pytest.mark.clause("I3a")
def test_discarding_takes_an_operator_judged_before_anything_is_read(flows: Flows) -> None:
    flows.start("e")
    flows.run("inbox", "send", "e", "a", "--payload", "1")
    owner, nowhere = (
        flows.run("inbox", "discard", name, "a", "--yes", "--json", login="client")
        for name in ("e", "nosuch")
    )
    assert (owner.code, owner.out) == (5, nowhere.out)
    assert flows.run("inbox", "discard", "e", "a", "--yes", who="", login="operator").code == 2
    assert numbers(flows) == [1]


@pytest.mark.clause("I3b")
def test_discarding_drops_what_waits_on_a_topic_and_the_log_says_who_and_why(flows: Flows) -> None:
    flows.start("e")
    for topic in ("a", "a", "b"):
        flows.run("inbox", "send", "e", topic, "--payload", '"4711-4711-secret"')
    assert flows.run("inbox", "discard", "e", "a").code == 2, "nobody is at a terminal"
    moved = flows.run("inbox", "discard", "e", "a", "--number", 2, "--yes", "--json")
    assert (moved.code, moved.json["reason"]) == (3, "moved")
    assert flows.run("inbox", "discard", "e", "a", "--number", 1, "--yes").out == "Discarded 1 message.\n"
    assert numbers(flows) == [2, 3]
    done = flows.run(
        "inbox", "discard", "e", "a", "--reason", "sent twice", "--yes", "--json", who="op", login="operator"
    )
    assert (done.json["outcome"], done.json["discarded"], numbers(flows)) == ("discarded", 1, [3])
    assert flows.run("inbox", "discard", "e", "a", "--yes").out == "Nothing waited on a.\n"
    out = flows.run("exec", "show", "e").out
    assert "message 2 on a from ann" in out
    assert "op discarded it" in out
    assert "“sent twice”" in out
    assert "4711-4711" not in out + flows.run("exec", "events", "e", "--json").out


def test_a_message_to_a_continued_execution_reaches_the_one_that_goes_on(flows: Flows) -> None:
    from underseal.log.batch import continue_item

    flows.start("e")
    flows.write(continue_item, "e", None)
    assert flows.run("inbox", "send", "e", "a", "--payload", "1").code == 0
    assert numbers(flows, "e~2") == [1]
    assert "1 message in the inbox" in flows.run("exec", "show", "e~2").out
