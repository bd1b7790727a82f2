"""Settings of the comparison: the database of PEER_DB, and OPTIONS as they are by default."""

import os
from urllib.parse import urlsplit

_url = urlsplit(os.environ["PEER_DB"])

SECRET_KEY = "for measurements alone"
USE_TZ = True
INSTALLED_APPS = ["django_relay"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path[1:],
        "USER": _url.username,
        "PASSWORD": _url.password or "",
        "HOST": _url.hostname,
        "PORT": _url.port,
    }
}
TASKS = {"default": {"BACKEND": "django_relay.backend.RelayBackend", "QUEUES": []}}
