"""The service: `underseal worker examples.agent.service:agent` drives its flows and runs what was approved.

Its environment:
    AGENT_DSN    its login, which has `client` and `worker` access
    AGENT_KEYS   directory of its key ring
"""

from __future__ import annotations

import os

from examples.agent.flow import support
from examples.agent.shop import RefundPay, pay_back
from underseal import AsyncUnderseal, FileKeyRing, Principal


def agent() -> AsyncUnderseal:
    """The client, with what its workers serve."""
    us = AsyncUnderseal(
        os.environ["AGENT_DSN"],
        keys=FileKeyRing(os.environ["AGENT_KEYS"]),
        principals=Principal,
        run_on_approval=False,
    )
    us.gate(RefundPay())(pay_back)
    us.serve(support)
    return us
