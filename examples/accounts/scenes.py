"""The scenes of the demo. Each ends with what it expects; a surprise ends the demo with an error."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import psycopg

from examples.accounts.service import Accounts
from examples.accounts.stage import HERE, Stage
from examples.accounts.tell import Teller
from underseal import Principal, RunReport, VoteOutcome
from underseal.foundation.server import binaries

Scene = Callable[[Stage, Teller], UUID]


def approved(stage: Stage, tell: Teller) -> UUID:
    """A closure is requested, approved, and run once as the requester."""
    held, dana = stage.request("close-ada")
    tell.does("dana", "asks to close Ada's account", "requests/close-ada.json")
    tell.shows(stage.accounts.us.get(held, dana))
    with stage.approver("fred") as fred:
        operation = fred.get(held, "fred")
        assert operation is not None
        vote = fred.approve(operation, "fred", "the account is empty")
    tell.does("fred", "approves exactly that, from his own login, with the decision key alone", vote.message)
    report = stage.accounts.us.run(held)
    tell.does(
        "a worker",
        "runs it under the database role of the requester, row-level security and all",
        report.outcome,
    )
    account = stage.admin.execute("select status, closed_by from app.account where id = 1").fetchone()
    tell.fact(f"app.account says {account}")
    return expect(stage, tell, held.operation_id, "SUCCEEDED")


def rejected(stage: Stage, tell: Teller) -> UUID:
    """A payout is requested and rejected: nothing happens, and the requester reads why."""
    held, _ = stage.request("payout-harbour")
    tell.does("dana", "asks to pay Harbour Ltd 9,900.00", "requests/payout-harbour.json")
    with stage.approver("gina") as gina:
        operation = gina.get(held, "gina")
        assert operation is not None
        gina.reject(operation, "gina", "we owe them a tenth of that")
    tell.does("gina", "rejects it", "we owe them a tenth of that")
    return expect(stage, tell, held.operation_id, "REJECTED")


def expired(stage: Stage, tell: Teller) -> UUID:
    """Nobody decides within the day that the policy gives."""
    held, _ = stage.request("payout-mill")
    stage.later(hours=25)
    tell.passes("25 hours")
    with stage.approver("fred") as fred:
        operation = fred.get(held, "fred")
        assert operation is not None
        late = fred.approve(operation, "fred")
    assert (late.outcome, late.reason) == ("conflict", "expired"), late
    tell.does("fred", "comes too late", late.message)
    stage.accounts.us.sweep()
    return expect(stage, tell, held.operation_id, "EXPIRED")


def self_approval(stage: Stage, tell: Teller) -> UUID:
    """An approver asks for something and cannot approve it himself."""
    held, fred_asks = stage.request("payout-fred")
    with stage.approver("fred") as fred:
        operation = stage.accounts.us.get(held, fred_asks)
        assert operation is not None
        vote = fred.approve(operation, "fred")
    assert (vote.outcome, vote.reason) == ("conflict", "self-approval"), vote
    tell.does("fred", "asks for a payout and tries to approve it himself", vote.message)
    stage.accounts.us.cancel(held, fred_asks, "never mind")
    tell.does("fred", "takes it back", "never mind")
    return expect(stage, tell, held.operation_id, "CANCELLED")


def state_changed(stage: Stage, tell: Teller) -> UUID:
    """Between request and run the payee's IBAN changes: what was approved is no longer what would happen."""
    held, _ = stage.request("payout-mill")
    approve(stage, held.operation_id, "fred")
    stage.admin.execute(
        "update app.payee set iban = 'XX99 6666 6666', version = version + 1 where name = 'Mill & Sons'"
    )
    tell.does("somebody", "changes the IBAN of Mill & Sons after fred approved", "XX99 6666 6666")
    report = stage.accounts.us.run(held)
    tell.does("a worker", "estimates again before it runs", report.message)
    assert not stage.bank.payments
    tell.fact("the bank was told nothing")
    return expect(stage, tell, held.operation_id, "REFUSED", "state-changed")


def permission_revoked(stage: Stage, tell: Teller) -> UUID:
    """The requester loses the permission while the request waits; the method itself checks it, as the requester."""
    held, erin = stage.request("payout-erin")
    approve(stage, held.operation_id, "gina")
    stage.admin.execute("delete from app.permission where staff = 'erin' and permission = 'payout'")
    tell.does("an admin", "takes the payout permission from erin", "approved or not")
    report = stage.accounts.us.run(held)
    tell.does("a worker", f"calls the method as {erin.id}", report.message)
    assert not stage.bank.payments
    return expect(stage, tell, held.operation_id, "REFUSED", "permission-denied")


def edited_by_hand(stage: Stage, tell: Teller) -> UUID:
    """A superuser edits an approved row: first stopped by the triggers, then, without them, by the seal."""
    held, _ = stage.request("payout-mill")
    approve(stage, held.operation_id, "fred")
    attack = "update underseal.held_operation set requester = 'gina' where operation_id = %s"
    try:
        stage.admin.execute(attack, [held.operation_id])
    except psycopg.Error as error:
        tell.does("a superuser", "edits the requester", error.diag.message_primary or "")
    else:
        raise AssertionError("the trigger let an edit through")
    with stage.meddling() as admin:
        admin.execute(attack, [held.operation_id])
    tell.does("a superuser", "switches every trigger off and edits it again", "it is written")
    report = stage.accounts.us.run(held)
    tell.does("a worker", "opens the seal, which names dana", report.message)
    return expect(stage, tell, held.operation_id, "REFUSED", "integrity")


def swapped_seals(stage: Stage, tell: Teller) -> UUID:
    """Two approved rows; a superuser swaps their seals. Neither opens in the other's place."""
    first, _ = stage.request("close-bela")
    second, _ = stage.request("close-dora")
    for held in (first, second):
        approve(stage, held.operation_id, "gina")
    one, other = stage.row(first.operation_id), stage.row(second.operation_id)
    with stage.meddling() as admin:
        for target, source in ((one, other), (other, one)):
            admin.execute(
                "update underseal.held_operation set sealed_payload = %s where operation_id = %s",
                [json.dumps(source["sealed_payload"]), target["operation_id"]],
            )
    tell.does(
        "a superuser", "swaps the seals of two approved closures", "each is a true seal, of the other row"
    )
    for held in (first, second):
        report = stage.accounts.us.run(held)
        assert report.reason == "integrity", report
    open_accounts = stage.admin.execute(
        "select count(*) as open from app.account where id in (2, 4) and status = 'open'"
    ).fetchone()
    assert open_accounts == {"open": 2}
    tell.fact("both accounts are open as before")
    return expect(stage, tell, first.operation_id, "REFUSED", "integrity")


def secret_result(stage: Stage, tell: Teller) -> UUID:
    """A token, with a secret parameter and a secret result: the requester asks again and alone receives it."""
    held, dana = stage.request("token-backups")
    tell.shows(stage.accounts.us.get(held, dana))
    approve(stage, held.operation_id, "gina")
    assert not stage.accounts.us.run_approved(10)
    tell.fact("no worker runs it")
    params = json.loads((HERE / "requests" / "token-backups.json").read_text())["params"]
    stranger = stage.accounts.us.resubmit("token.issue", Principal("erin"), params)
    assert not isinstance(stranger, RunReport)
    tell.does(
        "erin", "sends the very same request", "a request of her own is held; she learns nothing of dana's"
    )
    answer = stage.accounts.us.resubmit("token.issue", dana, params)
    assert isinstance(answer, RunReport)
    assert answer.state == "SUCCEEDED", answer
    tell.secrets = [params["passphrase"], answer.value["token"]]
    tell.does("dana", "sends it again", f"{answer.value['token'][:8]}…, in her answer and nowhere else")
    assert stage.row(held.operation_id)["result"] is None
    return expect(stage, tell, held.operation_id, "SUCCEEDED")


def killed_worker(stage: Stage, tell: Teller) -> UUID:
    """A worker dies by SIGKILL while the bank has the payment and has not answered."""
    held, _ = stage.request("payout-mill")
    approve(stage, held.operation_id, "fred")
    paid_before = len(stage.bank.payments)
    stage.bank.hang()
    worker = stage.start_worker()
    assert stage.bank.arrived.wait(timeout=60), "the worker never reached the bank"
    stage.kill(worker)
    stage.bank.answer()
    tell.does("a worker", "is killed with SIGKILL while the bank has the payment", f"pid {worker.pid}")
    assert stage.row(held.operation_id)["state"] == "EXECUTING"
    stage.later(minutes=16)
    tell.passes("16 minutes; the run's lease was 15")
    stage.accounts.us.sweep()
    assert not stage.accounts.us.run_approved(10)
    assert len(stage.bank.payments) == paid_before + 1
    tell.fact("nothing ran it again: the bank was told once, and a person must look before asking again")
    return expect(stage, tell, held.operation_id, "OUTCOME_UNKNOWN", "lease-lost")


def races(stage: Stage, tell: Teller) -> UUID:
    """Two approvers, then two workers, at the very same moment."""
    held, _ = stage.request("close-edit")
    start = Barrier(2)

    def votes(name: str) -> VoteOutcome:
        with stage.approver(name) as approver:
            operation = approver.get(held, name)
            assert operation is not None
            start.wait()
            return approver.approve(operation, name)

    def runs(_: str) -> str:
        env = stage.environment()
        other = Accounts(env["ACCOUNTS_DSN"], env["ACCOUNTS_KEYS"], env["ACCOUNTS_SPENT"], stage.bank.url)
        with other.us:
            start.wait()
            return other.us.run(held).outcome

    with ThreadPoolExecutor(2) as pool:
        voted = sorted(vote.outcome for vote in pool.map(votes, ("fred", "gina")))
        tell.does("fred and gina", "approve at once", " and ".join(voted))
        ran = sorted(pool.map(runs, ("one", "two")))
        tell.does("two workers", "run it at once", " and ".join(ran))
    assert voted == ["approved", "conflict"], voted
    assert ran == ["conflict", "succeeded"], ran
    return expect(stage, tell, held.operation_id, "SUCCEEDED")


def restored_row(stage: Stage, tell: Teller) -> UUID:
    """A superuser keeps an approved row aside, lets it run, and puts it back, seals and all."""
    held, _ = stage.request("payout-mill")
    approve(stage, held.operation_id, "gina")
    with stage.meddling() as admin:
        admin.execute(
            "create table kept_aside as select * from underseal.held_operation where operation_id = %s",
            [held.operation_id],
        )
    paid_before = len(stage.bank.payments)
    report = stage.accounts.us.run(held)
    assert report.outcome == "succeeded", report
    with stage.meddling() as admin:
        admin.execute("delete from underseal.held_operation where operation_id = %s", [held.operation_id])
        admin.execute("insert into underseal.held_operation select * from kept_aside")
        for table in ("held_event", "held_event_pending"):
            admin.execute(
                f"delete from underseal.{table} where operation_id = %s and seq > 2", [held.operation_id]
            )
        admin.execute("delete from underseal.replay_ticket where operation_id = %s", [held.operation_id])
        admin.execute("drop table kept_aside")
    tell.does("a superuser", "puts the approved row back after it has run", "every seal in it is true")
    stage.accounts.us.run(held)
    assert len(stage.bank.payments) == paid_before + 1
    tell.fact("the register outside the database knows the id: the bank was told once")
    return expect(stage, tell, held.operation_id, "REFUSED", "spent")


def searched_dump(stage: Stage, tell: Teller) -> None:
    """The whole database, dumped, is searched for the secrets: as they are, and in base64, hex and JSON."""
    dump = subprocess.run(
        [binaries() / "pg_dump", "--dbname", stage.server.conninfo("accounts")],
        capture_output=True,
        check=True,
    ).stdout.decode()
    for secret in tell.secrets:
        raw = secret.encode()
        for disguise in (secret, json.dumps(secret)[1:-1], raw.hex(), *_base64(raw)):
            assert disguise not in dump, "a secret is in the dump"
    tell.fact(f"neither the passphrase nor the token is anywhere in {len(dump):,} characters")


def _base64(raw: bytes) -> list[str]:
    """What any base64 of a text with `raw` inside must hold, whatever stands before and after it."""
    return [base64.b64encode(b"\0" * shift + raw)[4:-4].decode() for shift in range(3)]


def approve(stage: Stage, operation_id: UUID, name: str) -> None:
    """An approval, without ado."""
    with stage.approver(name) as approver:
        operation = approver.get(operation_id, name)
        assert operation is not None
        vote = approver.approve(operation, name)
        assert vote.outcome == "approved", vote


def expect(stage: Stage, tell: Teller, operation_id: UUID, state: str, reason: str | None = None) -> UUID:
    """Show the timeline and compare its end with what the scene promises."""
    row = stage.row(operation_id)
    tell.timeline(stage, operation_id)
    found = (row["state"], row["outcome_reason"])
    if found[0] != state or (reason is not None and found[1] != reason):
        raise AssertionError(f"expected {state} {reason or ''}, found {found}: {row['outcome_detail']}")
    assert row["sealed_payload"] is None, "an ended operation keeps no seal"
    return operation_id


SCENES: dict[str, Scene] = {
    "Approved, and run once as the requester": approved,
    "Rejected": rejected,
    "Expired": expired,
    "Nobody approves their own request": self_approval,
    "The world changed since the request": state_changed,
    "A permission revoked meanwhile": permission_revoked,
    "A row edited by hand": edited_by_hand,
    "Seals swapped between rows": swapped_seals,
    "A secret parameter and a secret result": secret_result,
    "A worker killed in mid-run": killed_worker,
    "Two approvers and two workers racing": races,
    "A finished row put back": restored_row,
}
