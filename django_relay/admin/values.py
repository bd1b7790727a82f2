"""Arguments, result and metadata of one job, for who may see them. No other page reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_relay.models import Job

from .columns import EXCERPT, Excerpt
from .places import Place

PERMISSION = "view_job_arguments"

_LABELS: dict[str, Promise] = {
    "args": _("Positional arguments"),
    "kwargs": _("Keyword arguments"),
    "result": _("Result"),
    "metadata": _("Metadata"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """One JSON value: its text, None where there is none, and whether its end is cut off.

    ``empty`` tells a value with nothing in it, ``long`` one that is better folded.
    """

    label: Promise
    text: str | None
    cut: bool = False

    @property
    def empty(self) -> bool:
        return self.text in (None, "[]", "{}")

    @property
    def long(self) -> bool:
        return len(self.text or "") > 1500


def read(place: Place, job_id: int) -> list[Value] | None:
    """Read the values of a job; None where the viewer may not see them."""
    if not place.may(PERMISSION):
        return None
    found = Job.objects.using(place.database).filter(pk=job_id)
    texts = found.values_list(*(Excerpt(name) for name in _LABELS)).first()
    if texts is None:
        return None
    return [_value(label, text) for label, text in zip(_LABELS.values(), texts, strict=True)]


def _value(label: Promise, text: str | None) -> Value:
    if text is None:
        return Value(label, None)
    if len(text) > EXCERPT:
        return Value(label, text[:EXCERPT], cut=True)
    return Value(label, indented(text))


def indented(text: str) -> str:
    """Indent a JSON text; one that Python cannot read or write again stays as it is."""
    try:
        value = json.loads(text)
        for ascii_only in (False, True):
            said = json.dumps(value, indent=2, ensure_ascii=ascii_only, allow_nan=False)
            if said.isascii() or _encodes(said):
                return said
    except (ValueError, RecursionError):
        pass
    return text


def _encodes(text: str) -> bool:
    """Tell whether a page can carry the text: half of a surrogate pair cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
