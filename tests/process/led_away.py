"""What a project with two databases does besides running workers; run as a program.

``migrate`` makes the tables of both, ``tour ID`` opens the pages of the admin, requeues a job there
and audits. In one process each, because starting one takes longer than all it does.
"""

from __future__ import annotations

import sys

import django
from django.core.management import call_command

SITE = "/admin/django_relay"


def migrate() -> None:
    """Make the tables, each where the router leads them."""
    for alias in ("default", "queue"):
        call_command("migrate", database=alias, verbosity=0)


def tour(job_id: int) -> None:
    """Fail where a page does not open, the job is not requeued, or the audit finds something."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    for page in ("job/", f"job/{job_id}/change/", "worker/", "lease/", "event/"):
        answer = client.get(f"{SITE}/{page}", follow=True)
        assert answer.status_code == 200, (page, answer.status_code)
    call_command("relay_audit")
    asked = {"job": [job_id], "confirmed": "yes", "back": "job"}
    answer = client.post(f"{SITE}/job/act/requeue/", asked, follow=True)
    assert "1 job requeued" in answer.content.decode(), answer.content.decode()


if __name__ == "__main__":
    django.setup()
    if sys.argv[1] == "migrate":
        migrate()
    else:
        tour(int(sys.argv[2]))
