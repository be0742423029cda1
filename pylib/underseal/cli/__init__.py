"""The command line.

A family of commands is one module beside this one with a tuple `COMMANDS` of click commands. Nothing has to be
registered anywhere: the group finds the modules whose names do not start with an underscore. Modules import what is
slow to import inside their commands, so that `underseal --help` stays quick.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 conflict, 4 refused, 5 denied.
"""

from __future__ import annotations

import io
import pkgutil
import sys
from functools import cached_property
from importlib import import_module

import click

from underseal._version import __version__


class _Families(click.Group):
    """A group that finds its commands in the modules of this package."""

    @cached_property
    def _found(self) -> dict[str, click.Command]:
        modules = (m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
        return {
            str(command.name): command
            for name in modules
            for command in getattr(import_module(f"{__name__}.{name}"), "COMMANDS", ())
        }

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Every command's name, sorted."""
        return sorted(self._found)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, None if there is none."""
        return self._found.get(cmd_name)


@click.group(cls=_Families, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="underseal")
def main() -> None:
    """Held operations and durable executions for the Postgres you already run.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 conflict, 4 refused, 5 denied.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal or a pipe that knows ASCII alone
