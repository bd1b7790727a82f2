"""Workers in the admin: who is alive since when, what runs in each, and who serves which queue."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_relay.models import Worker

from . import fleet, queues
from .places import Place
from .readonly import ReadOnlyAdmin


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """One page for all: the workers, and the queues."""

    def show_list(self, request: HttpRequest, place: Place) -> HttpResponse:
        """Show workers and queues."""
        held, more = fleet.leases(place)
        workers = fleet.workers(place, held)
        return self.page(
            request,
            "workers.html",
            title=_("Workers"),
            place=place,
            workers=workers,
            alive=sum(worker.alive for worker in workers),
            queues=queues.read(place, workers),
            more=more,
            most=fleet.MOST_LEASES,
            leases_url=place.listed("lease"),
        )

    def show_one(self, request: HttpRequest, place: Place, object_id: str) -> HttpResponse:
        """Lead to the worker's place on the page of all."""
        if not Worker.objects.using(place.database).filter(pk=object_id).exists():
            return self.missing(request, object_id)
        return redirect(f"{place.link('worker_changelist')}#{object_id}")

    def why_not_deleted(self) -> str:
        return _("Workers are not deleted here: one that is not seen for a day is forgotten.")
