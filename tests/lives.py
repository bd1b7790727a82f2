"""Jobs with a life behind them, for pages to show: each state, a rescue, a refusal, a long history.

All of it goes through transitions on Django's own connection, so it lies within the transaction of
a test that has one. Where it takes time, rows are made older.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection

from django_relay import outcomes, transitions
from django_relay.outcomes import Ending, Outcome
from django_relay.transitions import Claimed, NewJob

FIRST, SECOND = "shop-1-4121-a8f3c2", "shop-2-977-0b7d11"
ERROR = {
    "class": "requests.exceptions.ConnectionError",
    "message": "api.example.com:443: the connection was refused\nand a second line",
    "traceback": 'Traceback (most recent call last):\n  File "shop/tasks.py", line 12, in charge\n'
    "    gateway.charge(order)\nrequests.exceptions.ConnectionError: refused\n",
}
ACTIONS = ("cancel_job", "force_cancel_job", "requeue_job", "run_job_now")


def execute(query: str, values: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(query, values)


def value(query: str, values: Any = None) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        row = cursor.fetchone()
    return row[0] if row else None


def state(job_id: int) -> str | None:
    found: str | None = value("SELECT state FROM django_relay_job WHERE id = %s", [job_id])
    return found


def everything() -> list[tuple[Any, ...]]:
    """All that an action could change, to be compared with what it is later."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT j.id, j.state, j.run_after, j.claims, l.token, l.cancel_requested_at, "
            "(SELECT count(*) FROM django_relay_event AS e WHERE e.job_id = j.id), "
            "(SELECT count(*) FROM django_admin_log) "
            "FROM django_relay_job AS j LEFT JOIN django_relay_lease AS l ON l.job_id = j.id "
            "ORDER BY j.id"
        )
        return list(cursor.fetchall())


def user(name: str, *permissions: str, **flags: bool) -> User:
    """Make a member of staff with these permissions of the app."""
    made = User.objects.create_user(name, password="secret", **({"is_staff": True} | flags))
    of_app = Permission.objects.filter(content_type__app_label="django_relay")
    found = of_app.filter(codename__in=permissions)
    assert found.count() == len(permissions)
    made.user_permissions.set(found)
    return made


# ---------------------------------------------------------------------- workers and steps


def worker(name: str, *, queues: str | None = None, seen: timedelta = timedelta(0)) -> None:
    """Let a worker of 3 x 4 slots be there; ``queues`` is a JSON text, ``seen`` how long ago."""
    execute(
        "INSERT INTO django_relay_worker (id, queues, processes, slots, version, started_at, "
        "seen_at, waiting) VALUES (%s, %s, 3, 4, '0.1.0', clock_timestamp() - interval '3 h', "
        "clock_timestamp() - %s, false)",
        [name, queues, seen],
    )


def enqueue(**changes: Any) -> int:
    values = {"backend": "default", "queue": "default", "task": "shop.tasks.charge_card"}
    values |= {"args": '["order-17", 4200]', "kwargs": '{"currency": "EUR"}', "max_attempts": 3}
    return transitions.enqueue(connection, NewJob(**(values | changes))).id


def claim(job_id: int, by: str = f"{FIRST}/1", *, lease: float = 30.0) -> Claimed:
    """Claim this job: the others are out of the way for a moment."""
    own = f"only {job_id}"
    queue = value("SELECT queue FROM django_relay_job WHERE id = %s", [job_id])
    execute("UPDATE django_relay_job SET queue = %s WHERE id = %s", [own, job_id])
    options: Any = {"database": "default", "queues": [own], "worker": by, "lease": lease}
    alone = value("SELECT losses > 0 FROM django_relay_job WHERE id = %s", [job_id])
    (claimed,) = transitions.claim(connection, 1, alone=alone, **options).jobs
    execute("UPDATE django_relay_job SET queue = %s WHERE id = %s", [queue, job_id])
    return claimed


def end(claimed: Claimed, outcome: Outcome, *, ran: float = 1.234) -> bool:
    """Present an ending; tell whether it was accepted."""
    ending = Ending(claimed.job_id, claimed.token, outcome, ran)
    return transitions.settle(connection, [ending])[claimed.token].accepted


def age(job_id: int, by: timedelta) -> None:
    """Make a job older, with its events and its lease."""
    execute(
        "UPDATE django_relay_job SET enqueued_at = enqueued_at - %(by)s, run_after = run_after - "
        "%(by)s, started_at = started_at - %(by)s, finished_at = finished_at - %(by)s, "
        "last_attempted_at = last_attempted_at - %(by)s WHERE id = %(id)s",
        {"by": by, "id": job_id},
    )
    execute("UPDATE django_relay_event SET at = at - %s WHERE job_id = %s", [by, job_id])
    for key in ("expired_at", "run_after"):
        execute(
            "UPDATE django_relay_event SET data = jsonb_set(data, ARRAY[%(key)s], to_jsonb("
            "(data->>%(key)s)::timestamptz - %(by)s)) WHERE job_id = %(id)s AND data ? %(key)s",
            {"key": key, "by": by, "id": job_id},
        )
    execute(
        "UPDATE django_relay_lease SET acquired_at = acquired_at - %(by)s, begun_at = begun_at - "
        "%(by)s, expires_at = expires_at - %(by)s WHERE job_id = %(id)s",
        {"by": by, "id": job_id},
    )


# ---------------------------------------------------------------------- whole lives


def ready(**changes: Any) -> int:
    return enqueue(**changes)


def scheduled(**changes: Any) -> int:
    return enqueue(run_after=timedelta(hours=2), **changes)


def running(**changes: Any) -> int:
    job_id = enqueue(**changes)
    claim(job_id)
    return job_id


def successful(**changes: Any) -> int:
    job_id = enqueue(**changes)
    end(claim(job_id), outcomes.succeeded('{"receipt": "R-17"}'), ran=0.12)
    return job_id


def failed(**changes: Any) -> int:
    job_id = enqueue(**changes)
    end(claim(job_id), outcomes.failed(ERROR))
    return job_id


def cancelled(**changes: Any) -> int:
    job_id = enqueue(**changes)
    transitions.cancel(connection, [job_id], actor="1 ada")
    return job_id


def backing_off(**changes: Any) -> int:
    """A job that has failed once and waits for its second attempt."""
    job_id = enqueue(**changes)
    end(claim(job_id), outcomes.raised(ERROR, delay=90.0))
    return job_id


def taken_over(**changes: Any) -> int:
    """A job lost by its first worker, whose success came too late, and done by the second."""
    job_id = enqueue(**changes)
    late = claim(job_id)
    age(job_id, timedelta(seconds=31))
    assert [job_id] == [rescued.job_id for rescued in transitions.rescue_expired(connection)]
    second = claim(job_id, f"{SECOND}/1")
    age(job_id, timedelta(seconds=2))
    assert not end(late, outcomes.succeeded("1"), ran=33.0)
    assert end(second, outcomes.raised(ERROR, delay=5.0))
    transitions.reschedule(connection, [job_id], run_after=timedelta(0), actor="1 ada")
    assert end(claim(job_id, f"{SECOND}/3"), outcomes.succeeded('{"receipt": "R-18"}'), ran=0.4)
    return job_id


def long_lived(events: int, **changes: Any) -> int:
    """A job that has failed again and again: one ``enqueued``, then claims and failures."""
    job_id = enqueue(max_attempts=None, **changes)
    execute(
        """
        INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, data)
        SELECT %(id)s, CASE WHEN i %% 2 = 1 THEN 'claimed' ELSE 'retried' END,
          clock_timestamp() + i * interval '1 s', (i + 1) / 2, gen_random_uuid(), 'w-1-2-c/1',
          CASE WHEN i %% 2 = 0 THEN jsonb_build_object(
            'state', 'scheduled', 'verb', 'retry', 'ran_ms', 12.5, 'error', %(error)s::jsonb
          ) END
        FROM generate_series(1, %(events)s) AS i
        """,
        {"id": job_id, "events": events, "error": json.dumps(ERROR)},
    )
    execute(
        "UPDATE django_relay_job SET claims = %(n)s, failures = %(n)s, state = 'scheduled', "
        "run_after = clock_timestamp() + interval '1 h' WHERE id = %(id)s",
        {"id": job_id, "n": events // 2},
    )
    return job_id


def snoozed(**changes: Any) -> int:
    """A job that its own task has put aside."""
    job_id = enqueue(**changes)
    end(claim(job_id), outcomes.snoozed(30.0))
    return job_id


def lost_twice(**changes: Any) -> int:
    """A job that has lost its worker twice and waits a while before its next claim."""
    job_id = enqueue(**changes)
    for _ in range(2):
        claim(job_id)
        age(job_id, timedelta(seconds=31))
        transitions.rescue_expired(connection)
    return job_id


def rescheduled(**changes: Any) -> int:
    """A job that a person has given another time."""
    job_id = enqueue(**changes)
    transitions.reschedule(connection, [job_id], run_after=timedelta(minutes=10), actor="1 ada")
    return job_id


def of_every_kind() -> dict[str, int]:
    """One job of each kind, and two workers: the older first, as a shop has them by noon."""
    worker(FIRST, queues='["default", "images", "mail"]')
    worker(SECOND, queues='["mail"]', seen=timedelta(minutes=3))
    return of_every_kind_of_job()


def of_every_kind_of_job() -> dict[str, int]:
    """One job of each kind."""
    lives: dict[str, int] = {
        "successful": successful(),
        "failed": failed(task="shop.tasks.make_thumbnail", queue="images"),
        "cancelled": cancelled(task="shop.tasks.build_report"),
        "taken over": taken_over(),
        "backing off": backing_off(task="shop.tasks.send_receipt", queue="mail"),
        "scheduled": scheduled(task="shop.tasks.build_report"),
        "running": running(task="shop.tasks.make_thumbnail", queue="images"),
        "ready": ready(task="shop.tasks.send_receipt", queue="nobody", priority=10),
    }
    age(lives["successful"], timedelta(hours=3))
    age(lives["failed"], timedelta(minutes=12))
    age(lives["ready"], timedelta(minutes=32))
    return lives
