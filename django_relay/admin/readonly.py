"""A model in the admin that is only looked at: nothing is added, edited or deleted.

The pages are the package's own, on Django's frame; what does change something is an action with a
permission, a question and a POST of its own. The history page is Django's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import django
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from .places import Place

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

#: The largest key of a bigint column.
MAX_KEY = 2**63 - 1

#: From this version on the admin's breadcrumbs are a list.
LISTED_BREADCRUMBS = django.VERSION >= (6, 1)


def key_of(text: str | None) -> int | None:
    """Read a row's key from an address or a search; None where it can be none."""
    text = (text or "").strip().removeprefix("#")
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_KEY)):
        return None
    return int(text) if 0 < int(text) <= MAX_KEY else None


class ReadOnlyAdmin(_ModelAdmin):
    """An admin whose pages only show, and whose two views are ``show_list`` and ``show_one``."""

    actions = None
    #: What the pages need of a row to name it.
    naming: ClassVar[tuple[str, ...]] = ("pk",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nothing is added here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is edited here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is deleted here."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows by their names alone: the history page needs no more."""
        place = self.place(request)
        rows: QuerySet[Any] = self.model._default_manager.using(place.database)
        return rows.only(*self.naming)

    def place(self, request: HttpRequest) -> Place:
        """Return where this request reads."""
        return Place.of(request, self.admin_site.name)

    def show_list(self, request: HttpRequest, place: Place) -> HttpResponse:
        """Show the list."""
        raise NotImplementedError

    def show_one(self, request: HttpRequest, place: Place, object_id: str) -> HttpResponse:
        """Show one row."""
        raise NotImplementedError

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list to who may see it."""
        return self._look(request) or self.show_list(request, self.place(request))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one row to who may see it."""
        looked = self._look(request)
        return looked or self.show_one(request, self.place(request), unquote(object_id))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Say that nothing is deleted here, and what is done instead."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        messages.error(request, self.why_not_deleted())
        return redirect(self.place(request).link(f"{self.opts.model_name}_changelist"))

    def why_not_deleted(self) -> str:
        """Say what becomes of rows instead of being deleted."""
        return _("Nothing is deleted here.")

    def _look(self, request: HttpRequest) -> HttpResponse | None:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        return None

    def missing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say that there is no such row, on the list."""
        name = {"name": self.opts.verbose_name, "key": object_id[:40]}
        messages.warning(request, _("There is no %(name)s “%(key)s” (any more).") % name)
        return redirect(self.place(request).link(f"{self.opts.model_name}_changelist"))

    def page(
        self, request: HttpRequest, template: str, *, title: str, place: Place, **context: Any
    ) -> TemplateResponse:
        """Render a page of the app within the admin's frame."""
        request.current_app = self.admin_site.name
        frame = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "place": place,
            "listed_breadcrumbs": LISTED_BREADCRUMBS,
            "list_url": place.link(f"{self.opts.model_name}_changelist"),
        }
        return TemplateResponse(request, f"admin/django_relay/{template}", frame | context)
