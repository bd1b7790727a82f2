"""What a person may do to jobs: four verbs, each with its permission, its question and its words.

A verb calls one function of ``transitions`` on Django's own connection and tells of every job what
became of it. Asking, confirming and the log are ``actions``' part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_relay import transitions
from django_relay.states import FINAL, WAITING, State
from django_relay.transitions import Cancelled

Words = str | Promise
#: What became of the jobs to which something was done, by id.
Done = dict[int, Words]


@dataclass(frozen=True, slots=True)
class Verb:
    """One action. ``effects`` says what it would do to a job, by the job's state.

    ``refusals`` says why it does nothing to a job, by the state in which the job was found; a job
    that is there and in none of these states had been locked by somebody else. ``log`` is the
    entry in the admin's log, which keeps no language. ``button`` are the states in which a job's
    own page offers the verb, where these are fewer than it applies to.
    """

    slug: str
    permission: str
    label: Words
    question: Words
    warning: Words
    effects: Mapping[str, Words]
    refusals: Mapping[str, Words]
    log: str
    act: Callable[[Any, Sequence[int], str], Done]
    danger: bool = False
    button: frozenset[str] | None = None

    def offered(self, state: str) -> bool:
        """Tell whether the page of a job in ``state`` has a button for the verb."""
        return state in (self.effects if self.button is None else self.button)

    def applies(self, state: str) -> bool:
        """Tell whether the verb would do something to a job in ``state``."""
        return state in self.effects


_FINISHED: dict[str, Words] = {
    State.SUCCESSFUL: _("finished already"),
    State.FAILED: _("finished already"),
    State.CANCELLED: _("cancelled already"),
}
_UNFINISHED: dict[str, Words] = {
    State.BLOCKED: _("not finished"),
    State.SCHEDULED: _("not finished"),
    State.READY: _("not finished"),
    State.RUNNING: _("running"),
}
_STOPPED = _("cancelled")
_ASKED = _("asked to stop")


def _cancel(connection: Any, ids: Sequence[int], actor: str) -> Done:
    return _cancelled(transitions.cancel(connection, ids, actor=actor))


def _force(connection: Any, ids: Sequence[int], actor: str) -> Done:
    return _cancelled(transitions.cancel(connection, ids, actor=actor, force=True))


def _cancelled(outcome: Mapping[int, Cancelled]) -> Done:
    said: dict[Cancelled, Words] = {Cancelled.CANCELLED: _STOPPED, Cancelled.ASKED: _ASKED}
    return {job_id: said[word] for job_id, word in outcome.items() if word in said}


def _requeue(connection: Any, ids: Sequence[int], actor: str) -> Done:
    return dict.fromkeys(transitions.requeue(connection, ids, actor=actor), _("requeued"))


def _run_now(connection: Any, ids: Sequence[int], actor: str) -> Done:
    done = transitions.reschedule(connection, ids, run_after=timedelta(0), actor=actor)
    return dict.fromkeys(done, _("made due"))


CANCEL = Verb(
    slug="cancel",
    permission="cancel_job",
    label=_("Cancel"),
    question=_("Cancel these jobs?"),
    warning=_(
        "A running job is only asked to stop: its worker learns of it with the next renewal of the "
        "lease. If it succeeds all the same, that counts."
    ),
    effects={
        **dict.fromkeys(sorted(WAITING), _("will be cancelled")),
        State.RUNNING: _("will be asked to stop"),
    },
    refusals=_FINISHED,
    log="Cancelled, or asked to stop.",
    act=_cancel,
    danger=True,
)
FORCE = Verb(
    slug="force-cancel",
    permission="force_cancel_job",
    label=_("Cancel by force"),
    question=_("Cancel these jobs by force?"),
    warning=_(
        "The lease of a running job is taken away at once. Its handler may go on for a while, and "
        "whatever it still returns is refused."
    ),
    effects={
        **dict.fromkeys(sorted(WAITING), _("will be cancelled")),
        State.RUNNING: _("will lose its lease and be cancelled"),
    },
    refusals=_FINISHED,
    log="Cancelled by force.",
    act=_force,
    danger=True,
    button=frozenset({State.RUNNING}),
)
REQUEUE = Verb(
    slug="requeue",
    permission="requeue_job",
    label=_("Requeue"),
    question=_("Requeue these jobs?"),
    warning=_("A job that is requeued runs again, with fresh attempts; its result is cleared."),
    effects=dict.fromkeys(sorted(FINAL), _("will be ready again")),
    refusals=_UNFINISHED,
    log="Requeued.",
    act=_requeue,
)
RUN_NOW = Verb(
    slug="run-now",
    permission="run_job_now",
    label=_("Run now"),
    question=_("Run these jobs now?"),
    warning=_("They become due at once and run as soon as a worker is free."),
    effects={State.SCHEDULED: _("will be due now")},
    refusals={
        **_FINISHED,
        State.BLOCKED: _("blocked by something else than time"),
        State.READY: _("due already"),
        State.RUNNING: _("running already"),
    },
    log="Made due now.",
    act=_run_now,
)

VERBS = (CANCEL, FORCE, REQUEUE, RUN_NOW)
