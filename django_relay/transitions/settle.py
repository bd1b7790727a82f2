"""Give up a lease: succeed, retry, fail, snooze or release, in batches of one statement.

The token and the lease's end decide, on the database's clock, after the row lock is held. What
becomes of an ending that finds no live lease is told in ``refuse``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django_relay import outcomes
from django_relay.outcomes import Ending, Verb

from .endings import ENDINGS, UNSTORABLE, Settled, accepted, presented
from .halves import in_halves, is_about_data
from .refuse import others
from .renew import forfeit
from .session import Session
from .straighten import straighten_jobs

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


def settle(connection: Session, endings: Sequence[Ending]) -> dict[str, Settled]:
    """Present ``endings`` under their tokens and tell by token what became of each.

    One whose lease or job somebody else has locked is in the answer not at all: present it again.

    What the database rejects spoils its own ending only. That is presented once more, with the
    job's own values put in order; then the attempt is failed in plain words; where even that is
    rejected, the lease ends.
    """
    answers: dict[str, Settled] = {}
    parts = in_halves(endings, partial(_settle, connection), partial(_settle_rejected, connection))
    for part in parts:
        answers |= part
    return answers


def _settle_rejected(connection: Session, ending: Ending, error: Exception) -> dict[str, Settled]:
    """Settle what was rejected alone as far as the database lets us."""
    straighten_jobs(connection, [ending.job_id])
    steps = [partial(_settle, connection, [ending])]
    if ending.outcome.verb is not Verb.RELEASE:  # which gives back what may not even have begun
        why = outcomes.unstorable(type(error).__name__, delay=ending.outcome.delay)
        told = Ending(ending.job_id, ending.token, why, ending.ran)
        steps.append(partial(_settle, connection, [told]))
    steps.append(partial(_forfeit, connection, ending))
    for step in steps:
        try:
            return step()
        except Exception as again:
            if not is_about_data(again):
                raise
    return {}  # presented again, until the lease has run out


def _forfeit(connection: Session, ending: Ending) -> dict[str, Settled]:
    ended = forfeit(connection, ending.job_id, ending.token)
    return {ending.token: UNSTORABLE} if ended else {}


def _settle(connection: Session, endings: Sequence[Ending]) -> dict[str, Settled]:
    with connection.cursor() as cursor:
        cursor.execute(SETTLE, presented(endings))
        found = accepted(cursor.fetchall())
    return found | others(connection, endings, found)
