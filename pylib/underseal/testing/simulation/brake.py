"""Holds the backends that wait for locks, so that those which one commit lets go on do so one after the other.

Postgres wakes everybody who waited for the same transaction at once, and who is first on the next lock is then up to
the machine. So a backend that waits stands still, by SIGSTOP, until it is its turn. It stands still nowhere else than
in its wait for a heavyweight lock, in which it holds nothing that the server needs. Where the server runs on another
machine nothing is held, and a run in which three wait for one row may not replay.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


class Brake:
    """Stops backends and lets them go.

    Attributes:
        works: whether the server's processes are ours to stop.
    """

    def __init__(self, pid: int, dbname: str) -> None:
        """Prepare it.

        Parameters:
            pid: of a backend of the server, by which to see where that runs.
            dbname: the database that it serves.
        """
        self._held: set[int] = set()
        self.works = _is_backend(pid, dbname) and _may_signal(pid)

    def hold(self, pid: int) -> None:
        """Let a backend that waits for a lock stand still."""
        if self.works:
            os.kill(pid, signal.SIGSTOP)
            self._held.add(pid)

    def release(self, pid: int) -> None:
        """Let it go on."""
        if pid in self._held:
            self._held.remove(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def release_all(self) -> None:
        """Let all go on."""
        for pid in sorted(self._held):
            self.release(pid)


def _is_backend(pid: int, dbname: str) -> bool:
    """Whether the process of this number on this machine is a backend for that database, and not something else."""
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        try:
            title = subprocess.run(
                ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True
            ).stdout
        except OSError:
            return False
    return "postgres" in title and dbname in title


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
