"""The demo: ``python3 -m example_project [--check]``; makes its own environment first."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python reads first
    version = "%d.%d" % sys.version_info[:2]  # noqa: UP031
    sys.exit("django_relay needs Python 3.11 or newer; this is " + version + " " + sys.executable)

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from example_project import bootstrap

if not bootstrap.prepared():
    sys.exit(bootstrap.go_on("example_project", sys.argv[1:]))

from example_project.demo import main

sys.exit(main(sys.argv[1:]))
