"""The worked examples of README.md's sections on executions and flows, run as they are printed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from underseal import AsyncUnderseal, ExecutionFailed, FileKeyRing, MemoryKeyRing, Underseal
from underseal.testing import TestDatabase

README = Path(__file__).parents[2] / "README.md"
WORD = "abcdefghijklmnopqrstuvwxyz_"
ACCESS = {"shop_service": "client", "shop_worker": "worker"}


def section(title: str) -> str:
    """What stands under a heading."""
    told = README.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert told
    return told


def example() -> list[tuple[str, str, str, int | None]]:
    """Its statements: who runs it, the text, the outcome and the fence that the comment behind it promises."""
    (block,) = re.findall(r"```sql\n(.*?)```", section("Executions, from any client"), re.DOTALL)
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


@pytest.mark.clause("E6a", "E6b")
async def test_the_flow_does_what_its_comments_say(database: TestDatabase, tmp_path: Path) -> None:
    written, used = re.findall(r"```python\n(.*?)```", section("Flows, in Python"), re.DOTALL)
    ring = FileKeyRing(tmp_path / "keys")
    called: list[str] = []

    def fetch_quote(order: str) -> int:
        called.append("quote")
        if len(called) < 2:
            raise OSError("not yet")
        return 12

    async def charge(order: str, cents: int) -> str:
        called.append(f"charge {cents}")
        return f"receipt {order}"

    with Underseal(database.conninfo, keys=ring) as us:
        names: dict[str, Any] = {"us": us, "fetch_quote": fetch_quote, "charge": charge}
        exec(written, names)
        told = re.fullmatch(r"(.*\n)(us\.executions\.result\(.*?\))\s*# -> (.*)\n", used, re.DOTALL)
        assert told is not None
        async with AsyncUnderseal(database.conninfo, keys=ring) as worker:
            worker.serve(names["onboard"])
            async with worker.runtime():
                await asyncio.to_thread(exec, told[1], names)
                got = await asyncio.wait_for(asyncio.to_thread(eval, told[2], names), 30)
    assert repr(got) == told[3]
    assert called == ["quote", "quote", "charge 12"]


async def test_the_test_of_a_flow_in_its_page_is_one(database: TestDatabase) -> None:
    page = (README.parent / "docs" / "flow.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page.partition("\n## Testing a flow\n")[2], re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    await names["test_a_reminder"](database)


async def test_the_first_flow_of_its_page_is_one(database: TestDatabase) -> None:
    page = (README.parent / "docs" / "flow.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, Any] = {"fetch_quote": lambda order: f"quote for {order}"}
    exec(block, names)
    async with AsyncUnderseal(database.conninfo, keys=MemoryKeyRing()) as us:
        us.serve(names["onboard"])
        async with us.runtime() as runtime:
            order = await runtime.start("onboard", "ann", {"id": "o-77"})
            await us.executions.send(order, "decision", {"yes": True}, "ann")
            with pytest.raises(ExecutionFailed, match=r"payment\.send"):  # nobody here can hold it
                await asyncio.wait_for(runtime.result(order), 30)
