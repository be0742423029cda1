"""`underseal exec`: executions, what happened to them, and what can be done about it."""

from __future__ import annotations

import click

from underseal.cli import _exec_act, _exec_check, _exec_look, _exec_result, _exec_state


@click.group("exec")
def executions() -> None:
    """Look at executions, answer their gates, cancel, migrate, fork, export, restore and verify them."""


for _command in (
    _exec_look.list_executions,
    _exec_look.show,
    _exec_look.events,
    _exec_act.start,
    _exec_result.result,
    _exec_act.resume,
    _exec_act.outcome,
    _exec_act.cancel,
    _exec_act.migrate,
    _exec_act.fork,
    _exec_state.export,
    _exec_state.restore,
    _exec_act.delete,
    _exec_check.verify,
    _exec_check.denials,
):
    executions.add_command(_command)

COMMANDS = (executions,)
