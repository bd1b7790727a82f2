"""The jobs of the comparison; ``common`` is the comparison's own and keeps the times.

Of the async ones, the burst waits without holding the loop and then does the same work.
"""

import asyncio
import hashlib
import time

import common

from django_relay import task


@task
def burst(n):
    common.burst(n)


@task
def noop(n):
    common.noop(n)


@task
def sleep2(n):
    common.sleep2(n)


@task
async def async_burst(n):
    start = time.monotonic()
    await asyncio.sleep(0.010)
    digest = b"x" * 32
    for _ in range(1000):
        digest = hashlib.sha256(digest).digest()
    common.record(n, start, time.monotonic())


@task
async def async_noop(n):
    common.noop(n)
