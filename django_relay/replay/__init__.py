"""Follow one job: a recording as a page that plays it, and that can be read without playing.

``self_contained`` gives a whole page as one text. Pages that are served include the template
``django_relay/replay/body.html`` with ``context`` and link the script and the style sheet, which
lie among the static files; nothing in them is inline.
"""

from .paper import context, self_contained

__all__ = ["context", "self_contained"]
