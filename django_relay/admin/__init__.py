"""The Django admin of the package: pages to look at, and four actions that call transitions.

Importing it registers them with Django's own site. For another site: ``site.register(Job,
JobAdmin)`` and so on. Nothing here writes to a table of the package; the only writes of its own are
the entries in the admin's log.
"""

from .events import EventAdmin
from .jobs import JobAdmin
from .leases import LeaseAdmin
from .workers import WorkerAdmin

__all__ = ["EventAdmin", "JobAdmin", "LeaseAdmin", "WorkerAdmin"]
