"""Handlers that are given something secret and do not tell; how they end is told beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta

from django_relay import Fail, Snooze, task

from . import ledger
from .tasks import SOON, claim


def _end(how: str) -> str:
    from django.db import connection

    if how == "raise":
        raise RuntimeError("it did not work")
    if how == "fail":
        raise Fail("it never will")
    if how == "snooze" and claim() == 1:
        raise Snooze(timedelta(seconds=0.2))
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "leave a transaction open":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
    if how == "break the session":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    return "done"


@task(max_attempts=2, backoff=SOON)
def keep(secret: str, how: str, *, also: dict[str, str]) -> str:
    """End as told."""
    ledger.write("begin")
    return _end(how)


@task(max_attempts=2, backoff=SOON)
async def keep_async(secret: str, how: str, *, also: dict[str, str]) -> str:
    """End as told, on the loop."""
    await asyncio.to_thread(ledger.write, "begin")
    return _end(how)


@task(max_attempts=2)
def keep_until(secret: str, gate: str) -> str:
    """Under the first claim rest until a file is there."""
    ledger.write("begin")
    end = time.monotonic() + 60
    while claim() == 1 and not os.path.exists(gate) and time.monotonic() < end:
        time.sleep(0.05)
    return "done"


@task(max_attempts=2, backoff=SOON)
def keep_nothing() -> None:
    """Takes no argument."""
