"""Settings of the example project; everything that differs from place to place is an environment
variable, or a line in a file ``.env`` at the root of the repository.

Without DATABASE_URL it uses a PostgreSQL of this checkout's own, started when first needed and
ended with the last process that uses it. Its data stay for the next time.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from example_project import embedded

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "var"  # what the shop's tasks make

env = environ.Env()
if (HERE.parent / ".env").exists():
    env.read_env(HERE.parent / ".env")

SECRET_KEY = env("SECRET_KEY", default="insecure, but this is an example")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

try:
    DATABASES = {
        "default": env.db_url_config(env("DATABASE_URL", default="") or embedded.join().url)
    }
except embedded.ServerUnavailable as trouble:
    raise ImproperlyConfigured(str(trouble)) from None

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_relay",
    "django_relay.lab",
    "example_project.shop",
]
# Django 5.2 has no Tasks framework of its own and takes it from the package django-tasks.
if django.VERSION < (6, 0) and find_spec("django_tasks"):
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "django_relay.backend.RelayBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "lease": timedelta(seconds=30),
            "max_attempts": 3,
        },
    },
}
# The experiments of `manage.py relay_lab` have a queue of their own.
TASKS["relay_lab"] = {**TASKS["default"], "QUEUES": ["relay_lab"]}
# They may restart the embedded server, which is ours, and no other.
if not env("DATABASE_URL", default=""):
    RELAY_LAB_RESTART = "example_project.restarting.restart"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
