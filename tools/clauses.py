"""Prints which promises are kept: `make clauses`.

A line a clause, `kept|unproved|open <id> <number of tests>`, and last `<n> kept, <u> unproved, <m> open`.
Kept: a test marked with the clause passed in the last full run, and a killed mutant names it; unproved: the
test without the mutant; open: no such test. The runs leave their records in `.local`; a record that is
missing is made first. Exit code 0: printed; 2: there is nothing sound to print.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "pylib")]

from tools.clause_list import clause_ids, within  # noqa: E402
from tools.mutant_list import Mutant, load  # noqa: E402
from tools.pytest_run import RECORDER, search_path  # noqa: E402

TESTS = ROOT / ".local" / "clauses.json"
MUTANTS = ROOT / ".local" / "mutants.json"
_COMMANDS = {
    TESTS: ("make test", [sys.executable, "-m", "pytest", "-q", "--tb=short", "-n2", "-p", RECORDER]),
    MUTANTS: ("make mutants", [sys.executable, str(ROOT / "tools" / "mutants.py")]),
}


@dataclass(frozen=True)
class Standing:
    """How a clause stands.

    Parameters:
        clause: its id.
        passed: the marked tests that passed.
        failed: the marked tests that did anything else.
        mutants: the killed mutants that name it.
    """

    clause: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    mutants: tuple[str, ...]

    @property
    def word(self) -> str:
        """`kept`, `unproved` or `open`."""
        if not self.passed:
            return "open"
        return "kept" if self.mutants else "unproved"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    parser = argparse.ArgumentParser(
        description="Print which clauses of docs/clauses.md are kept, unproved or open."
    )
    parser.add_argument(
        "--part", action="append", default=[], help="only these, like H, H6 or H6.1 (may be repeated)"
    )
    parser.add_argument("--verbose", action="store_true", help="name the tests and mutants under each clause")
    parser.add_argument(
        "--no-run", action="store_true", help="fail rather than make a record that is missing"
    )
    options = parser.parse_args(arguments)
    try:
        ids = clause_ids()
        for path in (TESTS, MUTANTS):
            _provide(path, run=not options.no_run)
        mutants = load()
        results = _json(MUTANTS)["mutants"]
        _tell_untried(mutants, results)
        found = standings(ids, _json(TESTS)["tests"], results, mutants)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    chosen = [standing for standing in found if within(standing.clause, options.part)]
    for standing in chosen:
        print(f"{standing.word} {standing.clause} {len(standing.passed)}")
        if options.verbose:
            _explain(standing)
    count = {word: sum(standing.word == word for standing in chosen) for word in ("kept", "unproved", "open")}
    print(", ".join(f"{number} {word}" for word, number in count.items()))
    return 0


def standings(
    ids: Sequence[str],
    tests: Mapping[str, Mapping[str, Any]],
    results: Iterable[Mapping[str, Any]],
    mutants: Iterable[Mutant],
) -> list[Standing]:
    """How each clause stands.

    Parameters:
        ids: the clauses, in order.
        tests: by node id, `outcome` and `clauses`. A parametrised test counts once, and passed if all its
            cases did
            that are marked with the clause.
        results: of each mutant tried, `digest` and `killed`.
        mutants: the list as it is now; results of entries that have changed since count for nothing.

    Errors:
        ValueError: a test or a mutant names a clause that does not exist.
    """
    _refuse_unknown(ids, {test: result["clauses"] for test, result in tests.items()})
    mutants = list(mutants)
    _refuse_unknown(ids, {f"mutant {mutant.name!r}": mutant.clauses for mutant in mutants})
    cases: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for test, result in tests.items():
        for clause in result["clauses"]:
            cases[clause][test.partition("[")[0]].add(result["outcome"])
    killed = {result["digest"] for result in results if result["killed"]}
    return [
        Standing(
            clause,
            tuple(test for test, outcomes in cases[clause].items() if outcomes == {"passed"}),
            tuple(test for test, outcomes in cases[clause].items() if outcomes != {"passed"}),
            tuple(mutant.name for mutant in mutants if clause in mutant.clauses and mutant.digest in killed),
        )
        for clause in ids
    ]


def _refuse_unknown(ids: Iterable[str], named: Mapping[str, Iterable[str]]) -> None:
    known = set(ids)
    unknown = [
        f"{clause} (in {where})"
        for where, clauses in named.items()
        for clause in clauses
        if clause not in known
    ]
    if unknown:
        raise ValueError(f"docs/clauses.md lists no such clause: {', '.join(sorted(unknown))}")


def _provide(path: Path, *, run: bool) -> None:
    """Make a record that is missing; warn of one that is older than what it is about."""
    what, command = _COMMANDS[path]
    if not path.exists():
        if not run:
            raise FileNotFoundError(
                f"there is no {path.relative_to(ROOT)} yet: run `{what}` first, all of it"
            )
        print(f"no {path.relative_to(ROOT)} yet, so first what `{what}` does", file=sys.stderr)
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, **search_path(ROOT)}, stdout=sys.stderr, check=False
        )
        if not path.exists():
            raise FileNotFoundError(f"the run left no {path.relative_to(ROOT)}: see above, then run `{what}`")
    elif _newest() > path.stat().st_mtime:
        print(
            f"note: files have changed since {path.relative_to(ROOT)} was made; `{what}` renews it",
            file=sys.stderr,
        )


def _tell_untried(mutants: Sequence[Mutant], results: Sequence[Mapping[str, Any]]) -> None:
    """Warn of mutants that no run has tried as they are written now."""
    tried = {result["digest"] for result in results}
    untried = sum(mutant.digest not in tried for mutant in mutants)
    if untried:
        print(
            f"note: {untried} of {len(mutants)} mutants are untried; `make mutants` tries them",
            file=sys.stderr,
        )


def _newest() -> float:
    rooms = [ROOT / room for room in ("pylib", "sql", "triggers", "migrations", "tests", "docs/clauses.md")]
    files = [path for room in rooms for path in ([room] if room.is_file() else room.rglob("*.*"))]
    return max(
        path.stat().st_mtime
        for path in files
        if path.suffix in (".py", ".sql", ".toml", ".md", ".json", ".txt")
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _explain(standing: Standing) -> None:
    for word, names in (
        ("passed", standing.passed),
        ("not passed", standing.failed),
        ("killed", standing.mutants),
    ):
        for name in names:
            print(f"    {word}: {name}")


if __name__ == "__main__":
    sys.exit(main())
