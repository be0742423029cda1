"""The sensitive map: what may be registered, what it makes of an event, what it declares."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from underseal.seal import COMMITTING, PLAIN
from underseal.seal.capability import marker, opens
from underseal.seal.sensitive import SensitiveMap

ALWAYS = ["EXECUTION_STARTED.lineage", "SNAPSHOT.state"]


def covers(sensitive: SensitiveMap) -> list[str]:
    declared = sensitive.capability()
    assert declared is not None
    return [one for one in declared["covers"] if one not in ALWAYS]


@pytest.mark.clause("M3", "M16")
def test_who_seals_nothing_declares_nothing() -> None:
    assert SensitiveMap().capability() is None
    assert SensitiveMap({"STEP_COMPLETED": []}).capability() is None


@pytest.mark.clause("M3")
def test_what_is_declared_is_sorted_and_complete() -> None:
    sensitive = SensitiveMap(
        {"STEP_COMPLETED": ["output.b", "/output/a", "output.a"], "EXECUTION_STARTED": "input"}
    )
    assert sensitive.capability() == {
        "ciphers": [COMMITTING],
        "covers": [
            "EXECUTION_STARTED.input",
            "EXECUTION_STARTED.lineage",
            "SNAPSHOT.state",
            "STEP_COMPLETED.output.a",
            "STEP_COMPLETED.output.b",
        ],
    }


def test_the_record_s_cipher_is_declared_where_it_is_opened() -> None:
    declared = SensitiveMap({"STEP_COMPLETED": "output"}, open_legacy=True).capability()
    assert declared is not None
    assert declared["ciphers"] == sorted([COMMITTING, PLAIN]) == [PLAIN, COMMITTING]


@pytest.mark.clause("M3")
def test_a_path_that_is_registered_counts_at_once() -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": "output"})
    later = marker(COMMITTING, ["STEP_FAILED.error"])
    assert not opens(later, sensitive.capability())
    sensitive.register("STEP_FAILED", "/error")
    assert opens(later, sensitive.capability())
    assert sensitive.slots("STEP_FAILED", {"op": 1, "error": {}}) == [("error",)]


def test_a_message_is_one_payload_in_inbox_and_log() -> None:
    for one in ("INBOX_MESSAGE", "MESSAGE_CONSUMED"):
        assert covers(SensitiveMap({one: "payload.a"})) == [
            "INBOX_MESSAGE.payload.a",
            "MESSAGE_CONSUMED.payload.a",
        ]


def test_the_end_of_a_child_opens_where_its_own_log_does() -> None:
    sensitive = SensitiveMap({"EXECUTION_COMPLETED": "/output/a", "INBOX_MESSAGE": "payload"})
    assert "MESSAGE_CONSUMED.payload.output.a" in covers(sensitive)
    assert "INBOX_MESSAGE.payload.output.a" in covers(sensitive)

    def slots(topic: str, payload: dict[str, Any]) -> list[tuple[str, ...]]:
        return sensitive.slots("MESSAGE_CONSUMED", {"topic": topic, "payload": payload})

    assert slots("mine", {"status": "completed"}) == [("payload",)]
    assert slots("$gate/g", {"output": {"a": 1}}) == [("payload",)]
    assert slots("$child/x", {"status": "completed", "output": {"a": 1}}) == [("payload", "output", "a")]
    assert slots("$child/x", {"status": "failed", "error": {"a": 1}}) == []
    assert slots("$hold/x", {"status": "completed", "output": {"a": 1}}) == []


@pytest.mark.clause("M1")
def test_the_outer_of_two_paths_is_sealed_and_both_open() -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": ["output.a", "output"]})
    assert sensitive.slots("STEP_COMPLETED", {"op": 1, "output": {"a": 1}}) == [("output",)]
    assert covers(sensitive) == ["STEP_COMPLETED.output", "STEP_COMPLETED.output.a"]


def test_a_path_that_leads_nowhere_is_sealed_nowhere() -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": ["output.a", "output.0"]})
    assert sensitive.slots("STEP_COMPLETED", {"op": 1, "output": None}) == []
    assert sensitive.slots("STEP_COMPLETED", {"op": 1, "output": [1]}) == [("output", "0")]
    assert sensitive.slots("STEP_FAILED", {"op": 1, "output": {"a": 1}}) == []


def test_an_application_s_own_type_says_what_tells_its_events_apart() -> None:
    sensitive = SensitiveMap({"PAYMENT": ["card", "/to.whom"]}, keys={"PAYMENT": ["id", "/part/0"]})
    assert sensitive.key_of("PAYMENT") == (("id",), ("part", "0"))
    assert covers(sensitive) == ["PAYMENT.card", "PAYMENT.to\\.whom"]
    sensitive.register("PAYMENT", "iban")
    sensitive.register("PAYMENT", "bic", key=("id", "part.0"))
    with pytest.raises(ValueError, match="the key that PAYMENT has already"):
        sensitive.register("PAYMENT", "name", key="name2")
    assert sensitive.key_of("STEP_ATTEMPT_FAILED") == (("op",), ("attempt",))
    assert sensitive.key_of("EXECUTION_STARTED") == ()


@pytest.mark.parametrize(
    ("event_type", "paths", "key", "said"),
    [
        ("PAYMENT", ["card"], (), "expected a key for PAYMENT"),
        ("PAYMENT", ["card.number"], ("card",), "to stay readable"),
        ("PAYMENT", ["card"], ("card.number",), "to stay readable"),
        ("STEP_COMPLETED", ["output"], ("op",), "expected no key"),
        ("STEP_COMPLETED", ["op"], (), "into output of STEP_COMPLETED"),
        ("STEP_COMPLETED", ["name"], (), "into output of STEP_COMPLETED"),
        ("MESSAGE_CONSUMED", ["topic"], (), "into payload"),
        ("EXECUTION_STARTED", ["owner"], (), "into input"),
        ("EXECUTION_SUSPENDED", ["waits"], (), "into nothing"),
        ("CHILD_STARTED", ["name"], (), "into nothing"),
        ("TIMER_FIRED", ["wait"], (), "into nothing"),
        ("SNAPSHOT", ["state"], (), "into nothing"),
        ("step", ["output"], (), "a type of events"),
        ("A.B", ["output"], (), "a type of events"),
        ("STEP_COMPLETED", [""], (), "between the dots"),
        ("STEP_COMPLETED", ["output..a"], (), "between the dots"),
        ("STEP_COMPLETED", ["output."], (), "between the dots"),
        ("STEP_COMPLETED", ["output.*"], (), "without wildcards"),
        ("STEP_COMPLETED", ["/output/~"], (), "RFC 6901"),
        ("STEP_COMPLETED", ["output.a\\"], (), "RFC 6901"),
    ],
)
def test_what_is_not_registered(event_type: str, paths: list[str], key: Any, said: str) -> None:
    sensitive = SensitiveMap({"STEP_FAILED": "error"})
    before = sensitive.capability()
    with pytest.raises(ValueError, match="expected") as caught:
        sensitive.register(event_type, *paths, key=key)
    assert said in str(caught.value)
    assert sensitive.capability() == before


def test_a_pointer_says_what_a_dotted_path_does_not() -> None:
    assert covers(SensitiveMap({"STEP_COMPLETED": ["/output/*", "/output/", "/output/a.b"]})) == [
        "STEP_COMPLETED.output.",
        "STEP_COMPLETED.output.*",
        "STEP_COMPLETED.output.a\\.b",
    ]


def test_a_key_of_a_type_without_paths_is_a_slip() -> None:
    with pytest.raises(ValueError, match="of types that have paths"):
        SensitiveMap({"PAYMENT": "card"}, keys={"PAYMENTS": "id", "PAYMENT": "id"})


@pytest.mark.clause("M3")
def test_many_threads_register_and_nothing_is_lost() -> None:
    sensitive = SensitiveMap()

    def register(number: int) -> None:
        for one in range(50):
            sensitive.register("STEP_COMPLETED", f"output.t{number}.n{one}")
            sensitive.capability()

    threads = [threading.Thread(target=register, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(covers(sensitive)) == 200
