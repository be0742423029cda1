"""Who drove: nobody without the fence, and no step twice by a process that nothing happened to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from underseal.testing.audit.books import TERMINAL, Books, Logs, Place, Row, id_of
from underseal.testing.audit.log import RESULTS

BY_DRIVERS = RESULTS | {
    "STEP_ATTEMPT_FAILED",
    "HOLD_REQUESTED",
    "CANCELLATION_DELIVERED",
    "EXECUTION_SUSPENDED",
    "EXECUTION_COMPLETED",
    "EXECUTION_FAILED",
    "EXECUTION_CONTINUED",
    "EXECUTION_RECOVERED",
    "TIMER_FIRED",
}
"""And messages that are delivered: those that are discarded or expire are disposed of by others as well."""


class _Holders:
    """Who held the fence of an execution, and when."""

    def __init__(self, fences: list[Row]) -> None:
        self.taken: dict[Place, list[Row]] = defaultdict(list)
        for row in sorted(fences, key=lambda one: int(one["fence"])):
            self.taken[row["chain_id"], row["member"]].append(row)

    def at(self, place: Place, by: str, moment: Any) -> str | None:
        """Which process held it at a moment, told by `number` or by `at`."""
        before = [row for row in self.taken[place] if row[by] <= moment]
        return before[-1]["process"] if before else None

    def shut_out(self, place: Place, process: str, moment: Any, control: set[tuple[Place, int]]) -> bool:
        """Whether the fence that a process had at a moment, or before, was next taken by whoever cancels or migrates.

        Its driver goes on until it is told, by the next write or renewal.
        """
        taken = self.taken[place]
        own = [
            number for number, row in enumerate(taken) if row["process"] == process and row["at"] <= moment
        ]
        return bool(own) and own[-1] + 1 < len(taken) and (place, taken[own[-1] + 1]["fence"]) in control

    def control(self, logs: Logs, written: list[Row]) -> set[tuple[Place, int]]:
        """The fences that were taken to cancel by force or to migrate: by no driver."""
        numbers = {(row["chain_id"], row["member"], row["seq"]): row["number"] for row in written}
        found: set[tuple[Place, int]] = set()
        for place, log in logs.items():
            for event in log:
                number = numbers.get((*place, event["seq"]))
                if number is None or not _is_control(event):
                    continue
                before = [row["fence"] for row in self.taken[place] if row["number"] < number]
                found.add((place, before[-1]))
        return found

    def after(self, place: Place, number: int) -> str | None:
        """Which process took it next."""
        return next((row["process"] for row in self.taken[place] if row["number"] > number), None)


def audit_drivers(books: Books, logs: Logs) -> Iterator[str]:
    """Fences only grow, and what drivers write is written by who holds the fence."""
    holders = _Holders(books.fences)
    for place, taken in holders.taken.items():
        order = [row["number"] for row in taken]
        if len({row["fence"] for row in taken}) != len(taken) or order != sorted(order):
            yield f"{place}: the fences {[row['fence'] for row in taken]} were not taken in their order"
    writers = {(row["chain_id"], row["member"], row["seq"]): row for row in books.written}
    for place, log in logs.items():
        for event in log:
            if event["type"] not in BY_DRIVERS and event["data"].get("disposition") != "delivered":
                continue
            wrote = writers.get((*place, event["seq"]))
            if wrote is None:
                yield f"{place}: nobody saw who wrote event {event['seq']}"
                continue
            # a recovery is recorded right before its fence is taken
            holder = (
                holders.after(place, wrote["number"])
                if event["type"] == "EXECUTION_RECOVERED"
                else holders.at(place, "number", wrote["number"])
            )
            if holder != wrote["process"]:
                yield f"{place}: {wrote['process']} wrote event {event['seq']}, and {holder} held the fence"


def audit_effects(books: Books, logs: Logs) -> Iterator[str]:
    """Each recorded result is an effect of the process that recorded it; others are of processes that are excused."""
    writers = {(row["chain_id"], row["member"], row["seq"]): row["process"] for row in books.written}
    effects = {row["effect"]: row for row in books.effects}
    recorded: set[Any] = set()
    for place, log in logs.items():
        yield from _recorded(place, log, effects, writers, recorded)
    yield from _done(books, logs, recorded, writers)


def _recorded(
    place: Place, log: list[Row], effects: dict[Any, Row], writers: dict[Any, str], recorded: set[Any]
) -> Iterator[str]:
    """What is recorded was done, by that very try."""
    name = f"{place[0]}~{place[1]}" if place[1] else place[0]
    tries: Counter[int] = Counter()
    for event in log:
        data = event["data"]
        if event["type"] == "STEP_ATTEMPT_FAILED":
            tries[data["op"]] += 1
        output = data.get("output") if event["type"] == "STEP_COMPLETED" else None
        if not isinstance(output, dict) or "effect" not in output:
            continue
        number = output["effect"]
        effect = effects.get(number)
        if effect is None or number in recorded:
            which = "not there" if effect is None else "recorded before"
            yield f"{place}: the effect {number} of step {data['op']} is {which}"
            continue
        recorded.add(number)
        told = (effect["execution"], effect["step"], effect["attempt"], effect["process"])
        if told != (name, data["op"], tries[data["op"]] + 1, writers.get((*place, event["seq"]))):
            yield f"{place}: step {data['op']} is recorded with the effect of {told}"


def _done(books: Books, logs: Logs, recorded: set[Any], writers: dict[Any, str]) -> Iterator[str]:
    """What was done was done under the fence, and is recorded unless its process is excused."""
    holders = _Holders(books.fences)
    failed = {
        (id_of(event), event["data"]["op"], attempt, writers.get((*place, event["seq"])))
        for place, log in logs.items()
        for event, attempt in _failures(log)
    }
    control = holders.control(logs, books.written)
    over = {place: _over(log) for place, log in logs.items()}
    results = {
        place: {one["data"]["op"] for one in log if one["type"] in RESULTS} for place, log in logs.items()
    }
    for effect in books.effects:
        if not effect["step"]:  # of a held operation, or of no flow at all
            continue
        process, execution, step = effect["process"], effect["execution"], effect["step"]
        chain, _, member = execution.partition("~")
        place = (chain, member)
        shut_out = holders.shut_out(place, process, effect["began"], control)
        holder = process if shut_out else holders.at(place, "at", effect["began"])
        if holder != process and books.clocks_agree:
            yield f"{execution}: {process} did step {step}, and {holder} held the fence"
        told = effect["effect"] in recorded or (execution, step, effect["attempt"], process) in failed
        # what was under way when its flow ended is recorded nowhere; a cancelled one may have given up anything
        given_up = (
            shut_out
            or over.get(place) == "cancelled"
            or (over.get(place) == "ended" and step not in results[place])
        )
        if not told and not given_up and process not in books.excused:
            yield f"{execution}: {process} lives, and did step {step} in vain"


def _failures(log: list[Row]) -> Iterator[tuple[Row, int]]:
    """The tries that failed, each with its number."""
    tries: Counter[int] = Counter()
    for event in log:
        if event["type"] in ("STEP_ATTEMPT_FAILED", "STEP_FAILED"):
            tries[event["data"]["op"]] += 1
            yield event, tries[event["data"]["op"]]


def _is_control(event: Row) -> bool:
    forced = event["type"] == "EXECUTION_CANCELLED" and "principal" in event["data"]
    return forced or event["type"] == "EXECUTION_MIGRATED"


def _over(log: list[Row]) -> str | None:
    if any(event["type"] == "EXECUTION_CANCEL_REQUESTED" for event in log):
        return "cancelled"
    return "ended" if log and log[-1]["type"] in TERMINAL else None
