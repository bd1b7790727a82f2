#!/usr/bin/env python
"""Django's command line for the example project.

It puts the root of the repository on ``sys.path`` in place of this directory, so that each task
has one module path (``example_project.shop.tasks``), whoever enqueues and whoever runs it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    here = Path(__file__).resolve().parent
    sys.path[0] = str(here.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

    from example_project import leash

    leash.obey()

    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit(
            "Django is not installed here. Run `python3 -m example_project` once, then use "
            "`.venv/bin/python`; or `pip install -e '.[demo,test]'` into an environment of yours."
        )
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
