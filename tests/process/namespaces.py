"""Start a worker as process 1 of a process namespace of its own, as in a container."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

_NEW_USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]

#: Put before a command: it becomes process 1, and all of the namespace ends with it.
NEW_PIDS = ["unshare", *_NEW_USER, "--pid", "--fork", "--mount-proc"]


@functools.cache
def why_not() -> str | None:
    """Say why this host does not allow it, or None where it does."""
    if shutil.which("unshare") is None:
        return "there is no unshare here"
    tried = subprocess.run([*NEW_PIDS, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"unshare is not permitted: {tried.stderr.strip()}"
