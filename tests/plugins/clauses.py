"""Records which clauses the tests pin, and how the tests went.

A test names its clauses with `@pytest.mark.clause("H4.1a", …)`; an id that docs/clauses.md does not list
fails the test. A full run (nothing left out, nothing stopped early) leaves `.local/clauses.json`, which `make
clauses` reads:

    {"full": true, "exit": 0, "tests": {"<node id>": {"outcome": …, "clauses": […], "seconds": …}}}

with outcome `passed`, `failed`, `error` (a fixture failed), `skipped` or `not-run`. A run of some of the
tests leaves that file alone. Where the environment names a file in UNDERSEAL_TEST_REPORT, every run writes
the same there instead. Under pytest-xdist the controller writes, from the reports that the workers send.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.clause_list import CLAUSES, clause_ids
from tools.pytest_run import REPORT_VARIABLE

RECORD = Path(".local") / "clauses.json"
# What pyproject.toml leaves out of every ordinary run.
ORDINARY = "not soak"
_PROPERTY = "clauses"
_SELECTING = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "collectonly", "stepwise")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(*ids): the promises of docs/clauses.md that this test pins")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), "underseal-clause-recorder")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties.append((_PROPERTY, sorted(set(_clauses(item)))))


def pytest_runtest_setup(item: pytest.Item) -> None:
    unknown = sorted(set(_clauses(item)).difference(clause_ids()))
    if unknown:
        pytest.fail(
            f"unknown clause {', '.join(map(str, unknown))}: "
            f"{CLAUSES.name} lists no such id (a split clause is named by its parts, like H4.1a)",
            pytrace=False,
        )


def _clauses(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("clause"):
        yield from marker.args


class Recorder:
    """Gathers reports in the process that started the run, and writes them when it ends.

    Parameters:
        config: the run's configuration, which tells whether it is a full one.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._tests[item.nodeid] = {
                "outcome": "not-run",
                "clauses": sorted(set(_clauses(item))),
                "seconds": 0.0,
            }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests.setdefault(report.nodeid, {"outcome": "not-run", "clauses": [], "seconds": 0.0})
        test["clauses"] = dict(report.user_properties).get(_PROPERTY, test["clauses"])
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.failed:
            if test["outcome"] != "failed":
                test["outcome"] = "failed" if report.when == "call" else "error"
        elif report.skipped or hasattr(report, "wasxfail"):
            test["outcome"] = "skipped"
        elif report.when == "call":
            test["outcome"] = "passed"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        full = is_full_run(self._config, session, int(exitstatus))
        named = os.environ.get(REPORT_VARIABLE)
        if named or full:
            _write(
                Path(named) if named else self._config.rootpath / RECORD,
                {"full": full, "exit": int(exitstatus), "tests": self._tests},
            )


def is_full_run(config: pytest.Config, session: pytest.Session, exitstatus: int) -> bool:
    """Whether every test of the suite was selected and had its turn.

    Parameters:
        config: the run's configuration.
        session: the session that ends.
        exitstatus: what it ends with; above 1 it was broken off, or nothing ran.
    """
    if exitstatus > 1 or session.shouldstop or session.shouldfail:
        return False
    if any(config.getoption(option, None) for option in _SELECTING):
        return False
    if config.getoption("markexpr") not in ("", ORDINARY):
        return False
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return True
    everything = {config.rootpath, *(config.rootpath / path for path in config.getini("testpaths"))}
    return any(
        Path(config.invocation_params.dir, argument).resolve() in everything for argument in config.args
    )


def _write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    unfinished.replace(path)
