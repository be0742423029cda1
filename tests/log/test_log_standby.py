"""A standby may be behind what a cursor has seen, and one that took over may have lost it (clause E11)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from tests.log.logs import Logs, Reader
from underseal.foundation.server import THROWAWAY, Server, binaries, embedded_server
from underseal.testing import OWNER, in_memory, install, wait_until


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for two servers of this test's own."""
    place = Path(tempfile.mkdtemp(prefix="underseal-standby-", dir=in_memory()))
    yield place
    shutil.rmtree(place, ignore_errors=True)


def logs(server: Server) -> Logs:
    """The schema's owner on a server."""
    conninfo = make_conninfo(server.conninfo("followed"), user=OWNER)
    return Logs(psycopg.connect(conninfo, autocommit=True, row_factory=dict_row))


@pytest.mark.clause("E11b")
def test_a_cursor_belongs_to_one_timeline(place: Path) -> None:
    with embedded_server(place / "first", THROWAWAY) as first:
        with psycopg.connect(first.conninfo(), autocommit=True) as connection:
            connection.execute("create database followed")
        install(first, "followed")
        before = logs(first)
        before.start("a")
        copy = ["-h", first.host, "-U", first.user, "-D", str(place / "second"), "-R", "--checkpoint=fast"]
        subprocess.run([str(binaries() / "pg_basebackup"), *copy], check=True, timeout=60)
        # the socket's lock is in the data directory as well
        (place / "second" / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        owner = (place / "first").stat()
        for path in (place / "second", *(place / "second").rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        with embedded_server(place / "second") as second:
            before.start("b")
            cursor = before.calls("read_all")[-1]["cursor"]
            after = logs(second)
            wait_until(lambda: len(after.keys()) == 2)
            assert after.call("read_all", cursor)["reason"] == "standby"
            assert after.call("read_all")["reason"] == "standby"
            assert after.call("adopt_cursor", cursor)["reason"] == "standby"
            with psycopg.connect(second.conninfo(), autocommit=True) as connection:
                connection.execute("select pg_promote()")
            assert after.call("read_all", cursor)["reason"] == "foreign-cursor"
            assert Reader(after).drain() == [("a", 0), ("b", 0)]
            after.start("c")
            # whoever knows that nothing was lost goes on
            assert Reader(after, after.call("adopt_cursor", cursor)["cursor"]).drain() == [("c", 0)]
            # the first one goes on as before
            assert before.call("read_all", cursor)["outcome"] == "end"
            before.connection.close()
            after.connection.close()
