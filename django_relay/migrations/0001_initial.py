"""The first tables, their constraints and how PostgreSQL keeps them."""

import datetime

import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import GreaterThanOrEqual, LessThanOrEqual

import django_relay.models

COUNTERS = ("claims", "failures", "losses", "interruptions")
JOB_DATES = (
    *("run_after", "start_before", "enqueued_at"),
    *("started_at", "last_attempted_at", "finished_at"),
)
LEASE_DATES = ("acquired_at", "begun_at", "expires_at", "deadline")
YEARS = (
    datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 30, tzinfo=datetime.UTC),
)


def within(model, name, lowest, highest, *fields):
    """Keep fields of one type within bounds, by two comparisons for all of them."""
    condition = models.Q(
        GreaterThanOrEqual(Least(*fields), lowest), LessThanOrEqual(Greatest(*fields), highest)
    )
    constraint = models.CheckConstraint(condition=condition, name=name)
    return migrations.AddConstraint(model_name=model, constraint=constraint)


def set_storage(apps, schema_editor):
    """Leave room in a lease's page for its renewals, and vacuum by work done, not by table size.

    At PostgreSQL's default of a fifth of the table, a million finished jobs would let 200,000 dead
    rows gather before the first vacuum.
    """
    if schema_editor.connection.vendor != "postgresql":
        return
    vacuum = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000"
    schema_editor.execute(f"ALTER TABLE django_relay_job SET ({vacuum})")
    schema_editor.execute(f"ALTER TABLE django_relay_lease SET (fillfactor = 50, {vacuum})")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=20)),
                ("at", models.DateTimeField()),
                ("claim", models.IntegerField(null=True)),
                ("token", models.UUIDField(null=True)),
                ("worker", models.CharField(max_length=150, null=True)),
                ("actor", models.CharField(max_length=150, null=True)),
                ("data", models.JSONField(null=True)),
            ],
            options={
                "db_table": "django_relay_event",
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("task", models.CharField(max_length=255)),
                ("args", django_relay.models.JsonText(default=list)),
                ("kwargs", django_relay.models.JsonText(default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("blocked", "Blocked"),
                            ("scheduled", "Scheduled"),
                            ("ready", "Ready"),
                            ("running", "Running"),
                            ("successful", "Successful"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        max_length=12,
                    ),
                ),
                ("priority", models.SmallIntegerField(default=0)),
                ("run_after", models.DateTimeField()),
                ("start_before", models.DateTimeField(null=True)),
                ("claims", models.IntegerField(default=0)),
                ("failures", models.IntegerField(default=0)),
                ("losses", models.IntegerField(default=0)),
                ("interruptions", models.IntegerField(default=0)),
                ("max_attempts", models.IntegerField(null=True)),
                ("timeout", models.DurationField(null=True)),
                ("unique_key", models.CharField(max_length=255, null=True)),
                ("unique_name", models.CharField(max_length=255, null=True)),
                ("unique_scope", models.CharField(max_length=16, null=True)),
                ("limit_key", models.CharField(max_length=255, null=True)),
                ("limit_n", models.IntegerField(null=True)),
                ("metadata", models.JSONField(null=True)),
                ("result", django_relay.models.JsonText(null=True)),
                ("enqueued_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "django_relay_job",
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.CharField(max_length=120, primary_key=True, serialize=False)),
                ("queues", models.JSONField(null=True)),
                ("processes", models.IntegerField()),
                ("slots", models.IntegerField()),
                ("version", models.CharField(max_length=40)),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("waiting", models.BooleanField(default=False)),
                ("stopped_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "django_relay_worker",
            },
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        to="django_relay.job",
                    ),
                ),
                ("token", models.UUIDField()),
                ("worker", models.CharField(max_length=150)),
                ("claim", models.IntegerField()),
                ("acquired_at", models.DateTimeField()),
                ("begun_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField()),
                ("deadline", models.DateTimeField(null=True)),
                ("renewals", models.IntegerField(default=0)),
                ("limit_key", models.CharField(max_length=255, null=True)),
                ("limit_slot", models.IntegerField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "django_relay_lease",
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                models.F("queue"),
                models.Func(models.F("priority"), template="(-%(expressions)s)"),
                models.F("id"),
                condition=models.Q(("state", "ready")),
                name="relay_job_ready",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                models.F("queue"),
                models.Func(models.F("priority"), template="(-%(expressions)s)"),
                models.F("id"),
                condition=models.Q(("losses__gt", 0), ("state", "ready")),
                name="relay_job_suspect",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "scheduled")),
                fields=["run_after"],
                name="relay_job_due",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(
                    ("start_before__isnull", False),
                    ("state__in", ["blocked", "scheduled", "ready"]),
                ),
                fields=["start_before"],
                name="relay_job_expiring",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state__in", ["failed", "cancelled"])),
                fields=["state", "id"],
                name="relay_job_unsuccessful",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "running")), fields=["id"], name="relay_job_running"
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(("unique_key__isnull", False)),
                fields=("unique_key",),
                name="relay_job_unique_key",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("finished_at__isnull", True),
                        ("state__in", ["blocked", "scheduled", "ready", "running"]),
                    ),
                    models.Q(
                        ("finished_at__isnull", False),
                        ("state__in", ["cancelled", "failed", "successful"]),
                    ),
                    _connector="OR",
                ),
                name="relay_job_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__gte", -100), ("priority__lte", 100)),
                name="relay_job_priority",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_attempts__gte", 1), ("max_attempts__lte", 1000000000)),
                name="relay_job_max_attempts",
            ),
        ),
        within("job", "relay_job_counters", 0, 1000000000, *COUNTERS),
        within("job", "relay_job_dates", *YEARS, *JOB_DATES),
        migrations.AddField(
            model_name="event",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="django_relay.job",
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.UniqueConstraint(
                condition=models.Q(("limit_key__isnull", False)),
                fields=("limit_key", "limit_slot"),
                name="relay_lease_limit_slot",
            ),
        ),
        within("lease", "relay_lease_dates", *YEARS, *LEASE_DATES),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["job", "id"], name="relay_event_job"),
        ),
        migrations.RunPython(set_storage, migrations.RunPython.noop, elidable=False),
    ]
