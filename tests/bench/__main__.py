"""``python -m tests.bench NAME [--flag value ...]``: run one measurement and print its JSON.

DATABASE_URL names the server (the role must be allowed to make databases); without it the one of
the example project is used, whose settings are PostgreSQL's own. A measurement is a function; its
keywords are the flags.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
from collections.abc import Callable
from importlib import import_module
from typing import Any

NAMES = ("pickup", "claims", "churn", "renewal", "batches", "cost", "memory", "idle")


def main() -> None:
    """Parse, prepare Django, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    functions: dict[str, Callable[..., dict[str, Any]]] = {}
    _prepare()
    for name in NAMES:
        functions[name] = function = import_module(f"tests.bench.{name}").run
        told = (function.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=told, description=function.__doc__)
        for flag, parameter in inspect.signature(function).parameters.items():
            kind = type(parameter.default)
            command.add_argument(
                f"--{flag.replace('_', '-')}",
                type=kind,
                default=parameter.default,
                help="default: %(default)s",
            )
    flags = vars(parser.parse_args())
    name = flags.pop("name")
    found = functions[name](**flags)
    where = {"python": platform.python_version(), "cores": os.cpu_count()}
    print(json.dumps({"measurement": name, "settings": flags, **where, **found}))


def _prepare() -> None:
    if "DATABASE_URL" not in os.environ:
        from example_project import embedded

        os.environ["DATABASE_URL"] = embedded.join().url
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bench.settings"

    import django

    django.setup()


if __name__ == "__main__":
    main()
