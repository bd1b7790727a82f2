"""Real workers, real signals, a real PostgreSQL: what is promised, held against a ledger.

A test opens a ``Scene`` (scene.py): a database with empty tables and a role that is no superuser.
It starts workers in it (workers.py), enqueues tasks (tasks.py) through the public call, does harm,
and reads from the ledger (ledger.py), which handlers write through sessions of their own, how often
and when they really began. ``after_check`` (aftercheck.py) is the last line of most tests.
"""

import os

#: Whether the cases are played in full: minutes each, asked for by the environment.
LONG = bool(os.environ.get("RELAY_TEST_LONG"))
