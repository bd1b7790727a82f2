"""Databases for the workers under test: one on the run's own server, and servers to be harmed.

The role is no superuser, and owns its database. The Django of the test process is led to it for
as long as a scene lasts, so that tests enqueue and look through the public names.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import environ
import psycopg
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from example_project import embedded
from example_project.embedded import cluster

from . import ledger
from .waiting import wait_until
from .workers import children_of, send


@dataclass(frozen=True, slots=True)
class Place:
    """A database of its own: its address for the application's role, and for who made it."""

    url: str
    admin: str

    def at_port(self, port: int) -> str:
        """The same database through another port of this host."""
        parts = urlsplit(self.url)
        where = f"{parts.username}:{parts.password}@127.0.0.1:{port}"
        return parts._replace(netloc=where).geturl()


@contextmanager
def made(admin: str, *, migrated: bool = True, schema: str | None = None) -> Iterator[Place]:
    """Make a database, its role and the tables; drop them afterwards.

    With ``schema`` everything is there, the address says so, and there is no schema ``public``.
    """
    name = f"relay_process_{secrets.token_hex(4)}"
    parts = urlsplit(admin)
    with psycopg.connect(admin, autocommit=True) as session:
        role, password = _role(session, name) or (parts.username, parts.password)
        owner = sql.Identifier(str(role))
        session.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), owner))
    where = f"{quote(str(role))}:{quote(str(password or ''))}@{parts.hostname}:{parts.port or 5432}"
    url = parts._replace(netloc=where, path=f"/{name}").geturl()
    try:
        if schema is not None:
            with psycopg.connect(url, autocommit=True) as theirs:
                theirs.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
                theirs.execute("DROP SCHEMA public")
            url += f"?options={quote(f'-c search_path={schema},public')}"
        with psycopg.connect(url, autocommit=True) as theirs:
            theirs.execute(ledger.TABLE)
        if migrated:
            with led_to(url):
                call_command("migrate", verbosity=0)
        yield Place(url, parts._replace(path=f"/{name}").geturl())
    finally:
        # The server may have been restarted meanwhile.
        with psycopg.connect(admin, autocommit=True) as session:
            session.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            if role != parts.username:
                session.execute(sql.SQL("DROP ROLE {}").format(owner))


def _role(session: psycopg.Connection[object], name: str) -> tuple[str, str] | None:
    """Make a role that may nothing but own its database; None where we may not make one."""
    password = secrets.token_hex(12)
    try:
        session.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(password)
            )
        )
    except psycopg.errors.InsufficientPrivilege:
        return None
    return name, password


@contextmanager
def led_to(url: str) -> Iterator[None]:
    """Lead this process's default connection to another database and back again."""
    settings = connections.settings["default"]
    names = ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    kept = {key: settings[key] for key in names}
    connections["default"].close()
    there = environ.Env.db_url_config(url)
    settings.update({"OPTIONS": {}} | {key: there[key] for key in kept if key in there})
    try:
        yield
    finally:
        connections["default"].close()
        settings.update(kept)


class Server:
    """A PostgreSQL of one test alone, which it may stop, start and reconfigure.

    The same port each time. As other borrowed servers it ends with this process, and what a killed
    run has left of it is cleared away by the next.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="borrowed-", dir=cluster.home()))
        cluster.make_directory(self.directory)
        self.start()

    def start(self) -> None:
        """Start it, or wait until it is up."""
        self._seat = embedded._sit_down(self.directory, lasting=True)
        self.url = self._seat.url

    @property
    def said(self) -> str:
        """The server's log since its last start."""
        return (self.directory / "server.log").read_text(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT is PostgreSQL's fast mode, SIGQUIT its immediate one."""
        told = self.directory / "server.json"
        os.kill(json.loads(told.read_text())["postgres"], how)
        wait_until(lambda: not told.exists(), 30, what="the server's end")

    def freeze(self, *, frozen: bool) -> None:
        """Stop all of its processes where they are, or let them go on."""
        postgres = json.loads((self.directory / "server.json").read_text())["postgres"]
        number = signal.SIGSTOP if frozen else signal.SIGCONT
        send([postgres, *children_of(postgres)], number)

    def stand_by(self) -> None:
        """Have it start as a standby, which can be read and promoted; it has to be stopped."""
        (data,) = self.directory.glob("data-*")
        signalled = data / "standby.signal"
        signalled.touch()
        shutil.chown(signalled, data.owner(), data.group())

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop(signal.SIGQUIT)
        self._seat.leave()
        shutil.rmtree(self.directory, ignore_errors=True)
