"""One calm line per transition, and the handler for projects that configured none.

Arguments, results and error messages never get here: they may be secrets. ``extra`` carries the
same as keys: job_id, task, claim, state, worker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from . import compat
from .outcomes import Ending
from .transitions import Claimed, Notice, Rescued, Settled

logger = logging.getLogger("django_relay.worker")

#: So many jobs are named of those for which there is the same to say.
SHOWN = 5

LEVELS = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


class _Calm(logging.Logger):
    """A logger whose handlers may raise: the project's broken log is no reason to lose a job."""

    def handle(self, record: logging.LogRecord) -> None:
        """Filter and handle a record, and swallow what filters and handlers raise."""
        with contextlib.suppress(Exception):
            super().handle(record)


def prepare(verbosity: int) -> None:
    """Log to standard error where the project has not said where to, and survive its handlers.

    A worker that is to be quiet keeps the framework's own lines about each task to itself, too.
    """
    if verbosity == 0:
        compat.framework.setLevel(logging.WARNING)
    for name in ("django_relay", "django_relay.worker", "django_relay.signals"):
        logging.getLogger(name).__class__ = _Calm
    tree = logging.getLogger("django_relay")
    if tree.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("{asctime} {levelname:7} {message}", style="{"))
    tree.addHandler(handler)
    tree.setLevel(LEVELS[verbosity])
    tree.propagate = False


def first_line(error: BaseException) -> str:
    """Describe a database error in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def started(job: Claimed) -> None:
    """Log that a handler starts."""
    if logger.isEnabledFor(logging.INFO):
        extra = {"job_id": job.job_id, "task": job.task, "claim": job.claim}
        logger.info("job %s %s started (claim %s)", job.job_id, job.task, job.claim, extra=extra)


def lost(job: Claimed) -> None:
    """Log that a handler runs on without its lease."""
    logger.warning(
        "job %s %s lost its lease and runs on; its outcome will be refused",
        job.job_id,
        job.task,
        extra={"job_id": job.job_id, "task": job.task},
    )


def settled(job: Claimed, ending: Ending, answer: Settled) -> None:
    """Log what became of an ending."""
    level = logging.INFO
    if not answer.accepted or answer.kind in ("failed", "retried"):
        level = logging.WARNING
    if not logger.isEnabledFor(level):
        return
    extra = {
        "job_id": job.job_id,
        "task": job.task,
        "claim": job.claim,
        "state": answer.state,
        "refused": answer.reason,
    }
    logger.log(
        level, "job %s %s %s", job.job_id, job.task, _words(job, ending, answer), extra=extra
    )


def _words(job: Claimed, ending: Ending, answer: Settled) -> str:
    if not answer.accepted:
        late = "" if answer.late_ms is None else f", {answer.late_ms / 1000:.1f} s after its end"
        return (
            f"lost its lease ({answer.reason}{late}): its outcome ({ending.outcome.verb}) "
            "was refused and changes nothing"
        )
    words = str(answer.kind)
    if answer.kind == "retried":
        words += f" in {ending.outcome.delay:.0f} s, failure {job.failures + 1} of {_limit(job)}"
    if answer.kind == "snoozed":
        words += f" for {ending.outcome.delay:.0f} s"
    error = ending.outcome.error
    if error is not None:
        words += f": {error['class']}"
    if ending.took is not None:
        words += f" ({ending.took:.3f} s)"
    return words


def _limit(job: Claimed) -> str:
    return "unlimited" if job.max_attempts is None else str(job.max_attempts)


def rescued(job: Rescued, why: str) -> None:
    """Log that a job was taken back."""
    logger.warning(
        "job %s %s %s from %s (%s); it is %s now",
        job.job_id,
        job.task,
        job.kind,
        job.worker or "nobody",
        why,
        job.state,
        extra={
            "job_id": job.job_id,
            "task": job.task,
            "state": job.state,
            "worker": job.worker,
        },
    )


def noticed(notices: Iterable[Notice]) -> None:
    """Log which jobs the database would not have moved; of many for one reason only the first."""
    by_words: dict[str, list[int]] = {}
    for notice in notices:
        by_words.setdefault(notice.words, []).append(notice.job_id)
    for words, jobs in by_words.items():
        more = f" (and {len(jobs) - SHOWN} jobs more)" if len(jobs) > SHOWN else ""
        for job_id in jobs[:SHOWN]:
            logger.warning("job %s %s%s", job_id, words, more, extra={"job_id": job_id})
