"""The Django app of the lab: ``INSTALLED_APPS += ["django_relay.lab"]``. It has no tables."""

from __future__ import annotations

from django.apps import AppConfig


class LabConfig(AppConfig):
    """Brings the command ``relay_lab``."""

    name = "django_relay.lab"
    label = "django_relay_lab"
    verbose_name = "Relay lab"
