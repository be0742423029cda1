"""Processor time of the server and of programs that were waited for: unlike a rate it says little about who else was
busy on the machine."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg

from underseal.foundation.server import Server

_TICK = os.sysconf("SC_CLK_TCK")


def server_seconds(server: Server) -> float:
    """Seconds of processor time that all processes of a server have taken, those that have ended among them.

    Parameters:
        server: on this machine; Linux.
    """
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        row = admin.execute("select pg_backend_pid()").fetchone()
        assert row is not None
        postmaster = int(_fields(Path(f"/proc/{row[0]}/stat"))[1])
        total = 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = _fields(stat)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(stat.parent.name) == postmaster:
                total += sum(int(fields[place]) for place in (11, 12, 13, 14))
            elif int(fields[1]) == postmaster:
                total += int(fields[11]) + int(fields[12])
    return total / _TICK


def _fields(stat: Path) -> list[str]:
    """From the process's state on; its name, which may hold anything, is cut off."""
    return stat.read_text().rpartition(")")[2].split()


def children_seconds() -> float:
    """Seconds of processor time of the programs that this process ran and that have ended."""
    times = os.times()
    return times.children_user + times.children_system
