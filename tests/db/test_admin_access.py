"""Who may do what in the admin: every role at every address, by GET, by POST, and without a token.

One rule for all: no GET changes anything, no page shows what its viewer may not see, and an action
takes its own permission, a token and an answer to its question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client

from tests import lives

SITE = "/admin/django_relay"
SECRET = "a" * 32
VERBS = {
    "cancel": "cancel_job",
    "force-cancel": "force_cancel_job",
    "requeue": "requeue_job",
    "run-now": "run_job_now",
}
#: The job of the stage that the verb does something to.
SUBJECT = {"cancel": "running", "force-cancel": "running", "requeue": "failed", "run-now": "waits"}

#: What nobody has, not even a superuser.
NOBODY = "nobody has this"

ROLES: dict[str, tuple[str, ...] | None] = {
    "anonymous": None,
    "superuser": ("*",),
    "no member of staff": ("view_job", "cancel_job", "requeue_job"),
    "staff without permissions": (),
    "view only": ("view_job", "view_event", "view_lease", "view_worker"),
    "events only": ("view_event",),
    "leases only": ("view_lease",),
    "workers only": ("view_worker",),
    "arguments without jobs": ("view_job_arguments",),
    **{f"only {name}": (name,) for name in VERBS.values()},
    **{f"view_job and {name}": ("view_job", name) for name in VERBS.values()},
}


@dataclass(frozen=True)
class Request:
    """An address as it is asked for, the permissions that it takes, and the answer with them."""

    method: str
    address: str
    takes: frozenset[str]
    answer: HTTPStatus
    data: dict[str, Any] = field(default_factory=dict)
    acts: bool = False
    token: bool = True

    def __str__(self) -> str:
        said = "confirmed " if self.acts else ""
        return f"{said}{self.method} {self.address}{'' if self.token else ' without a token'}"


def _requests() -> Iterator[Request]:
    ok, found, no = HTTPStatus.OK, HTTPStatus.FOUND, HTTPStatus.METHOD_NOT_ALLOWED
    pages = {
        "/job/": "view_job",
        "/job/{waits}/change/": "view_job",
        "/job/{waits}/history/": "view_job",
        "/event/": "view_event",
        "/lease/": "view_lease",
        "/worker/": "view_worker",
    }
    for address, permission in pages.items():
        takes = frozenset({permission})
        yield Request("GET", address, takes, ok)
        if "history" not in address:
            yield Request("POST", address, takes, no, {"task": "os.system", "args": "[1]"})
            yield Request("POST", address, takes, no, {"action": "delete_selected"})
    for model in ("job", "event", "lease", "worker"):
        takes = frozenset({f"view_{model}"})
        for method in ("GET", "POST"):
            yield Request(method, f"/{model}/add/", frozenset({NOBODY}), ok)
            yield Request(method, f"/{model}/{{running}}/delete/", takes, found, {"post": "yes"})
    for verb, permission in VERBS.items():
        takes, address = frozenset({"view_job", permission}), f"/job/act/{verb}/"
        data = {"job": f"{{{SUBJECT[verb]}}}", "back": "job"}
        yield Request("GET", address, takes, no, data | {"confirmed": "yes"})
        yield Request("POST", address, takes, ok, data)
        yield Request("POST", address, takes, found, data | {"confirmed": "yes"}, acts=True)
        yield Request("POST", address, takes, found, data | {"confirmed": "yes"}, token=False)


REQUESTS = tuple(_requests())


@pytest.fixture
def stage(db: None) -> dict[str, int]:
    return {"waits": lives.scheduled(), "running": lives.running(), "failed": lives.failed()}


def sign_in(role: str) -> Client:
    client = Client(enforce_csrf_checks=True)
    permissions = ROLES[role]
    if permissions == ("*",):
        client.force_login(User.objects.create_superuser("ada"))
    elif permissions is not None:
        is_staff = role != "no member of staff"
        client.force_login(lives.user("ada", *permissions, is_staff=is_staff))
    client.cookies["csrftoken"] = SECRET
    return client


def expected(role: str, request: Request) -> tuple[HTTPStatus, bool]:
    """Tell the answer that is due, and whether the request is to change something."""
    permissions = ROLES[role]
    if request.method == "POST" and not request.token:
        return HTTPStatus.FORBIDDEN, False
    if permissions is None or role == "no member of staff":
        return HTTPStatus.FOUND, False  # to the log-in
    allowed = permissions == ("*",) or request.takes <= set(permissions)
    if not allowed or NOBODY in request.takes:
        return HTTPStatus.FORBIDDEN, False
    return request.answer, request.acts


def outcome(client: Client, request: Request, stage: dict[str, int]) -> tuple[HTTPStatus, bool]:
    """Make a request, undo what it did, and tell the answer and whether it had changed anything."""
    data = {name: text.format(**stage) for name, text in request.data.items()}
    if request.method == "POST" and request.token:
        data["csrfmiddlewaretoken"] = SECRET
    with transaction.atomic():
        before = lives.everything()
        answer = getattr(client, request.method.lower())(
            SITE + request.address.format(**stage), data
        )
        changed = lives.everything() != before
        assert LogEntry.objects.count() == changed
        transaction.set_rollback(True)
    return HTTPStatus(answer.status_code), changed


@pytest.mark.parametrize("role", ROLES)
def test_every_address_gives_each_role_its_due(role: str, stage: dict[str, int]) -> None:
    client = sign_in(role)
    wrong = {}
    for request in REQUESTS:
        due = expected(role, request)
        if (got := outcome(client, request, stage)) != due:
            wrong[str(request)] = (got, due)
    assert wrong == {}


@pytest.mark.parametrize("verb", VERBS)
def test_a_page_offers_only_the_buttons_that_its_viewer_may_press(
    verb: str, stage: dict[str, int]
) -> None:
    client = Client()
    client.force_login(lives.user("ada", "view_job", VERBS[verb]))
    for address in ("/job/", f"/job/{stage[SUBJECT[verb]]}/change/"):
        page = client.get(SITE + address).content.decode()
        offered = [name for name in VERBS if f'formaction="{SITE}/job/act/{name}/"' in page]
        assert offered == [verb]


def test_who_may_only_look_finds_nothing_to_press(stage: dict[str, int]) -> None:
    client = Client()
    client.force_login(lives.user("ada", "view_job"))
    for address in ("/job/", *(f"/job/{job_id}/change/" for job_id in stage.values())):
        page = client.get(SITE + address).content.decode()
        content = page[page.index('id="content-main"') :]
        assert "formaction" not in content
        assert 'type="checkbox"' not in content
        assert 'method="post"' not in content


@pytest.mark.django_db
def test_the_permissions_of_the_app_are_to_look_and_to_act() -> None:
    found = Permission.objects.filter(content_type__app_label="django_relay")
    assert set(found.values_list("codename", flat=True)) == {
        "view_job",
        "view_event",
        "view_lease",
        "view_worker",
        "view_job_arguments",
        *VERBS.values(),
    }
