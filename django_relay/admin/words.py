"""Durations, moments and leases in words a person reads at a glance.

Everything here is arithmetic on what the database said: a page asks it once for its time, and no
clock of this host counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_relay.recording import letter_of

MINUTE, HOUR, DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: seen from the database's now, to the second, and exactly with its zone."""

    iso: str
    ago: str
    short: str
    exact: str


def duration(seconds: float) -> str:
    """Put a duration into words, in two units at most; less than nothing is nothing."""
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return _("%(n)s ms") % {"n": round(seconds * 1000)}
    if seconds < MINUTE:
        return _("%(n)s s") % {"n": f"{seconds:.1f}".removesuffix(".0")}
    whole = round(seconds)
    if whole < HOUR:
        return _two(_("%(n)s min"), _("%(n)s s"), *divmod(whole, MINUTE))
    if whole < DAY:
        hours, rest = divmod(whole, HOUR)
        return _two(_("%(n)s h"), _("%(n)s min"), hours, rest // MINUTE)
    days, rest = divmod(whole, DAY)
    words = ngettext("%(n)s day", "%(n)s days", days)
    return _two(words, _("%(n)s h"), days, rest // HOUR if days < 10 else 0)


def _two(large: str, small: str, much: int, rest: int) -> str:
    said = large % {"n": f"{much:,}"}
    return f"{said} {small % {'n': rest}}" if rest else said


def between(start: datetime | None, end: datetime | None) -> float | None:
    """Return the seconds from ``start`` to ``end``, or None where one is not known."""
    return None if start is None or end is None else (end - start).total_seconds()


def span(start: datetime | None, end: datetime | None) -> str:
    """Put the time from ``start`` to ``end`` into words; nothing where one is not known."""
    seconds = between(start, end)
    return "" if seconds is None else duration(seconds)


def relative(at: datetime, now: datetime) -> str:
    """Say how long ago ``at`` was, or how far ahead it is."""
    seconds = (at - now).total_seconds()
    if abs(seconds) < 1:
        return _("now")
    words = _("in %(time)s") if seconds > 0 else _("%(time)s ago")
    return words % {"time": duration(round(abs(seconds)))}


def moment(at: datetime | None, now: datetime) -> Moment | None:
    """Describe a point in time as seen from ``now``."""
    if at is None:
        return None
    return Moment(at.isoformat(), relative(at, now), short(at, now), exact(at))


def exact(at: datetime) -> str:
    """Write a time in full, to the millisecond, with the time zone of the page."""
    here = _here(at)
    said = f"{here:%Y-%m-%d %H:%M:%S}.{here.microsecond // 1000:03}"
    return f"{said} {here.tzname()}" if here.tzinfo else said


def short(at: datetime, now: datetime) -> str:
    """Write a time to the second, with its date only where that is not today."""
    here = _here(at)
    return f"{here:%H:%M:%S}" if here.date() == _here(now).date() else f"{here:%Y-%m-%d %H:%M:%S}"


def _here(at: datetime) -> datetime:
    return at.astimezone(timezone.get_current_timezone()) if timezone.is_aware(at) else at


def milliseconds(seconds: float | None) -> str:
    """Write seconds as milliseconds with the thousands set apart."""
    return "" if seconds is None else f"{seconds * 1000:,.0f}"


def letter(claim: int | None) -> str:
    """Name a job's lease by its claim: A, B, ... Z, AA. Each claim has one lease and one token."""
    return letter_of(claim) or ""


def hue(claim: int | None) -> int:
    """Return which of the style sheet's six colours a lease's letter has."""
    return (claim or 0) % 6
