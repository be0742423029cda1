"""The worked example of README.md's "Executions, from any client", run as it is printed, as the logins it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from underseal.testing import TestDatabase

README = Path(__file__).parents[2] / "README.md"
WORD = "abcdefghijklmnopqrstuvwxyz_"
ACCESS = {"shop_service": "client", "shop_worker": "worker"}


def example() -> list[tuple[str, str, str, int | None]]:
    """Its statements: who runs it, the text, the outcome and the fence that the comment behind it promises."""
    section = (
        README.read_text(encoding="utf-8")
        .partition("## Executions, from any client\n")[2]
        .partition("\n## ")[0]
    )
    (block,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    found: list[tuple[str, str, str, int | None]] = []
    for part in re.split(r"^-- (?=shop_)", block, flags=re.MULTILINE)[1:]:
        login = part[: len(part) - len(part.lstrip(WORD))]
        told = part.partition("\n")[2]
        found += [
            (login, said[1].strip(), said[2], int(said[3]) if said[3] else None)
            for said in re.finditer(r"(.+?);\s*-- (\w+)(?:, fence (\d+))?\n", told, re.DOTALL)
        ]
        assert told.count(";") == len(re.findall(r";\s*-- \w+", told)), (
            "a statement whose outcome is not told"
        )
    return found


def test_the_worked_example_does_what_its_comments_say(
    database: TestDatabase, logins: dict[str, str]
) -> None:
    statements = example()
    assert {login for login, *_ in statements} == set(ACCESS)
    assert len(statements) == 11
    for login, statement, outcome, fence in statements:
        rows = database.connect(logins[ACCESS[login]]).execute(statement.encode()).fetchall()
        assert rows, statement
        assert {row["outcome"] for row in rows} == {outcome}, (statement, rows)
        if fence is not None:
            assert [row["fence"] for row in rows] == [fence], statement
    (found,) = rows
    assert (found["execution_id"], found["status"]) == ("order-17", "completed")


@pytest.mark.parametrize("login", ACCESS)
def test_its_logins_are_granted_their_accesses_above_it(login: str) -> None:
    granted = f"underseal.grant_access('{login}', '{ACCESS[login]}')"
    assert granted in README.read_text(encoding="utf-8").partition("## Executions, from any client")[0]
