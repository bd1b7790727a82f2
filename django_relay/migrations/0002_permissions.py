"""Permissions for what the admin lets people do, and its names."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("django_relay", "0001_initial"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="event",
            options={
                "default_permissions": ("view",),
                "verbose_name": "event",
                "verbose_name_plural": "events",
            },
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("view",),
                "permissions": (
                    ("view_job_arguments", "Can view arguments and results of jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("force_cancel_job", "Can cancel running jobs by force"),
                    ("requeue_job", "Can requeue finished jobs"),
                    ("run_job_now", "Can run scheduled jobs now"),
                ),
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="lease",
            options={
                "default_permissions": ("view",),
                "verbose_name": "lease",
                "verbose_name_plural": "leases",
            },
        ),
        migrations.AlterModelOptions(
            name="worker",
            options={
                "default_permissions": ("view",),
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
            },
        ),
    ]
