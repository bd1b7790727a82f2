"""Processes are killed, frozen and woken at random while jobs run: each job still ends once."""

from __future__ import annotations

import random
import signal
import time

import pytest

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue
from .waiting import let_pass
from .workers import send

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECONDS = 8
SIGNALS = [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]


@pytest.mark.timeout(300)
def test_every_job_ends_once_through_a_storm_of_kills_and_freezes(scene: Scene) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    flags = ["--lease", "2", "--poll", "0.3", "--grace", "0.5"]
    how = {"slots": 2, "processes": 2, "flags": flags}
    workers = [scene.start(f"first-{n}", **how) for n in range(2)]
    jobs = [
        enqueue(tasks.rest.using(max_attempts=None), chance.choice([0.02, 0.1, 0.5, 3.0]))
        for _ in range(80)
    ]
    jobs += [enqueue(tasks.rest_async.using(max_attempts=None), 0.5) for _ in range(10)]
    scene.begun(jobs[0], within=60)
    end = time.monotonic() + SECONDS
    frozen: list[int] = []
    while time.monotonic() < end:
        let_pass(chance.uniform(0.1, 1.5))
        worker = chance.choice(workers)
        if not worker.alive:
            workers.remove(worker)
            workers.append(scene.start(f"next-{len(scene.workers)}", **how))
            continue
        victims = chance.choice([worker.group, [worker.pid], worker.children[:1]])
        if frozen and chance.random() < 0.5:
            send(frozen, signal.SIGCONT)
            frozen = []
            continue
        number = chance.choice(SIGNALS)
        send(victims, number)
        frozen += victims if number is signal.SIGSTOP else []
    send(frozen, signal.SIGCONT)
    workers = [worker for worker in workers if worker.alive] + [scene.start("last", **how)]
    ended = scene.succeeds(*jobs, within=120)
    assert len(ended) == len(jobs)
    for job in ended:
        assert scene.kinds(job.pk).count("succeeded") == 1
        assert job.failures == 0
    after_check(scene, scene.workers[-1])
