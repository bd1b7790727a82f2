"""The tables: what a job is, who holds it, what happened to it, and who works.

Read-only by intent: every write goes through ``transitions``. Events and leases refer to their job
without a database constraint, because its check cost a third of a claim (see the decisions page);
transitions keep the reference true and the audit checks it. Each index is named with the
statement it serves. Times are the database's own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NoReturn

from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import GreaterThanOrEqual, LessThanOrEqual
from django.utils.translation import gettext_lazy as _

from . import storable
from .states import COUNTER_LIMIT, FINAL, State


class Json(models.JSONField):
    """JSON that can always be read: what Python cannot decode, as its text.

    No transition writes such a value. To migrations it is an ordinary JSONField.
    """

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, path, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField" if type(self) is Json else path, args, kwargs

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return storable.reading(value) if isinstance(value, str) else value


class JsonText(Json):
    """A value kept as PostgreSQL ``json``: exactly the text that was sent.

    ``jsonb`` would turn 1e308 and 1e16 into integers and lose the sign of -0.0.
    """

    def db_type(self, connection: Any) -> str:
        return "json"

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"{sql}::text", params


class Moment(models.DateTimeField):  # type: ignore[type-arg]  # generic for the checker alone
    """A time that can always be read: from outside Python's calendar, as the nearest day inside.

    No transition writes such a time and most columns have a check against them; but one row from
    somebody's own SQL must not keep a page of others from opening. To migrations it is an ordinary
    DateTimeField.
    """

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        first, last = "timestamptz '0002-01-01 UTC'", "timestamptz '9999-12-30 UTC'"
        clipped = f"CASE WHEN {sql} < {first} THEN {first} WHEN {sql} > {last} THEN {last}"
        return f"{clipped} ELSE {sql} END", [*params] * 3


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """A queryset that refuses to write, and says where writes belong."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self.model.__name__} rows change only through django_relay.transitions; "
            "use its verbs (cancel, requeue, prune, ...) instead of the ORM."
        )

    create = bulk_create = update = bulk_update = delete = _refuse
    get_or_create = update_or_create = _refuse


def _within(name: str, lowest: Any, highest: Any, *fields: str) -> models.CheckConstraint:
    """Keep fields of one type, or those that are not null, within bounds.

    Two comparisons for all of them: the server reads a check anew for every statement that writes,
    and one for each field took it a tenth of a claim.
    """
    condition = Q(GreaterThanOrEqual(Least(*fields), lowest))
    condition &= Q(LessThanOrEqual(Greatest(*fields), highest))
    return models.CheckConstraint(condition=condition, name=name)


_UNFINISHED = [state for state in State.values if state not in FINAL]
_COUNTERS = ("claims", "failures", "losses", "interruptions")
_JOB_DATES = (
    *("run_after", "start_before", "enqueued_at"),
    *("started_at", "last_attempted_at", "finished_at"),
)
_LEASE_DATES = ("acquired_at", "begun_at", "expires_at", "deadline")
#: Inside Python's calendar, so that one row cannot keep a batch from being read.
_YEARS = (datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))


class Job(models.Model):
    """One call of a task, from the moment it was accepted until it is pruned."""

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    task = models.CharField(max_length=255)
    args = JsonText(default=list)
    kwargs = JsonText(default=dict)
    state = models.CharField(max_length=12, choices=State.choices)
    priority = models.SmallIntegerField(default=0)
    run_after = Moment()
    start_before = Moment(null=True)
    claims = models.IntegerField(default=0)
    failures = models.IntegerField(default=0)
    losses = models.IntegerField(default=0)
    interruptions = models.IntegerField(default=0)
    max_attempts = models.IntegerField(null=True)
    timeout = models.DurationField(null=True)
    unique_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - null: holds no key
    unique_name = models.CharField(max_length=255, null=True)  # noqa: DJ001
    unique_scope = models.CharField(max_length=16, null=True)  # noqa: DJ001
    limit_key = models.CharField(max_length=255, null=True)  # noqa: DJ001
    limit_n = models.IntegerField(null=True)
    metadata = Json(null=True)
    result = JsonText(null=True)
    enqueued_at = Moment()
    started_at = Moment(null=True)
    last_attempted_at = Moment(null=True)
    finished_at = Moment(null=True)

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        db_table = "django_relay_job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("view",)
        permissions = (
            ("view_job_arguments", "Can view arguments and results of jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("force_cancel_job", "Can cancel running jobs by force"),
            ("requeue_job", "Can requeue finished jobs"),
            ("run_job_now", "Can run scheduled jobs now"),
        )
        indexes = (
            # The claim: the ready jobs of one queue, highest priority and oldest first. One
            # direction, so that a row comparison can start a claim behind rows it has left.
            models.Index(
                F("queue"),
                Func(F("priority"), template="(-%(expressions)s)"),
                F("id"),
                name="relay_job_ready",
                condition=Q(state="ready"),
            ),
            # The same for jobs that have cost a process, which run alone.
            models.Index(
                F("queue"),
                Func(F("priority"), template="(-%(expressions)s)"),
                F("id"),
                name="relay_job_suspect",
                condition=Q(state="ready", losses__gt=0),
            ),
            # The promotion: what is due next.
            models.Index(
                fields=["run_after"], name="relay_job_due", condition=Q(state="scheduled")
            ),
            # The expiry of jobs that must start before a time.
            models.Index(
                fields=["start_before"],
                name="relay_job_expiring",
                condition=Q(
                    start_before__isnull=False, state__in=["blocked", "scheduled", "ready"]
                ),
            ),
            # The rescue of running jobs whose lease row is missing.
            models.Index(fields=["id"], name="relay_job_running", condition=Q(state="running")),
            # The admin's look at what went wrong, newest first. Only such jobs pay for it.
            models.Index(
                fields=["state", "id"],
                name="relay_job_unsuccessful",
                condition=Q(state__in=["failed", "cancelled"]),
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=["unique_key"],
                name="relay_job_unique_key",
                condition=Q(unique_key__isnull=False),
            ),
            models.CheckConstraint(
                condition=Q(finished_at__isnull=True, state__in=_UNFINISHED)
                | Q(finished_at__isnull=False, state__in=sorted(FINAL)),
                name="relay_job_state",
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=-100, priority__lte=100), name="relay_job_priority"
            ),
            models.CheckConstraint(
                condition=Q(max_attempts__gte=1, max_attempts__lte=COUNTER_LIMIT),
                name="relay_job_max_attempts",
            ),
            _within("relay_job_counters", 0, COUNTER_LIMIT, *_COUNTERS),
            _within("relay_job_dates", *_YEARS, *_JOB_DATES),
        )

    def __str__(self) -> str:
        return f"job {self.pk} ({self.task}, {self.state})"


class Lease(models.Model):
    """Who holds a running job, and until when. A row exists exactly while its job runs.

    Narrow and half empty (fillfactor 50), so that a renewal stays within its page and touches no
    index; for the same reason there is none on ``expires_at``.
    """

    job = models.OneToOneField(
        Job, primary_key=True, on_delete=models.DO_NOTHING, db_constraint=False
    )
    token = models.UUIDField()
    worker = models.CharField(max_length=150)
    claim = models.IntegerField()
    acquired_at = Moment()
    begun_at = Moment(null=True)
    expires_at = Moment()
    deadline = Moment(null=True)
    renewals = models.IntegerField(default=0)
    limit_key = models.CharField(max_length=255, null=True)  # noqa: DJ001
    limit_slot = models.IntegerField(null=True)
    cancel_requested_at = Moment(null=True)

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        db_table = "django_relay_lease"
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        default_permissions = ("view",)
        constraints = (
            # The slot of a limit is part of the lease: a crash frees it with the lease.
            models.UniqueConstraint(
                fields=["limit_key", "limit_slot"],
                name="relay_lease_limit_slot",
                condition=Q(limit_key__isnull=False),
            ),
            _within("relay_lease_dates", *_YEARS, *_LEASE_DATES),
        )

    def __str__(self) -> str:
        return f"lease on job {self.pk} of {self.worker}"


class Event(models.Model):
    """One thing that happened to a job, written by the statement that made it happen."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="events",
    )
    kind = models.CharField(max_length=20)
    at = Moment()
    claim = models.IntegerField(null=True)
    token = models.UUIDField(null=True)
    worker = models.CharField(max_length=150, null=True)  # noqa: DJ001 - null: no worker's doing
    actor = models.CharField(max_length=150, null=True)  # noqa: DJ001 - null: nobody's wish
    data = Json(null=True)

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        db_table = "django_relay_event"
        verbose_name = _("event")
        verbose_name_plural = _("events")
        default_permissions = ("view",)
        # The history of one job, and the look-up of an ending by its token.
        indexes = (models.Index(fields=["job", "id"], name="relay_event_job"),)

    def __str__(self) -> str:
        return f"{self.kind} (job {self.job_id})"


class Worker(models.Model):
    """One ``relay_worker`` process and when it was last seen. Never used to judge a lease."""

    id = models.CharField(primary_key=True, max_length=120)
    queues = Json(null=True)
    processes = models.IntegerField()
    slots = models.IntegerField()
    version = models.CharField(max_length=40)
    started_at = Moment()
    seen_at = Moment()
    waiting = models.BooleanField(default=False)
    stopped_at = Moment(null=True)

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        db_table = "django_relay_worker"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.id
