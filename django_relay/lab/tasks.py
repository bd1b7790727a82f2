"""The tasks of the lab. Import this only where ``places.find`` has found a backend for them."""

from __future__ import annotations

import time

from django_relay import RelayContext, task

from . import ledger, places, work

#: What a handler that lingers on waits for at most, in seconds: somebody to end its process.
LINGER = 60.0


@task(backend=places.alias(), queue_name=places.QUEUE, takes_context=True, max_attempts=None)
def hold(context: RelayContext, seconds: float, first: str = "") -> str:
    """Take a time. The first claim may then end otherwise: ``raise``, or ``linger`` on."""
    job, claim = context.fence
    ledger.write("begin", job, claim)
    time.sleep(seconds)
    ledger.write("end", job, claim)
    if claim == 1 and first == "raise":
        raise RuntimeError("as this experiment wants it")
    if claim == 1 and first == "linger":
        time.sleep(LINGER)
    return f"by claim {claim}"


@task(backend=places.alias(), queue_name=places.QUEUE)
def burn(wait: float, rounds: int) -> None:
    """Wait and calculate; keeps nothing, so that only the queue is measured."""
    work.burn(wait, rounds)


@task(backend=places.alias(), queue_name=places.QUEUE)
def noop() -> None:
    """Do nothing, so that nothing but the queue is measured."""
