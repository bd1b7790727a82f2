"""Serves the example project's site until Ctrl-C, with a log-in for the admin."""

from __future__ import annotations

import os
import secrets
import socket

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command

NAME = "admin"


def serve() -> None:
    """Serve on port 8000, or any free one; returns or raises SystemExit at Ctrl-C."""
    port = _free_port()
    print(f"\nThe shop:  http://127.0.0.1:{port}/")
    print(f"The admin: http://127.0.0.1:{port}/admin/   {_log_in()}")
    print("Ctrl-C ends the site, the workers and the database.\n", flush=True)
    call_command("runserver", f"127.0.0.1:{port}", use_reloader=False)


def _log_in() -> str:
    """Return the log-in; the password is made once and kept beside the results."""
    kept = settings.RESULTS / ".admin-password"
    users = get_user_model().objects
    if kept.exists() and users.filter(username=NAME).exists():
        return f"log in as {NAME}, password {kept.read_text()}"
    if users.filter(username=NAME).exists() and "DATABASE_URL" in os.environ:
        return f"log in as {NAME} with the password that you gave it in your database"
    password = secrets.token_urlsafe(9)
    user, _ = users.get_or_create(
        username=NAME, defaults={"is_staff": True, "is_superuser": True, "is_active": True}
    )
    user.set_password(password)
    user.save()
    kept.touch(mode=0o600)
    kept.write_text(password)
    return f"log in as {NAME}, password {password}"


def _free_port() -> int:
    for wanted in (8000, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")
