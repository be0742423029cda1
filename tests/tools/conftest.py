"""A small repository on which the tools are run from outside."""

import shutil
from pathlib import Path

import pytest

from tools.clause_list import ROOT

CLAUSES = """\
- **H1.1a** one promise
- **H1.1b** another
- **H1.2** a third
- **E1** a promise of later
"""
CODE = """\
def halve(number):
    if number % 2:
        raise ValueError("odd")
    return number // 2
"""
TESTS = """\
import pytest
from code_under_test import halve

@pytest.fixture
def four():
    return halve(8)

@pytest.mark.clause("H1.1a")
def test_odd():
    with pytest.raises(ValueError):
        halve(3)

@pytest.mark.clause("H1.1b", "H1.2")
@pytest.mark.parametrize("number", [2, 4])
def test_even(number):
    assert halve(number) * 2 == number

@pytest.mark.clause("E1")
def test_fixture(four):
    assert four == 4
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one module, three tests, the clause recorder and these tools."""
    # most of pytest's start is plugins that this repository does without
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    root = tmp_path / "repository"
    shutil.copytree(ROOT / "tools", root / "tools")
    shutil.copytree(ROOT / "tests" / "plugins", root / "tests" / "plugins")
    (root / "docs").mkdir()
    (root / "pylib").mkdir()
    (root / "docs" / "clauses.md").write_text(CLAUSES)
    (root / "pylib" / "code_under_test.py").write_text(CODE)
    (root / "tests" / "test_code.py").write_text(TESTS)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    return root
