"""The four actions of the admin: the question, the deed, what is told of it, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from django_relay import outcomes, transitions
from django_relay.admin import actions, verbs
from django_relay.models import Event
from tests import lives
from tests.db.stage import Stage

SITE = "/admin/django_relay"
pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def post(client: Client, verb: str, jobs: Sequence[int], **data: Any) -> Any:
    return client.post(f"{SITE}/job/act/{verb}/", {"job": list(jobs)} | data, follow=True)


def act(client: Client, verb: str, *jobs: int) -> list[str]:
    """Press the button, say yes, and return what the next page tells."""
    page = post(client, verb, jobs, confirmed="yes", back="job" if len(jobs) == 1 else "")
    assert page.status_code == 200
    return [str(message) for message in page.context["messages"]]


def last_event(job_id: int) -> Event:
    found: Event = Event.objects.filter(job_id=job_id).latest("id")
    return found


def test_cancel_cancels_what_waits_and_asks_what_runs(ada: Client) -> None:
    waits, runs, done = lives.scheduled(), lives.running(), lives.successful()
    assert act(ada, "cancel", waits, runs, done, 999_999) == [
        "1 job cancelled.",
        "1 job asked to stop.",
        "2 jobs skipped: 1 finished already, 1 no longer there.",
    ]
    assert [lives.state(each) for each in (waits, runs, done)] == [
        "cancelled",
        "running",
        "successful",
    ]
    assert last_event(runs).kind == "cancel_requested"


def test_cancel_by_force_takes_the_lease_away(ada: Client) -> None:
    job_id = lives.enqueue()
    claimed = lives.claim(job_id)
    assert act(ada, "force-cancel", job_id) == ["1 job cancelled."]
    assert lives.state(job_id) == "cancelled"
    assert not lives.end(claimed, outcomes.succeeded("1"))
    page = ada.get(f"{SITE}/job/{job_id}/change/").content.decode()
    assert "Late ending refused" in page
    assert "it would have succeeded" in page


def test_requeue_gives_a_finished_job_another_life(ada: Client) -> None:
    failed, runs = lives.failed(), lives.running()
    told = act(ada, "requeue", failed, runs)
    assert told == ["1 job requeued.", "1 job skipped: 1 running."]
    assert (lives.state(failed), lives.state(runs)) == ("ready", "running")


def test_a_running_job_cannot_be_requeued_into_a_second_copy(ada: Client) -> None:
    runs, before = lives.running(), lives.everything()
    assert act(ada, "requeue", runs) == ["1 job skipped: 1 running."]
    assert lives.everything() == before


def test_requeue_says_when_another_job_holds_the_unique_name(ada: Client) -> None:
    first, second = lives.failed(), lives.ready()
    query = "UPDATE django_relay_job SET unique_name = 'u', unique_key = %s WHERE id = %s"
    lives.execute(query, [None, first])
    lives.execute(query, ["u", second])
    assert act(ada, "requeue", first) == ["1 job skipped: 1 whose unique name another job holds."]


def test_run_now_makes_a_scheduled_job_due_and_leaves_a_due_one_alone(ada: Client) -> None:
    later, due = lives.backing_off(), lives.ready()
    told = act(ada, "run-now", later, due)
    assert told == ["1 job made due.", "1 job skipped: 1 due already."]
    assert lives.state(later) == "ready"
    assert Event.objects.filter(job_id=due).count() == 1


@pytest.mark.parametrize(
    ("verb", "life", "kind"),
    [
        (verbs.CANCEL, lives.scheduled, "cancelled"),
        (verbs.FORCE, lives.running, "cancelled"),
        (verbs.REQUEUE, lives.failed, "requeued"),
        (verbs.RUN_NOW, lives.scheduled, "rescheduled"),
    ],
    ids=lambda value: getattr(value, "slug", ""),
)
def test_an_action_leaves_an_event_with_its_actor_and_an_entry_in_the_log(
    verb: verbs.Verb, life: Any, kind: str, ada: Client
) -> None:
    user, job_id = User.objects.get(), life()
    act(ada, verb.slug, job_id)
    event = last_event(job_id)
    assert (event.kind, event.actor) == (kind, f"{user.pk} ada")
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user, entry.change_message) == (str(job_id), user, verb.log)
    history = ada.get(f"{SITE}/job/{job_id}/history/").content.decode()
    assert verb.log in history
    assert "have a change history" not in history


def test_a_long_name_fits_into_the_event(db: None) -> None:
    user = User.objects.create_superuser("x" * 150)
    assert len(actions.actor_of(user)) == 150


def test_the_question_says_how_many_and_which_and_changes_nothing(ada: Client) -> None:
    ids = [lives.scheduled() for _ in range(23)] + [lives.successful(), 999_999]
    before = lives.everything()
    page = post(ada, "cancel", ids, back="state=scheduled")
    text = page.content.decode()
    assert page.context["title"] == "Cancel: 23 of 25 jobs"
    assert len(page.context["lines"]) == actions.NAMED
    assert "and 4 more" in text
    assert page.context["summary"] == [
        ("will be cancelled", 23, True),
        ("finished already", 1, False),
    ]
    assert page.context["gone"] == 1
    assert text.count('name="job"') == 25
    assert page.context["target"] == f"{SITE}/job/?state=scheduled"
    assert lives.everything() == before


def test_where_nothing_can_be_done_there_is_no_yes(ada: Client) -> None:
    page = post(ada, "requeue", [lives.running()])
    assert page.context["affected"] == 0
    answer = page.content.decode().partition('class="relay-answer"')[2]
    assert "<button" not in answer.partition("</form>")[0]


def test_the_answer_leads_back_to_the_list_as_it_was_and_nowhere_else(ada: Client) -> None:
    jobs = {"job": [lives.scheduled(), lives.scheduled()], "confirmed": "yes"}
    back = "queue=default&before=99&next=https://example.com/"
    answer = ada.post(f"{SITE}/job/act/cancel/", jobs | {"back": back})
    assert answer["Location"] == f"{SITE}/job/?queue=default&before=99"


@pytest.mark.parametrize("jobs", [[], ["x", "-1", "9" * 30, "1;2"]])
def test_without_a_job_nothing_is_asked(jobs: list[Any], ada: Client) -> None:
    page = post(ada, "cancel", jobs)
    assert [str(message) for message in page.context["messages"]] == ["No job was chosen."]


def test_no_more_jobs_at_a_time_than_a_page_could_name(ada: Client) -> None:
    page = post(ada, "cancel", range(1, actions.MOST + 2), confirmed="yes")
    told = [str(message) for message in page.context["messages"]]
    assert told == [f"At most {actions.MOST} jobs at a time."]


def test_an_unknown_action_is_not_found(ada: Client) -> None:
    assert ada.post(f"{SITE}/job/act/delete/", {"job": 1}).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_an_action_is_one_transaction(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    job_id = stage.enqueue()

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the log cannot be written")

    monkeypatch.setattr(LogEntry.objects, "log_actions", broken)
    with pytest.raises(RuntimeError):
        act(client, "cancel", job_id)
    assert (stage.state(job_id), stage.kinds(job_id)) == ("ready", ["enqueued"])


@pytest.mark.django_db(transaction=True)
def test_a_job_that_others_hold_locked_is_told_and_nothing_changes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package has a function of the module's name.
    monkeypatch.setattr(import_module("django_relay.transitions.cancel"), "_TRIES", 3)
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    free, locked = stage.enqueue(), stage.enqueue()
    other = stage.connect(autocommit=False)
    other.execute("SELECT 1 FROM django_relay_job WHERE id = %s FOR UPDATE", [locked])
    (told,) = act(client, "cancel", free, locked)
    assert told.startswith("Nothing was changed")
    other.rollback()
    assert (stage.state(free), stage.state(locked)) == ("ready", "ready")
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_became_ready_is_notified_with_the_commit(stage: Stage) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    job_id = stage.enqueue(queue="mail", run_after=timedelta(hours=1))
    options = {"queues": None, "processes": 1, "slots": 1, "version": "1", "waiting": True}
    transitions.attend(stage.db, "w-1-2-c", **options)  # type: ignore[arg-type]
    listener = stage.connect()
    listener.execute("LISTEN django_relay")
    act(client, "run-now", job_id)
    assert [told.payload for told in listener.notifies(timeout=10, stop_after=1)] == ["mail"]
