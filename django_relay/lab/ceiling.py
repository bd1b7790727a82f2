"""The ceiling: the burst's handler at the same processes and slots, with no queue at all.

``python -m django_relay.lab.ceiling SLOTS JOBS WAIT ROUNDS`` is one process of it: it says when it
is ready, waits for a line, runs its share in so many threads, and says when it began and ended.
``measure`` runs several at once. Needs neither Django nor a database.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time

from .work import burn


def measure(*, processes: int, slots: int, jobs: int, wait: float, rounds: int) -> float:
    """Return how many jobs a second the handler alone reaches."""
    share = -(-jobs // processes)
    command = [sys.executable, "-m", "django_relay.lab.ceiling", str(slots), str(share)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    running = [
        subprocess.Popen(
            [*command, str(wait), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        for process in running:
            _line(process)
        for process in running:
            assert process.stdin is not None  # noqa: S101  # it was asked to be a pipe
            process.stdin.write("go\n")
            process.stdin.flush()
        spans = [tuple(map(float, _line(process).split())) for process in running]
        for process in running:
            process.communicate()
    finally:
        for process in running:
            process.kill()
            process.wait()
    seconds = max(end for _, end in spans) - min(start for start, _ in spans)
    return share * processes / seconds


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None  # noqa: S101  # it was asked to be a pipe
    return process.stdout.readline()


def main(slots: int, jobs: int, wait: float, rounds: int) -> None:
    """Run one process's share when told to."""
    numbers = itertools.count()

    def slot() -> None:
        while next(numbers) < jobs:
            if rounds or wait:
                burn(wait, rounds)

    threads = [threading.Thread(target=slot) for _ in range(slots)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        return
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(f"{start} {time.monotonic()}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
