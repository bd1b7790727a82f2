"""The schema belongs to the package and not to the project's settings; it can go and come back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.postgres import operations
from django.core.management import call_command
from django.db import connection, migrations
from django.db.migrations.loader import MigrationLoader

PROJECT = """

from tests.settings import *
{changes}
"""

SETTINGS = {
    "small keys": 'DEFAULT_AUTO_FIELD = "django.db.models.SmallAutoField"',
    "big keys": 'DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"',
    "another language": 'LANGUAGE_CODE = "de"; USE_I18N = True',
    "no time zones": 'USE_TZ = False; TIME_ZONE = "America/New_York"',
    "other queues": 'TASKS = {"default": {**TASKS["default"], "QUEUES": ["a", "b"]}}',
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_no_setting_of_a_project_makes_the_models_drift(changes: str, tmp_path: Path) -> None:
    (tmp_path / "drifting.py").write_text(PROJECT.format(changes=changes))
    root = Path(__file__).parents[2]
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "drifting",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)]),
    }
    command = [sys.executable, "-m", "django", "makemigrations", "--check", "django_relay"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "No changes detected" in answer.stdout


def test_no_migration_after_the_first_builds_or_checks_anything_under_a_lock() -> None:
    """A table with millions of rows must not be locked for as long as it takes to read it."""
    slow = (migrations.AddIndex, migrations.AddConstraint, migrations.AlterField)
    careful = (operations.AddIndexConcurrently, operations.AddConstraintNotValid)
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if app == "django_relay" and not migration.initial:
            for operation in migration.operations:
                assert not isinstance(operation, slow) or isinstance(operation, careful), name


@pytest.mark.django_db(transaction=True)
def test_the_tables_can_go_and_come_back() -> None:
    try:
        call_command("migrate", "django_relay", "zero", verbosity=0)
        assert not _tables()
    finally:
        call_command("migrate", "django_relay", verbosity=0)
    assert _tables() == {
        "django_relay_event",
        "django_relay_job",
        "django_relay_lease",
        "django_relay_worker",
    }


@pytest.mark.django_db
def test_leases_leave_room_in_their_page_for_renewals() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'django_relay_lease'")
        assert "fillfactor=50" in cursor.fetchone()[0]


def _tables() -> set[str]:
    return {name for name in connection.introspection.table_names() if "relay_" in name}
