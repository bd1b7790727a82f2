"""Handlers that misbehave: they kill, exit, raise what cannot be shown, and leave a mess."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

from django_relay import task

from . import ledger
from .tasks import SOON


@task
def poison(how: str) -> None:
    """Kill the process that runs it."""
    ledger.write("begin")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        os._exit(1)
    ctypes.string_at(0)


class Unusual(BaseException):
    """What is no Exception."""


def _leave(how: str) -> None:
    if how == "exit 0":
        sys.exit(0)
    if how == "exit 3":
        sys.exit(3)
    raise {
        "KeyboardInterrupt": KeyboardInterrupt,
        "GeneratorExit": GeneratorExit,
        "CancelledError": asyncio.CancelledError,
        "Unusual": Unusual,
    }[how]("on purpose")


@task(max_attempts=2, backoff=SOON)
def leave(how: str) -> None:
    """End by something that is no Exception."""
    ledger.write("begin")
    _leave(how)


@task(max_attempts=2, backoff=SOON)
async def leave_async(how: str) -> None:
    """End by something that is no Exception, on the loop."""
    ledger.write("begin")
    _leave(how)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text to be had")


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr to be had")


class NumberForText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class TwoArguments(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


@task(max_attempts=2, backoff=SOON)
def raise_odd(how: str) -> None:
    """Raise an exception that is hard to show, to rebuild or to import."""
    ledger.write("begin")
    if how == "own cause":
        error = ValueError("its own cause")
        error.__cause__ = error
        raise error
    if how == "local class":

        class Local(Exception):
            pass

        raise Local("from within a function")
    if how == "group":
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
    if how == "holds things":
        raise ValueError(socket.socket(), threading.Lock())
    if how == "two arguments":
        raise TwoArguments("this", "that")
    classes = {"no text": NoText, "no repr": NoRepr, "number for text": NumberForText}
    raise classes[how]("on purpose")


@task(backoff=timedelta(hours=1))
def lose_session(how: str) -> None:
    """Lose the session that Django gave this handler, and make nothing of it."""
    from django.db import connection, connections, transaction

    ledger.write("begin")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    if how == "close":
        connection.close()
    elif how == "close all":
        connections.close_all()
    elif how == "terminate":
        with contextlib.suppress(Exception), connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            time.sleep(4)


@task(max_attempts=1)
def leave_a_mess(how: str) -> str:
    """Leave this thread's session in a state that the next job must not find."""
    from django.db import connection, transaction

    ledger.write("begin")
    statements = {
        "search_path": "SET search_path = nowhere",
        "timeout": "SET statement_timeout = 1",
        "lock": "SELECT pg_advisory_lock(1)",
        "temporary table": "CREATE TEMPORARY TABLE auth_group (other int)",
        "begin": "BEGIN",
    }
    with connection.cursor() as cursor:
        if how in statements:
            cursor.execute(statements[how])
            if how == "begin":
                with contextlib.suppress(Exception):
                    cursor.execute("SELECT nothing_of_this_name")
            return how
    if how == "autocommit":
        connection.set_autocommit(False)
        _make_group()
    elif how == "atomic":
        transaction.atomic().__enter__()
        _make_group()
    elif how == "savepoint":
        transaction.atomic().__enter__()
        transaction.atomic().__enter__()
    elif how == "cursor":
        connection.chunked_cursor().execute("SELECT generate_series(1, 1000)")
    elif how == "fork":
        os.fork()
    return how


def _make_group() -> None:
    from django.contrib.auth.models import Group

    Group.objects.create(name="never to be seen")


class Unlookable(Exception):
    """Raises as soon as somebody asks what it is."""

    @property
    def __class__(self) -> type:
        raise ZeroDivisionError


@task(max_attempts=1)
def raise_unlookable() -> None:
    raise Unlookable


@task(max_attempts=2, backoff=SOON)
async def stop_the_loop() -> None:
    ledger.write("begin")
    asyncio.get_running_loop().stop()
    await asyncio.sleep(60)


@task(max_attempts=1)
async def cancel_the_others(seconds: float) -> None:
    """Cancel every other coroutine of the child for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for each in asyncio.all_tasks():
            if each is not asyncio.current_task():
                each.cancel()
        await asyncio.sleep(0)


@task(max_attempts=1)
async def pause_async(seconds: float) -> None:
    await asyncio.sleep(seconds)


@task(max_attempts=1)
def break_the_bookkeeper() -> None:
    """Raise into the thread that keeps the child's books."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(MemoryError))
    time.sleep(60)


@task(max_attempts=1)
def write_into_every_pipe(text: str) -> None:
    """Write nonsense into every descriptor that takes it."""
    for descriptor in range(3, 40):
        with contextlib.suppress(OSError):
            os.write(descriptor, text.encode() * (1 if len(text) > 1 else 200_000) + b"\n")
    time.sleep(60)


@task(max_attempts=1)
def spoil_the_library() -> None:
    """Leave the process with a json that writes nothing, and an error to be written."""
    json.dumps = None
    raise ValueError


@task(max_attempts=1)
def die_without_a_name() -> None:
    """End by a signal that has no name."""
    os.kill(os.getpid(), signal.SIGRTMIN + 6)


@task
async def make_no_tasks() -> None:
    """Leave the loop with a factory of an old signature, which raises."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, coroutine: asyncio.Task(coroutine, loop=loop))


@task(max_attempts=1)
def ask_slowly(seconds: float) -> None:
    """Ask the database something that takes a time."""
    ledger.write("begin")
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])
