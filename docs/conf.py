"""How the documentation is built: ``sphinx-build -W docs docs/_build``, with warnings as errors.

Plain Markdown, so that the pages can also be read where the source is. No page is generated from
the code; tests/unit/test_docs.py holds the tables against it instead.
"""

from __future__ import annotations

project = "django_relay"
author = "django_relay contributors"
project_copyright = "django_relay contributors"

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True

myst_heading_anchors = 3

html_theme = "furo"
html_title = "django_relay"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
