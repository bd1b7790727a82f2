"""The Django app: its label, its name in the admin, and its system checks."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class DjangoRelayConfig(AppConfig):
    """``INSTALLED_APPS += ["django_relay"]``. Key types are written out in the models."""

    name = "django_relay"
    label = "django_relay"
    verbose_name = "Relay"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks: loaded by name, because they lie in a higher layer than apps."""
        import_module("django_relay.checks")
