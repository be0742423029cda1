"""The runs of held operations: what bodies did is what is recorded, once, and nobody guesses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from underseal.testing.audit.books import Books, Row
from underseal.testing.audit.held import ENDS, Timelines, event_of

_RUNNING = {"EXECUTING", "SUCCEEDED", "FAILED", "OUTCOME_UNKNOWN"}
"""In one of these states a body may have been run."""


def audit_runs(books: Books, timelines: Timelines) -> Iterator[str]:
    """What is wrong with the runs."""
    operations = {str(row["operation_id"]): row for row in books.operations}
    asked = {str(row["operation_id"]): row["params"] for row in books.asked}
    runs: dict[str, list[Row]] = defaultdict(list)
    for run in books.runs or ():
        runs[str(run["operation_id"])].append(run)
    for name in sorted(runs.keys() - operations.keys()):
        yield f"{name}: was run, and is not there"
    for name, row in operations.items():
        yield from (f"{name}: {fault}" for fault in _ended_by(books, row, timelines[name]))
        if books.runs is not None:
            yield from (f"{name}: {fault}" for fault in _recorded(row, runs[name]))
        for run in runs[name]:
            yield from (f"{name}: {fault}" for fault in _claimed(books, run, timelines[name]))
            if run.get("principal", row["requester"]) != row["requester"]:
                yield f"{name}: {row['requester']} asked for it, and it was run as {run['principal']}"
            if name in asked and run["params"] != asked[name]:
                yield f"{name}: {asked[name]} was asked for, and {run['params']} was run"


def _recorded(row: Row, runs: list[Row]) -> Iterator[str]:
    """What is recorded as done was done, once; what is recorded as not done was not."""
    who = [run["process"] for run in runs]
    if len(runs) > 1:
        yield f"was run {len(runs)} times, by {who}"
    if row["state"] == "SUCCEEDED" and not runs:
        yield "is recorded as done, and nobody did it"
    if runs and row["state"] not in _RUNNING:
        yield f"is recorded as {row['state']}, and {who[0]} did it"


def _claimed(books: Books, run: Row, timeline: list[Row]) -> Iterator[str]:
    """It was run by who had claimed it, after the claim and before the end."""
    who, claimed = run["process"], event_of(timeline, "claimed")
    if claimed is None:
        yield f"{who} did it, and nobody had claimed it"
        return
    if claimed["process"] != who:
        yield f"{who} did it, and {claimed['process']} had claimed it"
        return
    if run["at"] < claimed["at"]:
        yield f"{who} did it before it was claimed"
    end = next((one for one in timeline if one["to_state"] in ENDS), None)
    if end is not None and end["at"] < run["at"] and who not in books.excused:
        yield f"{who} did it after its end"


def _ended_by(books: Books, row: Row, timeline: list[Row]) -> Iterator[str]:
    """Only who had claimed it says how it went; of others' runs nobody knows."""
    unseen = [event["seq"] for event in timeline if event["process"] is None]
    if unseen:
        yield f"nobody saw who wrote the events {unseen}"
    claimed = event_of(timeline, "claimed")
    end = event_of(timeline, "succeeded", "failed", "refused")
    if claimed and end and end["process"] != claimed["process"]:
        yield f"{end['process']} says that it {end['type']}, and {claimed['process']} had claimed it"
    lost = row["state"] == "OUTCOME_UNKNOWN" and row["outcome_reason"] == "lease-lost"
    if claimed and lost and claimed["process"] not in books.excused:
        yield f"{claimed['process']} lives, and its run is given up"
