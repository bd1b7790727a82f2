"""Run the whole suite: ``python3 -m tests [arguments of pytest]``; makes its environment first."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python reads first
    version = "%d.%d" % sys.version_info[:2]  # noqa: UP031
    sys.exit("django_relay needs Python 3.11 or newer; this is " + version + " " + sys.executable)

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from example_project import bootstrap

sys.exit(bootstrap.go_on("pytest", sys.argv[1:]))
