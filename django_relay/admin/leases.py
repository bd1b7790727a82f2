"""Leases in the admin: whose each running job is, and until when by the database's clock."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_relay.models import Lease

from . import fleet
from .places import Place
from .readonly import ReadOnlyAdmin, key_of


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """One page for all, those that end first at the top; a lease's own page is its job's."""

    def show_list(self, request: HttpRequest, place: Place) -> HttpResponse:
        """Show the leases, of one worker with ``?worker=``."""
        worker = request.GET.get("worker", "").replace("\x00", "")[:150]
        held, more = fleet.leases(place, worker=worker)
        return self.page(
            request,
            "leases.html",
            title=_("Leases"),
            place=place,
            leases=held,
            more=more,
            most=fleet.MOST_LEASES,
            worker=worker,
        )

    def show_one(self, request: HttpRequest, place: Place, object_id: str) -> HttpResponse:
        """Lead to the job that the lease is on."""
        key = key_of(object_id)
        if key is None or not Lease.objects.using(place.database).filter(pk=key).exists():
            return self.missing(request, object_id)
        return redirect(place.link("job_change", key))

    def why_not_deleted(self) -> str:
        return _("Leases are not deleted here: cancel the job by force to take its lease away.")
