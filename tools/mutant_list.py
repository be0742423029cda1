"""tests/mutants.toml: every guard of the code, as the edit that removes it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.clause_list import ROOT

MUTANTS = ROOT / "tests" / "mutants.toml"
KINDS = ("test", "install")
_KEYS = {"name", "file", "find", "replace", "tests", "clauses", "kills", "timeout"}
_REQUIRED = {"name", "file", "find", "replace", "tests"}


@dataclass(frozen=True)
class Mutant:
    """One edit, and the tests that must notice it.

    Parameters:
        name: unique, `room: guard`.
        file: the file to edit, relative to the root of the repository.
        find: text that occurs there exactly once.
        replace: what it becomes.
        tests: node ids, or files or classes of tests.
        clauses: the promises that the guard serves; may be none.
        kills: `test`, or `install` where the edit shows by making a fixture (the install of the kernel) fail.
        timeout: seconds that the tests may take with the edit; reckoned from their usual time if None.
    """

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    clauses: tuple[str, ...] = ()
    kills: str = "test"
    timeout: float | None = None

    @property
    def digest(self) -> str:
        """Identifies this very edit with these tests: a result of an older wording is not its own."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()

    def names(self, test: str) -> bool:
        """Whether it names a test: by its node id, its parametrised function, its class, file or folder."""
        return any(named(test, name) for name in self.tests)


def named(test: str, name: str) -> bool:
    """Whether a node id is, or lies in, what `name` names."""
    return test == name or test.startswith((f"{name}[", f"{name}::", f"{name.rstrip('/')}/"))


def load(path: Path = MUTANTS) -> list[Mutant]:
    """Read the list.

    Errors:
        ValueError: an entry lacks a key, has an unknown one or one of a wrong type, or a name is taken twice.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    mutants = [_mutant(path, entry) for entry in entries]
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: names used twice: {', '.join(twice)}")
    return mutants


def _mutant(path: Path, entry: dict[str, Any]) -> Mutant:
    problems = [f"lacks {key}" for key in sorted(_REQUIRED.difference(entry))]
    problems += [f"has the unknown key {key}" for key in sorted(set(entry).difference(_KEYS))]
    problems += [
        f"{key}: expected a text"
        for key in ("name", "file", "find", "replace", "kills")
        if not isinstance(entry.get(key, ""), str)
    ]
    for key in ("tests", "clauses"):
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            problems.append(f"{key}: expected a list of texts")
    if not isinstance(entry.get("timeout", 1), int | float):
        problems.append("timeout: expected seconds")
    if entry.get("kills", "test") not in KINDS:
        problems.append(f"kills: expected one of {', '.join(KINDS)}")
    if problems:
        raise ValueError(f"{path}: mutant {entry.get('name', 'without a name')!r}: {'; '.join(problems)}")
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return Mutant(**given)


def mutated(mutant: Mutant, source: str) -> str:
    """The file's text with the edit made.

    Errors:
        ValueError: `find` does not occur exactly once, or the edit changes nothing.
    """
    found = source.count(mutant.find) if mutant.find else 0
    if found != 1:
        raise ValueError(f"expected `find` exactly once in {mutant.file}, found it {found} times")
    if mutant.find == mutant.replace:
        raise ValueError("`find` and `replace` are the same")
    return source.replace(mutant.find, mutant.replace)


def flaws(
    mutant: Mutant, root: Path, clauses: Collection[str], tests: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """What keeps an entry from being run: each flaw in words.

    Parameters:
        mutant: the entry.
        root: the repository.
        clauses: the ids that exist.
        tests: the node ids that exist, each with the clauses it is marked with.
    """
    try:
        path = root / mutant.file
        mutated(mutant, path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield str(error)
    if not mutant.tests:
        yield "names no tests"
    for name in mutant.tests:
        if not any(named(test, name) for test in tests):
            yield f"names the test {name}, which does not exist"
    for clause in mutant.clauses:
        if clause not in clauses:
            yield f"names the clause {clause}, which docs/clauses.md does not list"
        elif not any(mutant.names(test) and clause in marked for test, marked in tests.items()):
            yield f"names the clause {clause}, with which none of its tests is marked"
