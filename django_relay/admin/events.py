"""Events in the admin: all of one job, or the newest of all jobs, page by page."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_relay.models import Event, Job
from django_relay.replay import wording
from django_relay.states import EventKind

from . import history, narration, windows
from .places import Place
from .readonly import ReadOnlyAdmin, key_of
from .windows import Cursor


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """One list, by ``?job=`` or of all jobs, by ``?kind=``; an event's own page is its job's."""

    def show_list(self, request: HttpRequest, place: Place) -> HttpResponse:
        """Show a page of events, newest first."""
        job = key_of(request.GET.get("job"))
        kind = request.GET.get("kind", "")
        kind = kind if kind in EventKind.values else ""
        events = Event.objects.using(place.database)
        search = Q(kind=kind) if kind else Q()
        if job is not None:
            events = events.filter(job_id=job)
        page = windows.read(events, search, Cursor.of(request.GET), columns=("pk", "job_id"))
        found = history.by_key(place, [row[0] for row in page.rows])
        query = {"job": job, "kind": kind}
        return self.page(
            request,
            "events.html",
            title=_("Events of job %(key)s") % {"key": job} if job else _("Events"),
            place=place,
            lines=self._lines(place, found),
            window=page,
            kinds=[(value, wording.name(value)) for value in EventKind.values],
            query=query,
            job_url=place.job(job) if job else "",
            older=page.older and place.link("event_changelist", **query, **page.older.query),
            newer=page.newer and place.link("event_changelist", **query, **page.newer.query),
        )

    def _lines(self, place: Place, found: list[history.Event]) -> list[tuple[narration.Line, str]]:
        """Tell the events in words, each with the address of its job, in one query more."""
        jobs = Job.objects.using(place.database).filter(pk__in={event.job_id for event in found})
        read = list(jobs.values_list("pk", "enqueued_at", Now())) if found else []
        since = {key: enqueued_at for key, enqueued_at, _now in read}
        now = read[0][2] if read else max((event.at for event in found), default=None)
        return [
            (
                narration.line(event, since.get(event.job_id), now),
                place.job(event.job_id) if event.job_id in since else "",
            )
            for event in found
            if now is not None
        ]

    def show_one(self, request: HttpRequest, place: Place, object_id: str) -> HttpResponse:
        """Lead to the job that the event happened to."""
        key = key_of(object_id)
        event = Event.objects.using(place.database).filter(pk=key).only("job_id").first()
        if event is None:
            return self.missing(request, object_id)
        return redirect(place.link("job_change", event.job_id))

    def why_not_deleted(self) -> str:
        return _("Events are not deleted here: they are pruned together with their finished job.")
