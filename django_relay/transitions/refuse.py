"""Endings that were not accepted: refused, accepted before, or to be presented again.

One that finds no live lease changes nothing and is kept as a ``refused`` event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django_relay.outcomes import Ending

from .endings import ENDINGS, UNSTORABLE, Settled, accepted, presented
from .halves import in_halves
from .renew import still_held
from .session import Session

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
        for part in in_halves(late, partial(_refuse, connection), _unwritten):
            settled |= part
    gone = Settled(False, reason="gone")
    return {ending.token: settled.get(ending.token, gone) for ending in endings}


def _unwritten(ending: Ending, _: Exception) -> dict[str, Settled]:
    """Where not even the event can be stored, the log alone tells of the refusal."""
    return {ending.token: UNSTORABLE}


def _refuse(connection: Session, endings: Sequence[Ending]) -> dict[str, Settled]:
    with connection.cursor() as cursor:
        cursor.execute(REFUSE, presented(endings))
        return {
            token: Settled(False, reason=reason, late_ms=late_ms)
            for token, reason, late_ms in cursor.fetchall()
        }
