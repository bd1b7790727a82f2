"""The handlers of the process tests. Each writes into the ledger that it began, and mostly why."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from typing import Any

from django_relay import Backoff, RelayContext, current_job, task

from . import ledger

SOON = Backoff(base=timedelta(seconds=0.2), factor=1.0, jitter=0.0)


def claim() -> int:
    """The number of the claim that runs here."""
    job = current_job()
    assert job is not None
    return job.fence[1]


@task
def noop() -> None:
    ledger.write("begin")


@task
def rest(seconds: float, answer: Any = None) -> Any:
    """Rest, then return."""
    ledger.write("begin")
    time.sleep(seconds)
    ledger.write("end")
    return answer


@task
def hold(gate: str) -> None:
    """Rest until a file is there."""
    ledger.write("begin")
    end = time.monotonic() + 120
    while not os.path.exists(gate) and time.monotonic() < end:
        time.sleep(0.05)
    ledger.write("end")


@task
async def rest_async(seconds: float) -> None:
    ledger.write("begin")
    await asyncio.sleep(seconds)
    ledger.write("end")


@task
def linger(first: float, later: float) -> int:
    """Rest for one time under the first claim and for another under later ones."""
    ledger.write("begin")
    time.sleep(first if claim() == 1 else later)
    ledger.write("end")
    return claim()


@task(backoff=SOON)
def contend(first: float, ending: str, later: float) -> str:
    """Under the first claim end as told after a time; under later ones return "B"."""
    ledger.write("begin")
    if claim() > 1:
        time.sleep(later)
        ledger.write("end")
        return "B"
    time.sleep(first)
    ledger.write("end")
    if ending == "raise":
        raise RuntimeError("A failed")
    return "A"


@task(takes_context=True)
def go_on_until_told(context: RelayContext, seconds: float, obeys: bool = True) -> str:
    """Under the first claim run on until the context says stop; later ones just rest."""
    ledger.write("begin")
    if context.fence[1] > 1:
        time.sleep(seconds)
        ledger.write("end")
        return "B"
    end = time.monotonic() + 60
    while not context.should_stop and time.monotonic() < end:
        time.sleep(0.05)
    ledger.write("told to stop")
    # Our clock counts from before the claim was sent: the lease itself ends a little later.
    time.sleep(1.0)
    if obeys:
        context.checkpoint()
    return "A"


@task
def meet(place: str, number: int) -> bool:
    """Wait until so many are here at once; tell whether they came."""
    job = current_job()
    assert job is not None
    ledger.write("begin")
    ledger.write(f"met at {place}")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if ledger.count(f"met at {place}") % number == 0:
            return True
        time.sleep(0.05)
    return False


@task
def hog(seconds: float) -> float:
    """Hold the GIL for at least so long, in one call of C code; return how long it was."""
    ledger.write("begin")
    number, held = 3_000_000, 0.0
    while held < seconds:
        began = time.perf_counter()
        sum(range(number))
        held = time.perf_counter() - began
        # How fast it is depends on who else uses the processor: come near it, then go beyond.
        number = int(number * min(max(1.2 * seconds / held, 1.2), 20))
    ledger.write("end")
    return held


@task(backoff=SOON)
def succeed_or_raise(ends_well: bool) -> str:
    """Fail once if so told, then succeed."""
    ledger.write("begin")
    if not ends_well and claim() == 1:
        raise RuntimeError("the first attempt fails")
    return "done"


@task
def find_group(pk: int) -> str:
    """Read a row that was made in the same transaction as this job."""
    ledger.write("begin")
    from django.contrib.auth.models import Group

    return str(Group.objects.get(pk=pk).name)


@task(max_attempts=1)
def hold_and_fail(gate: str) -> None:
    """Rest until a file is there, then fail."""
    ledger.write("begin")
    end = time.monotonic() + 120
    while not os.path.exists(gate) and time.monotonic() < end:
        time.sleep(0.05)
    raise RuntimeError("on purpose")


@task
def find_nothing() -> int:
    """Ask the ORM something."""
    ledger.write("begin")
    from django.contrib.auth.models import Group

    return Group.objects.filter(name="nobody of this name").count()


@task
def tell_time() -> float:
    """Tell this process's wall clock."""
    ledger.write("begin")
    return time.time()


@task
def enqueue_in(seconds: float, queue: str) -> int:
    """Enqueue another job from here, in some seconds by the database's clock."""
    ledger.write("begin")
    later = noop.using(queue_name=queue, run_after=timedelta(seconds=seconds))
    return int(later.enqueue().id)


@task(backoff=Backoff(base=timedelta(seconds=3), factor=1.0, jitter=0.0))
def fail_once() -> None:
    """Fail under the first claim."""
    ledger.write("begin")
    if claim() == 1:
        raise RuntimeError("the first attempt fails")


@task
def enqueue_and_undo(alias: str) -> int:
    """Enqueue another job in a transaction of a database, roll that back, and return its id."""
    from django.db import transaction

    ledger.write("begin")
    with transaction.atomic(using=alias):
        job_id = int(noop.enqueue().id)
        transaction.set_rollback(True, using=alias)
    return job_id


@task
def lose_the_path(alias: str) -> None:
    """Make this session find no table any more; leave it so."""
    from django.db import connections

    ledger.write("begin")
    with connections[alias].cursor() as cursor:
        cursor.execute("SET search_path = nowhere")


@task
def measure(text: str) -> int:
    """Return how long a text is."""
    ledger.write("begin")
    return len(text)


@task
def look_inside() -> list[float]:
    """Ask the ORM one thing; return the process, the query log's length before, and its memory."""
    from django.contrib.auth.models import Group
    from django.db import connection

    logged = len(connection.queries_log)
    Group.objects.filter(name="nobody of this name").exists()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return [os.getpid(), logged, pages * os.sysconf("SC_PAGE_SIZE") / 2**20]
