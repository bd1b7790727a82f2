"""Give up a lease: succeed, retry, fail, snooze or release, in batches of one statement.

The token and the lease's end decide, on the database's clock, after the row lock is held. An ending
that finds no live lease changes nothing and is kept as a ``refused`` event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from django.db import DatabaseError, DataError

from django_relay import outcomes
from django_relay.connection import is_about_rows
from django_relay.outcomes import Ending
from django_relay.states import MAX_INTERRUPTIONS

from .renew import forfeit, still_held
from .session import Session
from .straighten import straighten_jobs


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one ending.

    Accepted: ``state``, and ``kind`` and ``at`` of its event, are set. Refused: ``reason`` is
    ``expired``, ``superseded``, ``cancelled``, ``gone`` where the job itself has, or ``unstorable``
    where no word of it can be stored (its lease ends at once); ``late_ms`` tells how long after the
    lease's end it came, where that is known.
    """

    accepted: bool
    state: str | None = None
    kind: str | None = None
    at: datetime | None = None
    reason: str | None = None
    late_ms: float | None = None


# The endings of a batch, as one JSON text: seven arrays take a driver in Python ten times as long.
ENDINGS = """json_to_recordset(%(endings)s::json) AS e(
    job_id bigint, token uuid, verb text, result text, delay float8, data text, ran float8,
    took float8
  )"""

# Locks: the leases whose job and token match, in job id order, each with its job row. What somebody
# else has locked is skipped, and its ending left for another time: to wait for it would keep all
# others of the batch from their ends, and their leases from being renewed. So an ending waits for
# nobody and is in no deadlock.
# `live` compares the end with the clock only when `held` has the lock: nobody can delete the lease
# or move the job from then on. The columns in `held` are those of the locked rows; the job's state
# is compared as `was`. Rows are found by key, one by one (`= ANY (ARRAY[...])`), as in a claim and
# for its reason.
# One rival can delete a lease row; whoever finds it gone changes nothing.
SETTLING = f"""
held AS MATERIALIZED (
  SELECT
    e.*, l.worker, l.claim, l.expires_at, l.begun_at, l.renewals, l.cancel_requested_at,
    j.state AS was, j.failures, j.interruptions, j.max_attempts
  FROM {ENDINGS}
  JOIN django_relay_lease AS l ON l.job_id = ANY (ARRAY[e.job_id]) AND l.token = e.token
  JOIN django_relay_job AS j ON j.id = ANY (ARRAY[e.job_id])
  ORDER BY e.job_id
  FOR UPDATE OF l SKIP LOCKED
  FOR NO KEY UPDATE OF j SKIP LOCKED
), live AS MATERIALIZED (
  SELECT held.*, clock_timestamp() AS at FROM held WHERE expires_at > clock_timestamp()
), begun AS MATERIALIZED (
  SELECT live.*, COALESCE(begun_at, at - make_interval(secs => ran)) AS began FROM live
), decided AS MATERIALIZED (
  SELECT *, CASE
    WHEN verb = 'succeed' THEN 'successful'
    WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
    WHEN verb = 'fail' THEN 'failed'
    WHEN verb = 'retry' AND failures + 1 >= max_attempts THEN 'failed'
    WHEN verb IN ('retry', 'snooze') THEN 'scheduled'
    WHEN began IS NOT NULL
      AND (max_attempts = 1 OR interruptions + 1 >= %(max_interruptions)s) THEN 'failed'
    ELSE 'ready'
  END AS state
  FROM begun
), freed AS (
  DELETE FROM django_relay_lease AS l USING decided AS d WHERE l.job_id = ANY (ARRAY[d.job_id])
), settled AS (
  UPDATE django_relay_job AS j SET
    state = d.state,
    result = CASE WHEN d.verb = 'succeed' THEN d.result::json ELSE j.result END,
    failures = LEAST(j.failures + (d.verb IN ('retry', 'fail'))::integer, 1000000000),
    interruptions = LEAST(
      j.interruptions + (d.verb = 'release' AND d.began IS NOT NULL)::integer, 1000000000
    ),
    run_after = CASE
      WHEN d.state = 'scheduled' THEN d.at + make_interval(secs => d.delay) ELSE j.run_after
    END,
    started_at = COALESCE(j.started_at, d.began),
    last_attempted_at = COALESCE(d.began, j.last_attempted_at),
    finished_at = CASE WHEN d.state IN ('successful', 'failed', 'cancelled') THEN d.at END,
    unique_key = CASE WHEN d.state IN ('scheduled', 'ready') THEN j.unique_key END
  FROM decided AS d
  WHERE j.id = ANY (ARRAY[d.job_id]) AND d.was = 'running'
  RETURNING j.id, d.token, d.state, j.queue, CASE
    WHEN d.state = 'successful' THEN 'succeeded'
    WHEN d.state IN ('failed', 'cancelled') THEN d.state
    WHEN d.verb = 'retry' THEN 'retried'
    WHEN d.verb = 'snooze' THEN 'snoozed'
    ELSE 'released'
  END AS kind, d.at, d.claim, d.worker, d.verb, d.data, d.renewals, d.began, d.took, d.delay
), ended AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, data)
  SELECT
    id, kind, at, claim, token, worker,
    jsonb_strip_nulls(jsonb_build_object(
      'state', state,
      'verb', verb,
      'began', began IS NOT NULL,
      'ran_ms', round(
        (COALESCE(took, EXTRACT(EPOCH FROM at - began)::float8) * 1000)::numeric, 3
      ),
      'renewals', NULLIF(renewals, 0),
      'run_after', CASE WHEN state = 'scheduled' THEN at + make_interval(secs => delay) END,
      'error', CASE WHEN kind = 'failed' AND verb = 'release' THEN %(interrupted)s::jsonb END
    )) || COALESCE(data::jsonb, '{{}}')
  FROM settled
)
"""
SETTLED = "SELECT token::text, state, kind, at FROM settled"
SETTLE = f"WITH {SETTLING} {SETTLED}"

# Locks nothing. An ending event of this job and token that was not somebody else's doing (a rescue
# says `why`, a person is an actor) means that the ending was accepted and its answer was lost;
# there is one at most. One probe of the index an ending: a plain join, planned before the events
# were ever analyzed, takes each job to have a two-hundredth of them and reads the whole table.
ACCEPTED = f"""
SELECT a.token::text, a.data->>'state', a.kind, a.at
FROM {ENDINGS}
CROSS JOIN LATERAL (
  SELECT v.token, v.data, v.kind, v.at FROM django_relay_event AS v
  WHERE v.job_id = e.job_id AND v.token = e.token
    AND v.kind IN ('succeeded', 'retried', 'failed', 'snoozed', 'released', 'cancelled')
    AND v.actor IS NULL
    AND NOT COALESCE(v.data ? 'why', false)
  LIMIT 1
) AS a
"""

# Moves nothing. Locks the job rows FOR KEY SHARE, which only a prune contradicts: the event is
# inserted from the job's row, so a job that has been, or is being, pruned gets none. How late:
# since the end of the lease if it is still there, else since the end that the rescue wrote down.
REFUSE = f"""
WITH late AS MATERIALIZED (
  SELECT
    e.job_id, e.token, e.verb, c.claim, c.worker,
    CASE
      WHEN l.token IS NOT NULL THEN 'expired'
      WHEN j.state = 'cancelled' THEN 'cancelled'
      ELSE 'superseded'
    END AS reason,
    COALESCE(l.expires_at, (
      SELECT (r.data->>'expired_at')::timestamptz FROM django_relay_event AS r
      WHERE r.job_id = e.job_id AND r.token = e.token AND r.data ? 'expired_at' LIMIT 1
    )) AS expired_at
  FROM {ENDINGS}
  JOIN django_relay_job AS j ON j.id = ANY (ARRAY[e.job_id])
  LEFT JOIN django_relay_lease AS l ON l.job_id = ANY (ARRAY[e.job_id]) AND l.token = e.token
  LEFT JOIN LATERAL (
    SELECT v.claim, v.worker FROM django_relay_event AS v
    WHERE v.job_id = e.job_id AND v.token = e.token AND v.kind = 'claimed' LIMIT 1
  ) AS c ON true
  ORDER BY e.job_id
  FOR KEY SHARE OF j
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, data)
  SELECT
    job_id, 'refused', clock_timestamp(), claim, token, worker,
    jsonb_strip_nulls(jsonb_build_object(
      'reason', reason,
      'would_have', verb,
      'late_ms', round((EXTRACT(EPOCH FROM clock_timestamp() - expired_at) * 1000)::numeric, 3)
    ))
  FROM late
  RETURNING token, data
)
SELECT token::text, data->>'reason', (data->>'late_ms')::float8 FROM event
"""

_INTERRUPTED = (
    '{"class": "django_relay.exceptions.WorkerLost", "message": "The worker was stopped while this '
    'job ran, and the job may not be started again.", "traceback": ""}'
)


def settle(connection: Session, endings: Sequence[Ending]) -> dict[str, Settled]:
    """Present ``endings`` under their tokens and tell by token what became of each.

    One whose lease or job somebody else has locked is in the answer not at all: present it again.

    A value that the database refuses to store spoils its own ending only: the batch is halved until
    that one is found, and its attempt is failed with what the database said.
    """
    try:
        return _settle(connection, endings)
    except (DatabaseError, psycopg.Error, UnicodeError) as error:
        if not is_about_data(error):
            raise
        if len(endings) > 1:
            half = len(endings) // 2
            return settle(connection, endings[:half]) | settle(connection, endings[half:])
        return _settle_unstorable(connection, endings[0], error)


def is_about_data(error: Exception) -> bool:
    """Tell errors about a value from errors of the database. The driver itself refuses a NUL or a
    lone surrogate."""
    return isinstance(error, DataError | psycopg.DataError | UnicodeError) or is_about_rows(error)


def _settle_unstorable(connection: Session, ending: Ending, error: Exception) -> dict[str, Settled]:
    """Fail the attempt in plain words. Where even that is refused, try again with the job's own
    values put in order; where they are, end the lease."""
    try:
        return _settle(connection, [_unstorable(ending, error)])
    except (DatabaseError, psycopg.Error, UnicodeError) as again:
        if not is_about_data(again):
            raise
    if ending.job_id in straighten_jobs(connection):
        return settle(connection, [ending])
    ended = forfeit(connection, ending.job_id, ending.token)
    return {ending.token: Settled(False, reason="unstorable")} if ended else {}


def _unstorable(ending: Ending, error: Exception) -> Ending:
    message = f"The database refused to store this outcome: {type(error).__name__}."
    outcome = outcomes.raised(
        {"class": "django_relay.storable.Unstorable", "message": message, "traceback": ""},
        delay=ending.outcome.delay,
    )
    return Ending(ending.job_id, ending.token, outcome, ending.ran)


def _settle(connection: Session, endings: Sequence[Ending]) -> dict[str, Settled]:
    with connection.cursor() as cursor:
        cursor.execute(SETTLE, presented(endings))
        found = accepted(cursor.fetchall())
    return found | others(connection, endings, found)


def accepted(rows: Iterable[tuple[Any, ...]]) -> dict[str, Settled]:
    """Read which of the presented endings were accepted, by token; ``others`` asks about those that
    are not among them."""
    return {row[0]: Settled(True, *row[1:]) for row in rows}


def others(
    connection: Session, endings: Sequence[Ending], accepted: dict[str, Settled]
) -> dict[str, Settled]:
    """Tell what became of the ``endings`` that are not among the ``accepted``."""
    missing = [ending for ending in endings if ending.token not in accepted]
    if not missing:
        return {}
    # Their leases or jobs were locked by somebody: neither accepted nor refused yet.
    busy = still_held(connection, [(ending.job_id, ending.token) for ending in missing])
    return refuse(connection, [each for each in missing if each.token not in busy])


def refuse(connection: Session, endings: Sequence[Ending]) -> dict[str, Settled]:
    """Write down that ``endings`` found no live lease, but for those that were accepted before."""
    if not endings:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(ACCEPTED, presented(endings))
        settled = accepted(cursor.fetchall())
    late = [ending for ending in endings if ending.token not in settled]
    if late:
        with connection.cursor() as cursor:
            cursor.execute(REFUSE, presented(late))
            for token, reason, late_ms in cursor.fetchall():
                settled[token] = Settled(False, reason=reason, late_ms=late_ms)
    gone = Settled(False, reason="gone")
    return {ending.token: settled.get(ending.token, gone) for ending in endings}


def presented(endings: Sequence[Ending]) -> dict[str, object]:
    """Make the values of the statements about ``endings``."""
    rows = [
        {
            "job_id": e.job_id,
            "token": e.token,
            "verb": e.outcome.verb.value,
            "result": e.outcome.result,
            "delay": float(e.outcome.delay),
            "data": e.outcome.data,
            "ran": e.ran,
            "took": e.took,
        }
        for e in endings
    ]
    return {
        "endings": _encode(rows),
        "max_interruptions": MAX_INTERRUPTIONS,
        "interrupted": _INTERRUPTED,
    }


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
