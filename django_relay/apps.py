"""The Django app: its label, its name in the admin, and its system checks."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from django.apps import AppConfig


class DjangoRelayConfig(AppConfig):
    """``INSTALLED_APPS += ["django_relay"]``. Key types are written out in the models."""

    name = "django_relay"
    label = "django_relay"
    verbose_name = "Relay"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, ours by name because they lie in a higher layer than apps.

        The framework checks TASKS from the moment it is imported, and perhaps nobody has yet. Where
        it is missing, our own check says so.
        """
        import_module("django_relay.checks")
        with suppress(ImportError):
            import_module("django_relay.compat")
