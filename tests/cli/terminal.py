"""A command line in a terminal of its own: what a person sees, and what they type."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from select import select
from time import monotonic

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """One command under a pseudo-terminal.

    Parameters:
        args: what stands after `underseal`.
        env: the environment beside this process's.
        columns: its width.
    """

    def __init__(self, args: list[str], env: Mapping[str, str], columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "underseal", *args],
            stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, **env, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"},
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._seen = ""

    def wait_for(self, words: str, timeout: float = 30) -> str:
        """Read until some words stand on the screen; everything so far, without colours.

        Parameters:
            words: the words.
            timeout: seconds.

        Errors:
            TimeoutError: they never came.
        """
        deadline = monotonic() + timeout
        while words not in self.screen:
            if not self._read(deadline):
                raise TimeoutError(f"waited for {words!r}, saw {self.screen!r}")
        return self.screen

    def type(self, text: str) -> None:
        """Type.

        Parameters:
            text: what is typed.
        """
        os.write(self._ours, text.encode())

    def end(self, timeout: float = 30) -> tuple[int, str]:
        """Wait for the command's end; its exit code, and everything it printed, without colours.

        Parameters:
            timeout: seconds.
        """
        deadline = monotonic() + timeout
        while self._read(deadline):
            pass
        code = self._process.wait(timeout)
        os.close(self._ours)
        return code, self.screen

    @property
    def screen(self) -> str:
        """Everything printed so far, without colours."""
        return _STYLE.sub("", self._seen).replace("\r\n", "\n")

    @property
    def raw(self) -> str:
        """Everything printed so far, as the terminal got it."""
        return self._seen

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select([self._ours], [], [], max(deadline - monotonic(), 0))
        if not ready:
            self._process.kill()
            return False
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:  # the other side is closed: the command has ended
            return False
        self._seen += chunk.decode(errors="replace")
        return bool(chunk)
