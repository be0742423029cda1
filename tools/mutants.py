"""Removes the guards of tests/mutants.toml one at a time and sees whether the tests notice: `make mutants`.

Prints a line a mutant and last `N mutants, M killed, K survived`. Leaves `.local/mutants.json` for `make
clauses`. Exit code 0: all killed; 1: some survived; 2: the list cannot be read.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "pylib")]

from tools.clause_list import clause_ids  # noqa: E402
from tools.mutant_list import Mutant, flaws, load  # noqa: E402
from tools.mutant_runner import Verdict, Workshop, workshops  # noqa: E402

RECORD = ROOT / ".local" / "mutants.json"
# A baseline that runs this long hangs.
_BASELINE_SECONDS = 1800.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        everything = load()
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    chosen = select(remaining(everything) if options.remaining else everything, options.only, options.shard)
    verdicts: dict[str, Verdict] = {}
    if chosen:
        with workshops(ROOT, max(1, min(options.jobs, len(chosen)))) as places:
            for mutant, verdict in try_all(chosen, places):
                verdicts[mutant.name] = verdict
                print(_line(len(verdicts), len(chosen), mutant, verdict), flush=True)
    record(everything, verdicts)
    return _conclude(verdicts)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Remove each guard of tests/mutants.toml alone; its tests must fail."
    )
    parser.add_argument(
        "--only",
        metavar="SUBSTRING",
        action="append",
        help="mutants whose name, or (with a slash in it) file, contains this",
    )
    parser.add_argument(
        "--remaining", action="store_true", help="only what no run has killed yet as it is written now"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at a time (default 2)")
    parser.add_argument(
        "--shard", metavar="I/N", type=_shard, default=(1, 1), help="the I-th of N parts of the list"
    )
    return parser.parse_args(arguments)


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"expected I/N with 1 <= I <= N, found {text!r}")
    return int(part), int(parts)


def select(mutants: Sequence[Mutant], only: Sequence[str] | None, shard: tuple[int, int]) -> list[Mutant]:
    """The mutants to try.

    Parameters:
        mutants: the whole list.
        only: texts of which one occurs in the name or, if it has a slash, in the file; None for all.
        shard: (i, n): every n-th of these, beginning with the i-th, from 1.
    """
    wanted = [
        m
        for m in mutants
        if not only or any(text in m.name or ("/" in text and text in m.file) for text in only)
    ]
    part, parts = shard
    return wanted[part - 1 :: parts]


def remaining(mutants: Sequence[Mutant], path: Path = RECORD) -> list[Mutant]:
    """The mutants that no run has killed as they are written now.

    Parameters:
        mutants: the whole list.
        path: the record of the runs.
    """
    before = _read(path)
    return [m for m in mutants if not before.get(m.digest, {"killed": False})["killed"]]


def try_all(mutants: Sequence[Mutant], places: Sequence[Workshop]) -> Iterator[tuple[Mutant, Verdict]]:
    """Try each mutant; those that cannot be tried, or whose tests fail as it is, come first, as errors.

    Parameters:
        mutants: the mutants to try.
        places: where; as many are tried at a time.
    """
    ids = set(clause_ids())
    tests = places[0].run("--collect-only", "-q", "-n0", timeout=_BASELINE_SECONDS).clauses()
    sound: list[Mutant] = []
    for mutant in mutants:
        found = "; ".join(flaws(mutant, places[0].root, ids, tests))
        if found:
            yield mutant, Verdict("error", found)
        else:
            sound.append(mutant)
    seconds = _baseline(sound, places) if sound else {}
    ready: list[tuple[float, Mutant]] = []
    for mutant in sound:
        red = [test for test in tests if mutant.names(test) and test not in seconds]
        if red:
            yield mutant, Verdict("error", f"without the edit, too, {red[0]} does not pass")
        else:
            ready.append((sum(taken for test, taken in seconds.items() if mutant.names(test)), mutant))
    yield from _in_parallel(sorted(ready, key=lambda pair: -pair[0]), places)


def _baseline(mutants: Sequence[Mutant], places: Sequence[Workshop]) -> dict[str, float]:
    """Seconds that each named test takes; tests that fail are left out."""
    names = sorted({name for mutant in mutants for name in mutant.tests})
    run = places[0].run("-q", "--tb=short", f"-n{len(places)}", *names, timeout=_BASELINE_SECONDS)
    red = [test for test, result in run.tests.items() if result["outcome"] not in ("passed", "skipped")]
    print(f"without edits: {len(run.tests)} tests of {len(mutants)} mutants, {len(red)} red", flush=True)
    if run.exit != 0:
        print(run.output, file=sys.stderr)
    return {test: result["seconds"] for test, result in run.tests.items() if result["outcome"] == "passed"}


def _in_parallel(
    mutants: Sequence[tuple[float, Mutant]], places: Sequence[Workshop]
) -> Iterator[tuple[Mutant, Verdict]]:
    free: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    for place in places:
        free.put(place)

    def try_one(mutant: Mutant, usual_seconds: float) -> Verdict:
        place = free.get()
        try:
            return place.try_out(mutant, usual_seconds)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        running = {pool.submit(try_one, mutant, usual): mutant for usual, mutant in mutants}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def record(everything: Sequence[Mutant], verdicts: Mapping[str, Verdict], path: Path = RECORD) -> None:
    """Keep the verdicts, beside those of earlier runs on entries that have not changed since.

    Parameters:
        everything: the whole list.
        verdicts: what this run found.
        path: the record.
    """
    before = _read(path)
    kept: list[dict[str, Any]] = []
    for mutant in everything:
        verdict = verdicts.get(mutant.name)
        if verdict:
            kept.append(
                {
                    "name": mutant.name,
                    "killed": verdict.killed,
                    "outcome": verdict.outcome,
                    "clauses": list(mutant.clauses),
                    "digest": mutant.digest,
                }
            )
        elif mutant.digest in before:
            kept.append(before[mutant.digest])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mutants": kept}, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {entry["digest"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))["mutants"]}


def _line(number: int, count: int, mutant: Mutant, verdict: Verdict) -> str:
    return f"[{number:3}/{count}] {verdict.outcome:8} {mutant.name} ({verdict.seconds} s; {verdict.detail})"


def _conclude(verdicts: Mapping[str, Verdict]) -> int:
    survivors = {name: verdict for name, verdict in verdicts.items() if not verdict.killed}
    if survivors:
        print("\nNot killed:")
        for name, verdict in sorted(survivors.items()):
            print(f"  {verdict.outcome:8} {name}: {verdict.detail.splitlines()[0]}")
    print(f"{len(verdicts)} mutants, {len(verdicts) - len(survivors)} killed, {len(survivors)} survived")
    return 1 if survivors or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
