"""Jobs in the admin: the list, one job's page, and the address that the actions are posted to."""

from __future__ import annotations

from functools import update_wrapper
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from django_relay.models import Job
from django_relay.states import State

from . import actions, counts, jobpage, listing, rows
from .listing import Filters
from .places import Place
from .readonly import ReadOnlyAdmin, key_of
from .windows import Cursor


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """The jobs, newest first, and everything about one of them."""

    naming: ClassVar[tuple[str, ...]] = ("pk", "task", "state")

    def get_urls(self) -> list[URLPattern]:
        """Put the actions' address before Django's own."""

        def act(request: HttpRequest, verb: str) -> HttpResponse:
            return self.admin_site.admin_view(self.act_view)(request, verb)

        update_wrapper(act, self.act_view)
        return [path("act/<slug:verb>/", act, name="django_relay_job_act"), *super().get_urls()]

    def act_view(self, request: HttpRequest, verb: str) -> HttpResponse:
        """Ask about an action, or do it."""
        return actions.respond(self, request, self.place(request), verb)

    def show_list(self, request: HttpRequest, place: Place) -> HttpResponse:
        """Show a page of jobs."""
        filters, cursor = Filters.of(request.GET), Cursor.of(request.GET)
        counted = counts.read(place)
        window = listing.read(filters, cursor, place)
        queues, tasks = counts.names(place)
        return self.page(
            request,
            "jobs.html",
            title=_("Jobs"),
            place=place,
            filters=filters,
            jobs=rows.describe(window.rows, place, counted.now),
            window=window,
            tabs=_tabs(place, filters, counted),
            queues=_with(queues, filters.queue),
            tasks=_with(tasks, filters.task),
            verbs=actions.offered(place),
            back=request.GET.urlencode(),
            older=_beside(place, filters, window.older),
            newer=_beside(place, filters, window.newer),
            newest=_beside(place, filters, Cursor()) if cursor != Cursor() else "",
            workers_url=place.listed("worker"),
        )

    def show_one(self, request: HttpRequest, place: Place, object_id: str) -> HttpResponse:
        """Show one job."""
        key = key_of(object_id)
        shown = jobpage.read(place, key) if key is not None else None
        if shown is None or key is None:
            return self.missing(request, object_id)
        return self.page(
            request,
            "job.html",
            title=_("Job %(key)s") % {"key": key},
            place=place,
            shown=shown,
            verbs=actions.offered(place, shown.job.state),
            back=actions.JOB_PAGE,
            history_url=place.link("job_history", key),
            events_url=place.listed("event", job=key),
        )

    def why_not_deleted(self) -> str:
        return _(
            "Jobs are not deleted here. Cancel one that has not finished; transitions.prune "
            "deletes finished ones by their age."
        )


def _beside(place: Place, filters: Filters, cursor: Cursor | None) -> str:
    """Return the address of the page at ``cursor``, filtered as this one."""
    if cursor is None:
        return ""
    return place.link("job_changelist", **filters.query, **cursor.query)


def _tabs(place: Place, filters: Filters, counted: counts.Counts) -> list[dict[str, Any]]:
    """Return the states to choose from, each with its number where that is known."""
    query: dict[str, Any] = {} if filters.key else {**filters.query}
    chosen: list[tuple[str, str, str]] = [("", _("All"), counted.total)]
    chosen += [(str(s), str(s.label), counted.by_state.get(str(s), "")) for s in State]
    return [
        {
            "state": state,
            "label": label,
            "count": count,
            "url": place.link("job_changelist", **(query | {"state": state})),
            "current": state == filters.state and filters.key is None,
        }
        for state, label, count in chosen
    ]


def _with(names: list[str], chosen: str) -> list[str]:
    return names if not chosen or chosen in names else sorted([*names, chosen])
