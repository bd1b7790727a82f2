"""What workers say of themselves, and what becomes of those that say nothing any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_relay import transitions
from django_relay.transitions import NewJob

from .stage import Session, Stage

AGE = "UPDATE django_relay_worker SET seen_at = seen_at - %s::interval WHERE id = %s"


def attend(stage: Stage, name: str, *, waiting: bool = True, ago: str = "0") -> None:
    options: Any = {"queues": ["mail"], "processes": 1, "slots": 4, "version": "0"}
    transitions.attend(stage.db, name, waiting=waiting, **options)
    stage.db.execute(AGE, [ago, name])


def workers(stage: Stage) -> dict[str, tuple[bool, bool]]:
    """Of each: whether it waits, and whether it has said that it stopped."""
    rows = stage.all("SELECT id, waiting, stopped_at IS NOT NULL FROM django_relay_worker")
    return {name: (waiting, stopped) for name, waiting, stopped in rows}


def heard(session: Session) -> list[str]:
    return sorted(each.payload for each in session.notifies(timeout=0.5))


def test_a_worker_is_there_waits_and_leaves_and_may_come_back(stage: Stage) -> None:
    attend(stage, "one")
    assert workers(stage) == {"one": (True, False)}
    attend(stage, "one", waiting=False)
    assert workers(stage) == {"one": (False, False)}
    attend(stage, "one")
    transitions.leave(stage.db, "one")
    assert workers(stage) == {"one": (False, True)}
    transitions.leave(stage.db, "nobody")
    attend(stage, "one")
    assert workers(stage) == {"one": (True, False)}


def test_a_worker_whose_row_is_locked_waits_for_nobody(stage: Stage) -> None:
    attend(stage, "one")
    somebody = stage.connect(autocommit=False)
    somebody.execute("SELECT 1 FROM django_relay_worker FOR UPDATE")
    stage.db.execute("SET lock_timeout = '1s'")
    options: Any = {"queues": None, "processes": 1, "slots": 4, "version": "0"}
    transitions.attend(stage.db, "one", waiting=False, **options)
    somebody.rollback()
    assert workers(stage) == {"one": (True, False)}
    transitions.attend(stage.db, "one", waiting=False, **options)
    stage.db.execute("RESET lock_timeout")
    assert workers(stage) == {"one": (False, False)}


def test_who_is_silent_for_a_minute_waits_no_more_and_after_a_day_is_forgotten(
    stage: Stage,
) -> None:
    attend(stage, "here")
    attend(stage, "silent", ago="2 minutes")
    attend(stage, "busy", waiting=False, ago="2 minutes")
    attend(stage, "gone", ago="2 days")
    transitions.forget_silent(stage.db)
    assert workers(stage) == {
        "here": (True, False),
        "silent": (False, False),
        "busy": (False, False),
    }


def test_queues_are_notified_once_each_and_only_where_somebody_waits(stage: Stage) -> None:
    listener = stage.connect()
    listener.execute("LISTEN django_relay")
    transitions.notify(stage.db, ["mail", "images", "mail"])
    assert heard(listener) == []
    attend(stage, "one")
    transitions.notify(stage.db, ["mail", "images", "mail"])
    transitions.notify(stage.db, [])
    assert heard(listener) == ["images", "mail"]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_an_enqueue_notifies_its_queue_only_where_somebody_waits_and_something_is_due(
    stage: Stage, many: bool
) -> None:
    listener = stage.connect()
    listener.execute("LISTEN django_relay")

    def enqueue(**changes: Any) -> None:
        values = {"backend": "default", "task": "a.b", "args": "[]", "kwargs": "{}"}
        job: Any = NewJob(**(values | changes))
        if many:
            transitions.enqueue_many(stage.db, job, [("[1]", "{}"), ("[2]", "{}")])
        else:
            transitions.enqueue(stage.db, job)

    attend(stage, "busy", waiting=False)
    enqueue(queue="unheard")
    attend(stage, "idle")
    enqueue(queue="later", run_after=timedelta(hours=1))
    enqueue(queue="silent", notify=False)
    enqueue(queue="mail")
    assert heard(listener) == ["mail"]
