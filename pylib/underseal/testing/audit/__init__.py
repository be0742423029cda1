"""An audit of runs by what the tables hold and others noted. It shares no code with what it audits."""

from __future__ import annotations

from underseal.testing.audit.books import Books, id_of, own
from underseal.testing.audit.chains import audit_children, audit_wakes
from underseal.testing.audit.drivers import audit_drivers, audit_effects
from underseal.testing.audit.held import audit_held, timelines_of
from underseal.testing.audit.holds import audit_holds
from underseal.testing.audit.inbox import audit_inboxes
from underseal.testing.audit.log import audit_log
from underseal.testing.audit.runs import audit_runs

__all__ = ["Books", "audit"]


def audit(books: Books) -> list[str]:
    """What is wrong; nothing, one hopes.

    Parameters:
        books: what is audited, read when nothing was under way any more.
    """
    logs = books.logs()
    executions = {(row["chain_id"], row["member"]): row for row in books.executions}
    faults = [f"a log without an execution: {place}" for place in logs.keys() - executions.keys()]
    for place, row in executions.items():
        faults += [f"{id_of(row)}: {fault}" for fault in audit_log(row, logs[place])]
    faults += audit_inboxes(books, executions, logs)
    faults += audit_wakes(books, executions)
    own_logs = own(logs)
    faults += audit_children(executions, own_logs)
    faults += audit_drivers(books, own_logs)
    faults += audit_effects(books, own_logs)
    timelines = timelines_of(books)
    faults += audit_held(books, timelines)
    faults += audit_runs(books, timelines)
    faults += audit_holds(books, executions, logs)
    return faults
