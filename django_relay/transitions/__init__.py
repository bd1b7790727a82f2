"""Every write to a table of the package, one verb a file, its SQL above its function.

Each function takes the connection first: Django's, so that the write joins the caller's own
transaction, or the worker's bookkeeping session. What is locked is skipped. Of what
touches jobs only three wait: a cancel of running jobs for their leases, by job id, and then for the
jobs; a refusal for a prune; a claim for a lease of that job which somebody's own SQL has inserted
and not committed.
"""

from .attend import attend, forget_silent, leave, notify
from .cancel import Cancelled, cancel
from .claim import Claim, Claimed, claim
from .endings import Settled
from .enqueue import BATCH, CHANNEL, Enqueued, NewJob, enqueue, enqueue_many
from .frontier import Frontier
from .halves import is_about_data, said
from .promote import expire, promote
from .prune import prune
from .quarantine import Notice, Quarantine
from .refuse import others, refuse
from .renew import Held, Renewal, renew
from .requeue import move, requeue, reschedule
from .rescue import Rescued, mend, rescue_child, rescue_expired
from .session import Session
from .settle import settle
from .straighten import straighten_jobs, straighten_leases
from .turn import turn

__all__ = [
    "BATCH",
    "CHANNEL",
    "Cancelled",
    "Claim",
    "Claimed",
    "Enqueued",
    "Frontier",
    "Held",
    "NewJob",
    "Notice",
    "Quarantine",
    "Renewal",
    "Rescued",
    "Session",
    "Settled",
    "attend",
    "cancel",
    "claim",
    "enqueue",
    "enqueue_many",
    "expire",
    "forget_silent",
    "is_about_data",
    "leave",
    "mend",
    "move",
    "notify",
    "others",
    "promote",
    "prune",
    "refuse",
    "renew",
    "requeue",
    "reschedule",
    "rescue_child",
    "rescue_expired",
    "said",
    "settle",
    "straighten_jobs",
    "straighten_leases",
    "turn",
]
