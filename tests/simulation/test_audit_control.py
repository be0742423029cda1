"""The audit of drivers: those that are shut out go on until they are told, and who delivers has the fence."""

from __future__ import annotations

from typing import Any

import pytest

from underseal.testing.audit import Books
from underseal.testing.audit.books import Row
from underseal.testing.audit.drivers import audit_drivers, audit_effects

PLACE = {"chain_id": "e", "member": ""}


def books(*events: tuple[str, dict[str, Any], str, int], fences: list[tuple[str, int]], began: int) -> Books:
    """An execution with these events, each with its writer and number, fences, and an effect of `driver` in step 1."""
    return Books(
        executions=[],
        events=[{**PLACE, "seq": n, "type": one[0], "data": one[1]} for n, one in enumerate(events)],
        messages=[],
        wakes=[],
        written=[{**PLACE, "seq": n, "process": one[2], "number": one[3]} for n, one in enumerate(events)],
        fences=[
            {**PLACE, "fence": n, "process": who, "number": number, "at": number}
            for n, (who, number) in enumerate(fences)
        ],
        effects=[
            {"effect": 1, "execution": "e", "step": 1, "attempt": 1, "process": "driver", "began": began}
        ],
    )


def found(it: Books) -> list[str]:
    """What is wrong with its effects."""
    logs: dict[tuple[str, str], list[Row]] = it.logs()
    return list(audit_effects(it, logs))


BEGUN: tuple[str, dict[str, Any], str, int] = ("EXECUTION_STARTED", {}, "caller", 2)
FORCED = ("EXECUTION_CANCELLED", {"principal": "ann", "reason": None}, "caller", 5)
MIGRATED = ("EXECUTION_MIGRATED", {"principal": "ann", "flow_version": 2}, "caller", 5)
TIDIED = ("EXECUTION_CANCELLED", {"reason": None}, "other", 5)
DONE = ("EXECUTION_COMPLETED", {"output": None}, "other", 5)


@pytest.mark.clause("T3b")
@pytest.mark.parametrize("control", [FORCED, MIGRATED], ids=["cancelled by force", "migrated"])
@pytest.mark.parametrize("began", [3, 7], ids=["under way", "begun before it was told"])
def test_a_driver_that_was_shut_out_by_a_caller_may_do_in_vain_what_it_does_until_it_is_told(
    control: Any, began: int
) -> None:
    fences = [("caller", 1), ("driver", 3), ("caller", 4), ("other", 6)]
    assert found(books(BEGUN, control, fences=fences, began=began)) == []


@pytest.mark.clause("T3b")
@pytest.mark.parametrize("end", [TIDIED, DONE], ids=["tidied up", "completed"])
def test_a_driver_that_was_shut_out_by_another_driver_may_not(end: Any) -> None:
    fences = [("caller", 1), ("driver", 3), ("other", 4)]
    assert "driver did step 1, and other held the fence" in str(
        found(books(BEGUN, end, fences=fences, began=7))
    )


@pytest.mark.clause("T3b")
def test_who_never_held_the_fence_may_not_either() -> None:
    fences = [("caller", 1), ("other", 3), ("caller", 4)]
    assert "driver did step 1" in str(found(books(BEGUN, FORCED, fences=fences, began=7)))


@pytest.mark.clause("T3b")
def test_who_was_shut_out_by_a_driver_is_not_excused_by_what_a_caller_did_to_that_one() -> None:
    fences = [("caller", 1), ("driver", 2), ("other", 3), ("caller", 4)]
    assert "driver did step 1" in str(found(books(BEGUN, FORCED, fences=fences, began=7)))


@pytest.mark.clause("T3b")
@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        (("MESSAGE_CONSUMED", {"disposition": "delivered"}, "driver", 5), True),
        (("MESSAGE_CONSUMED", {"disposition": "discarded"}, "driver", 5), False),
        (("TIMER_FIRED", {"wait": "1", "arm": 0}, "driver", 5), True),
        (("TIMER_FIRED", {"wait": "1", "arm": 0}, "other", 5), False),
    ],
    ids=["delivered", "discarded", "fired", "fired by who holds it"],
)
def test_waits_are_answered_by_who_holds_the_fence(event: Any, wrong: bool) -> None:
    it = books(BEGUN, event, fences=[("caller", 1), ("driver", 3), ("other", 4)], began=3)
    said = list(audit_drivers(it, it.logs()))
    assert bool(said) == wrong
    assert all("driver wrote event 1, and other held the fence" in fault for fault in said)
