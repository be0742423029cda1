"""A place where mutants are tried: a copy of the repository and a Postgres of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tools.mutant_list import Mutant, mutated
from tools.pytest_run import Run, run_pytest
from underseal.foundation.server import THROWAWAY, embedded_server
from underseal.testing import in_memory

DSN_VARIABLE = "UNDERSEAL_TEST_DSN"
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".local", ".hypothesis", ".*_cache", "__pycache__", "build", "dist", "out"
)
# A mutant may be slower than the code it spoils; past this it hangs.
_START_SECONDS = 45.0
_SLOWER = 5.0


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Parameters:
        outcome: `killed` (a test failed), `timeout` (the tests hung, which counts as killed), `survived`, or
            `error` (the edit could not be tried, or broke more than a test; counts as survived).
        detail: the test that failed, or what went wrong.
        seconds: how long it took.
    """

    outcome: str
    detail: str
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether the mutant was noticed."""
        return self.outcome in ("killed", "timeout")


class Workshop:
    """Tries one mutant at a time.

    Parameters:
        root: a copy of the repository, edited and restored for each mutant.
        dsn: a superuser's connection string, for the tests.
        owned: whether the server is this workshop's own, so that databases left behind may be dropped.
    """

    def __init__(self, root: Path, dsn: str, *, owned: bool) -> None:
        self.root = root
        self._dsn = dsn
        self._owned = owned
        self._tick = int(time.time())

    def run(self, *arguments: str, timeout: float | None = None) -> Run:
        """Run pytest here."""
        return run_pytest(self.root, arguments, environment={DSN_VARIABLE: self._dsn}, timeout=timeout)

    def try_out(self, mutant: Mutant, usual_seconds: float) -> Verdict:
        """Make the edit, run the mutant's tests until one fails, and undo the edit.

        Parameters:
            mutant: a mutant without flaws.
            usual_seconds: how long its tests take on the code as it is.
        """
        began = time.monotonic()
        timeout = mutant.timeout or _START_SECONDS + _SLOWER * usual_seconds
        path = self.root / mutant.file
        original = path.read_bytes()
        try:
            self._write(path, mutated(mutant, original.decode()).encode())
            run = self.run("-x", "-q", "-n0", *mutant.tests, timeout=timeout)
        finally:
            self._write(path, original)
        if run.exit is None:
            self._drop_leftovers()
        outcome, detail = judge(mutant, run, timeout)
        return Verdict(outcome, detail, round(time.monotonic() - began, 1))

    def _write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        # Python knows compiled code as current by size and whole seconds of age; a mutant can have both
        # unchanged
        self._tick += 1
        os.utime(path, (self._tick, self._tick))

    def _drop_leftovers(self) -> None:
        if not self._owned:
            return
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(
                "update pg_database set datistemplate = false where datname !~ '^(postgres|template[01])$'"
            )
            names = connection.execute(
                "select datname from pg_database where datname !~ '^(postgres|template[01])$'"
            )
            for (name,) in names.fetchall():
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def judge(mutant: Mutant, run: Run, timeout: float) -> tuple[str, str]:
    """What a run of the mutant's tests says about it: the outcome and the detail of a Verdict.

    Parameters:
        mutant: says how it may show.
        run: the run.
        timeout: the seconds it was given.
    """
    failed = _with(run.tests, "failed")
    broken = _with(run.tests, "error")
    if run.exit is None:
        return "timeout", f"no end after {timeout:.0f} s"
    if run.exit == 0:
        return "survived", "the tests passed"
    if run.exit == 1 and failed:
        return "killed", failed[0]
    if mutant.kills == "install":
        return "killed", broken[0] if broken else f"pytest ended with {run.exit}"
    tail = "\n".join(run.output.strip().splitlines()[-25:])
    cause = f"a fixture of {broken[0]} failed" if broken else f"pytest ended with {run.exit}"
    return "error", f'{cause}, no test did (kills = "install" if that is the point)\n{tail}'


def _with(tests: Mapping[str, Mapping[str, Any]], outcome: str) -> list[str]:
    return [test for test, result in tests.items() if result["outcome"] == outcome]


@contextmanager
def workshops(root: Path, count: int) -> Iterator[list[Workshop]]:
    """Copies of the repository with a server each, removed at the end; UNDERSEAL_TEST_DSN names one server
    for all.

    Parameters:
        root: the repository, which is only read.
        count: how many.
    """
    given = os.environ.get(DSN_VARIABLE)
    with ExitStack() as stack:
        made = []
        for number in range(count):
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="underseal-mutants-", dir=in_memory()))
            )
            copy = Path(shutil.copytree(root, folder / "repository", ignore=_LEFT_OUT, symlinks=True))
            dsn = (
                given or stack.enter_context(embedded_server(folder / f"data{number}", THROWAWAY)).conninfo()
            )
            made.append(Workshop(copy, dsn, owned=given is None))
        yield made
