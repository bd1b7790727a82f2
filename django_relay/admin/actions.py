"""From a button to a transition: ask first, then act, tell what became of each job, keep a log.

Everything is a POST with a CSRF token, also the question. The act, its events and the entries in
the admin's log are one transaction: all of it or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connections, router, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_relay import transitions
from django_relay.models import Job
from django_relay.states import FINAL

from .listing import Filters
from .places import Place
from .readonly import key_of
from .rows import state_label
from .verbs import REQUEUE, VERBS, Done, Verb, Words
from .windows import Cursor

if TYPE_CHECKING:
    from .readonly import ReadOnlyAdmin

#: Jobs of one action, and of them the question names.
MOST, NAMED = 200, 20

#: The fields of the forms: the jobs, the list that they were chosen on, and the answer.
JOBS, BACK, CONFIRMED = "job", "back", "confirmed"
#: ``BACK`` of a form that stands on the job's own page.
JOB_PAGE = "job"


class Question(NamedTuple):
    """One line of the question: the job, and what would be done to it or why nothing would."""

    job: Job
    label: str
    url: str
    effect: Words
    applies: bool


def offered(place: Place, state: str | None = None) -> list[dict[str, Any]]:
    """Return the buttons that the viewer may press, on a job in ``state`` or on the list."""
    return [
        {"verb": verb, "url": place.link("job_act", verb.slug)}
        for verb in VERBS
        if place.may(verb.permission) and (state is None or verb.offered(state))
    ]


def respond(admin: ReadOnlyAdmin, request: HttpRequest, place: Place, slug: str) -> HttpResponse:
    """Answer a button: with the question, or, when it was answered with yes, by acting."""
    verb = next((verb for verb in VERBS if verb.slug == slug), None)
    if verb is None:
        raise Http404
    if not (admin.has_view_permission(request) and place.may(verb.permission)):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(("POST",))
    back = request.POST.get(BACK, "")
    ids = _ids(request)
    target = _target(place, ids, back)
    if not ids:
        messages.warning(request, _("No job was chosen."))
        return redirect(target)
    if len(ids) > MOST:
        messages.error(request, _("At most %(n)s jobs at a time.") % {"n": MOST})
        return redirect(target)
    if request.POST.get(CONFIRMED) != "yes":
        return _ask(admin, request, place, verb, ids, target)
    _act(request, place, verb, ids)
    return redirect(target)


def _ids(request: HttpRequest) -> list[int]:
    keys = (key_of(text) for text in request.POST.getlist(JOBS))
    return sorted({key for key in keys if key is not None})


def _target(place: Place, ids: Sequence[int], back: str) -> str:
    """Return where the answer leads: the job's page, or the list as it was filtered."""
    if back == JOB_PAGE and len(ids) == 1:
        return place.link("job_change", ids[0])
    kept = QueryDict(back[:2000])
    query = {**Filters.of(kept).query, **Cursor.of(kept).query}
    return place.link("job_changelist", **query)


def _ask(
    admin: ReadOnlyAdmin,
    request: HttpRequest,
    place: Place,
    verb: Verb,
    ids: Sequence[int],
    target: str,
) -> HttpResponse:
    jobs = _read(place, ids)
    lines = [_question(place, verb, job) for job in jobs]
    lines.sort(key=lambda line: not line.applies)
    affected = sum(line.applies for line in lines)
    title = _("%(label)s: %(n)s of %(m)s jobs") if len(ids) > 1 else _("%(label)s: job %(key)s")
    numbers = {"label": verb.label, "n": affected, "m": len(ids), "key": ids[0]}
    return admin.page(
        request,
        "confirm.html",
        title=title % numbers,
        place=place,
        verb=verb,
        url=place.link("job_act", verb.slug),
        lines=lines[:NAMED],
        unnamed=max(len(lines) - NAMED, 0),
        summary=_summary((line.effect, line.applies) for line in lines),
        gone=len(ids) - len(jobs),
        affected=affected,
        ids=ids,
        back=request.POST.get(BACK, ""),
        target=target,
    )


def _question(place: Place, verb: Verb, job: Job) -> Question:
    applies = verb.applies(job.state)
    effect = (verb.effects if applies else verb.refusals).get(job.state, "")
    return Question(job, state_label(job.state), place.job(job.pk), effect, applies)


def _summary(effects: Iterable[tuple[Words, bool]]) -> list[tuple[str, int, bool]]:
    """Count what would be done to how many, what would be done before what would not."""
    counted = Counter((str(effect), applies) for effect, applies in effects)
    return [
        (effect, n, applies)
        for (effect, applies), n in sorted(counted.items(), key=lambda item: not item[0][1])
    ]


def _act(request: HttpRequest, place: Place, verb: Verb, ids: Sequence[int]) -> None:
    """Act in one transaction and tell what was done, and what was not and why."""
    try:
        with (
            transaction.atomic(using=router.db_for_write(LogEntry)),
            transaction.atomic(using=place.database),
        ):
            done, after = _do(place, verb, ids)
    except (TimeoutError, OperationalError):
        text = _("Nothing was changed: other transactions held some of these jobs. Try again.")
        messages.error(request, text)
        return
    _tell(request, verb, ids, done, after)


def _do(place: Place, verb: Verb, ids: Sequence[int]) -> tuple[Done, dict[int, Job]]:
    connection = connections[place.database]
    chosen = [job.pk for job in _read(place, ids) if verb.applies(job.state)]
    done = verb.act(connection, chosen, actor_of(place.user)) if chosen else {}
    after = {job.pk: job for job in _read(place, ids)}
    changed = [after[key] for key in done if key in after]
    if changed:
        LogEntry.objects.log_actions(
            user_id=place.user.pk,
            queryset=changed,
            action_flag=CHANGE,
            change_message=verb.log,
        )
        transitions.notify(connection, (job.queue for job in changed if job.state == "ready"))
    return done, after


def actor_of(user: Any) -> str:
    """Name a user as the events do: key and name, in 150 characters."""
    return f"{user.pk} {user.get_username()}"[:150]


def _read(place: Place, ids: Sequence[int]) -> list[Job]:
    jobs = Job.objects.using(place.database).filter(pk__in=ids)
    return list(jobs.only("pk", "task", "queue", "state", "unique_name").order_by("-pk"))


def _tell(
    request: HttpRequest, verb: Verb, ids: Sequence[int], done: Done, after: dict[int, Job]
) -> None:
    for said, n in Counter(str(said) for said in done.values()).items():
        words = ngettext("%(n)s job %(said)s.", "%(n)s jobs %(said)s.", n)
        messages.success(request, words % {"n": n, "said": said})
    reasons = Counter(_why_not(verb, after.get(key)) for key in ids if key not in done)
    if reasons:
        total = sum(reasons.values())
        words = ngettext("%(n)s job skipped: %(why)s.", "%(n)s jobs skipped: %(why)s.", total)
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items()))
        messages.warning(request, words % {"n": total, "why": why})


def _why_not(verb: Verb, job: Job | None) -> str:
    if job is None:
        return _("no longer there")
    if verb is REQUEUE and job.state in FINAL:
        held = job.unique_name is not None
        return _("whose unique name another job holds") if held else _("locked by others just now")
    reason = verb.refusals.get(job.state)
    return str(reason) if reason else _("locked by others just now")
