"""The second half of `make demo`: an agent that survives its workers, and whose dangerous call waits for a person."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from examples.accounts.tell import Teller
from examples.agent.stage import LEASE, Stage, stage, until
from underseal.cli import main as underseal
from underseal.foundation.server import THROWAWAY, embedded_server

CUSTOMER = "dana"


@click.command()
def demo() -> None:
    """Watch an agent plan, ask, wait for an approval, and survive the death of every worker that drives it."""
    tell = Teller()
    with tempfile.TemporaryDirectory(prefix="underseal-agent-") as directory:
        place = Path(directory)
        with embedded_server(place / "data", THROWAWAY) as server, stage(server, place) as on:
            play(on, tell)


def play(on: Stage, tell: Teller) -> None:
    """The story, each part with what it expects."""
    tell.scene(
        1,
        "An agent, and workers that die",
        "A flow handles a ticket: it plans, looks things up, asks the customer, has a refund held, writes a mail.",
    )
    ticket = {"from": CUSTOMER, "order": "o-77", "text": "I was charged twice!"}
    execution_id = on.executions.start("support", CUSTOMER, ticket, execution_id="ticket-4711")
    tell.does(CUSTOMER, "opens a ticket", f"execution {execution_id}")

    worker = on.start_worker()
    tell.does("a worker", "takes it, plans, and runs the harmless tools as steps", None)
    until(lambda: "STEP_COMPLETED" in on.types(execution_id), "a step is recorded")
    worker.kill()
    worker.wait()
    tell.does(
        "somebody",
        "kills it with SIGKILL, in the middle",
        f"{len(on.types(execution_id))} events are in the log",
    )

    worker = on.start_worker()
    tell.does(
        "another worker",
        f"takes over once the claim of {LEASE} s has run out, and serves what was recorded",
        None,
    )
    until(lambda: on.waits_for(execution_id) == "person", "the agent waits for the customer")
    tell.fact("the agent has asked which payment is meant, and is parked: no process holds it")

    worker.kill()
    worker.wait()
    tell.does("somebody", "kills that one too, while it waits", None)
    on.executions.send(execution_id, "person", {"text": "p-2, please"}, CUSTOMER)
    tell.does(CUSTOMER, "answers while no worker is running", "the message waits in the inbox")
    worker = on.start_worker()
    until(lambda: (on.waits_for(execution_id) or "").startswith("$hold/"), "the refund is held")
    tell.does("a third worker", "goes on: paying back is dangerous, so it is held, and the agent waits", None)

    worker.kill()
    worker.wait()
    tell.does("somebody", "kills the third worker as well", None)
    with on.approver() as nina:
        (operation,) = nina.list("nina")
        tell.shows(operation)
        vote = nina.approve(operation, "nina", "charged twice indeed")
    tell.does("nina", "approves exactly that, from her own login, with the decision key alone", vote.message)
    on.start_worker()
    result = on.executions.result(execution_id, CUSTOMER)
    tell.does(
        "a fourth worker",
        "runs the refund, tells the flow in the same transaction, writes the mail",
        result["answer"],
    )

    tell.line("$ underseal exec show ticket-4711 --principal dana")
    underseal(
        ["exec", "show", execution_id, "--principal", CUSTOMER, "--dsn", on.dsn("agent_service")],
        standalone_mode=False,
    )
    paid = on.db.execute("select count(*) as n from shop.effect where what = 'refund.pay'").fetchone()
    mails = on.db.execute("select count(*) as n from shop.mail").fetchone()
    assert paid == {"n": 1}, paid
    assert mails == {"n": 1}, mails
    tell.fact("four workers, three of them killed: one refund, one mail, one answer")


if __name__ == "__main__":
    demo()
