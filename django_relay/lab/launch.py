"""The program that a worker of the lab is: ``manage.py relay_worker`` on a leash.

``python -m django_relay.lab.launch relay_worker --queues ...``. Its standard input is a pipe whose
other end the lab holds: when that closes, because the lab ended however it ended, so does this.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

#: Seconds from being asked to stop to being made to.
GRACE = 2.0


def _follow() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run a management command as manage.py would, in this process."""
    from django.core.management import execute_from_command_line

    threading.Thread(target=_follow, daemon=True).start()
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
