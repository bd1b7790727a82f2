"""A PgBouncer in transaction mode before a place; few sessions of the server for many clients."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from example_project.embedded import cluster

from .places import Place
from .waiting import wait_until

PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))

CONFIGURATION = """
[databases]
{name} = host=127.0.0.1 port={behind} dbname={name} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
admin_users = {user}
pool_mode = transaction
default_pool_size = {size}
"""


@dataclass(frozen=True, slots=True)
class Pooler:
    """A running PgBouncer."""

    url: str
    log: Path

    def waiting(self) -> int:
        """How many clients wait for a session of the server."""
        console = urlsplit(self.url)._replace(path="/pgbouncer").geturl()
        with psycopg.connect(console, autocommit=True) as session:
            cursor = session.execute("SHOW POOLS")
            names = [column.name for column in cursor.description or ()]
            place = names.index("cl_waiting")
            return sum(int(row[place]) for row in cursor)


@contextmanager
def pooled(place: Place, *, size: int) -> Iterator[Pooler]:
    """Run a PgBouncer before a place, with so many sessions at the most."""
    parts = urlsplit(place.url)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    directory = Path(tempfile.mkdtemp(prefix="pooler-", dir=cluster.home()))
    who = cluster.account()  # it does not run as root either
    told = CONFIGURATION.format(
        name=parts.path[1:],
        behind=parts.port or 5432,
        user=parts.username,
        password=parts.password,
        port=port,
        size=size,
    )
    (directory / "pgbouncer.ini").write_text(told)
    if who is not None:
        for path in (directory, directory / "pgbouncer.ini"):
            os.chown(path, who.uid, who.gid)
    log = directory / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [str(PROGRAM), str(directory / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            **({} if who is None else who.for_popen()),
        )
    try:
        pooler = Pooler(place.at_port(port), log)
        wait_until(lambda: _answers(process, port, log), 20, what="PgBouncer answers")
        yield pooler
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
